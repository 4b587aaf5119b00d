"""A follower's side of a fetch session (KIP-227): a request leaves out partitions that the leader remembers.

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
    """A follower's fetch of one partition.

    Attributes:
        topic_id: the topic's id; None: the topic has none, and is asked for by name.
        leader_epoch: the leader epoch that the follower knows.
        offset: the fetch offset.
        last_epoch: the leader epoch of the last batch in the follower's log; -1: the log is empty.
        log_start: the log start offset of the follower's log.
    """

    topic_id: Uuid | None
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class Question(NamedTuple):
    """The session's part of the next request.

    Attributes:
        session_id: the session's id; 0: there is no session.
        epoch: the session epoch; 0: the leader is to begin a session; -1: the leader is to begin none.
        asked: the partitions that are new or changed in the session.
        forgotten: the partitions that the leader is to forget, with the ids of their topics.
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
        """Ask for a partition so from now on; if the fetch changed, the partition goes behind the other ones."""
        if wanted != self._wanted.get(name):
            self._wanted.pop(name, None)
        self._wanted[name] = wanted
        self._changed[name] = None

    def want_no_more(self, name: TopicPartition) -> None:
        """Ask for a partition no more; it need not have been asked for."""
        if self._wanted.pop(name, None) is not None:
            self._changed[name] = None

    def ask(self, *, by_id: bool) -> Question:
        """The partitions for the next request. The caller then calls `answered` or `begin_anew`.

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
        """Note the leader's answer; an error ends the session."""
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
        """Begin a new session with the next request: no answer came, or not all of it could be applied."""
        self._epoch = _INITIAL_EPOCH
