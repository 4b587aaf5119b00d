"""A follower's side of a fetch session (KIP-227): what its leader remembers is not asked again.

Source: Kafka 4.3.1, FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode

_NO_SESSION = 0
_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class Wanted(NamedTuple):
    """What a follower asks of a partition.

    Attributes:
        topic_id: of its topic; None: it has none, and is asked for by name.
        leader_epoch: it believes in.
        offset: from here on.
        last_epoch: of its log's last batch; -1: it is empty.
        log_start: of its log.
    """

    topic_id: Uuid | None
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class Question(NamedTuple):
    """What goes into the next request.

    Attributes:
        session_id: 0: there is no session.
        epoch: 0: the leader is to begin one; -1: it is not.
        asked: the partitions that it does not know, or not so.
        forgotten: those that it shall forget, with the id of their topic.
    """

    session_id: int
    epoch: int
    asked: Mapping[TopicPartition, Wanted]
    forgotten: Mapping[TopicPartition, Wanted]


class LeaderSession:
    """The fetch session that a follower has with one leader (KIP-227).

    Args:
        is_wanted: False: each request asks for everything, and the leader remembers nothing.
    """

    def __init__(self, *, is_wanted: bool = True) -> None:
        self._is_wanted = is_wanted
        self._id = _NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._is_by_id = True
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._told: dict[TopicPartition, Wanted] = {}
        self._changed: dict[TopicPartition, None] = {}

    def want(self, name: TopicPartition, wanted: Wanted) -> None:
        """From now on this is asked of a partition; behind the others, if it is something else than before."""
        if wanted != self._wanted.get(name):
            self._wanted.pop(name, None)
        self._wanted[name] = wanted
        self._changed[name] = None

    def want_no_more(self, name: TopicPartition) -> None:
        """A partition is not asked for; fine if it never was."""
        if self._wanted.pop(name, None) is not None:
            self._changed[name] = None

    def ask(self, *, by_id: bool) -> Question:
        """Ask for what is wanted. `answered` or `begin_anew` follows before the next one.

        Args:
            by_id: topics are named by their ids.
        """
        if not self._is_wanted:
            return Question(_NO_SESSION, _FINAL_EPOCH, dict(self._wanted), {})
        if self._epoch == _INITIAL_EPOCH or by_id != self._is_by_id:
            self._epoch, self._is_by_id = _INITIAL_EPOCH, by_id
            self._told = dict(self._wanted)
            self._changed.clear()
            return Question(self._id, _INITIAL_EPOCH, dict(self._wanted), {})
        asked: dict[TopicPartition, Wanted] = {}
        forgotten: dict[TopicPartition, Wanted] = {}
        for name in self._changed:
            wanted, told = self._wanted.get(name), self._told.pop(name, None)
            if told is not None and (wanted is None or (by_id and wanted.topic_id != told.topic_id)):
                forgotten[name] = told
            if wanted is not None:
                self._told[name] = wanted
                if wanted != told:
                    asked[name] = wanted
        self._changed.clear()
        return Question(self._id, self._epoch, asked, forgotten)

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """The leader answered; an error ends the session."""
        if error is not ErrorCode.NONE:
            self._epoch = _INITIAL_EPOCH
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = _NO_SESSION
        elif session_id == _NO_SESSION:
            self._id, self._epoch = _NO_SESSION, _INITIAL_EPOCH
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def begin_anew(self) -> None:
        """The leader shall end this session and begin another one: no answer came, or not all of it was taken."""
        self._epoch = _INITIAL_EPOCH
