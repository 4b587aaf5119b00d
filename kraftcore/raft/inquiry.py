"""Whether a quorum exists already: what a node asks before it begins a quorum, and how it reads the answers.

A node whose disk was lost must not begin a second quorum beside the first. So each known server is sent a Fetch that
names no replica and epoch 0. No leader counts that Fetch, not Kafka's either, and every answer names the leader epoch
of the server that answers. An epoch above 0, or a known leader, shows that there was an election. Only when all servers
have answered, and none of them shows an election, there is no quorum: a server that does not answer may be the one that
knows. (Voters that were formatted by hand and have had no election yet show none; nothing is committed there.)

Source: ours; the answers are those of KIP-595.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.raft.partition import NAMELESS, PARTITION

Who = TypeVar("Who")


class Found(Enum):
    """What the answers show so far."""

    NOTHING = "everybody answered, and nobody knows a quorum"
    QUORUM = "somebody is, or was, part of a quorum"
    OTHER_CLUSTER = "somebody belongs to another cluster"
    UNKNOWN = "not everybody has answered, and who has knows no quorum"


@dataclass(frozen=True, slots=True)
class Told(Generic[Who]):
    """The answer of one server.

    Attributes:
        who: the server.
        epoch: its leader epoch; -1: it belongs to another cluster.
        leader_id: the leader that it knows, or None.
    """

    who: Who
    epoch: int
    leader_id: int | None


class Inquiry(Generic[Who]):
    """Asks the other hosts whether a quorum exists already, and reads their answers.

    Args:
        others: the servers to ask; without servers there is no quorum.
        cluster_id: of the quorum; None: any.
        topic_id: of the quorum's log.
    """

    def __init__(self, others: Iterable[Who], cluster_id: str | None, topic_id: Uuid) -> None:
        self.others = tuple(others)
        self._cluster_id = cluster_id
        self._topic_id = topic_id
        self._told: dict[Who, Told[Who]] = {}
        self._why: dict[Who, str] = {}

    def request(self) -> FetchRequest:
        """The request for each server, in version ``partition.FETCH_MIN_VERSION`` or later."""
        wanted = FetchRequest.FetchTopic.FetchPartition(partition=PARTITION, current_leader_epoch=0)
        return FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=FetchRequest.ReplicaState(replica_id=NAMELESS),
            max_bytes=1,
            topics=[FetchRequest.FetchTopic(topic_id=self._topic_id, partitions=[wanted])],
        )

    def answered(self, who: Who, answer: Any) -> None:
        """Take an answer, or a `Failure`; an earlier answer that named an epoch stays valid after a failure."""
        if isinstance(answer, Failure):
            self._why[who] = answer.name
        elif not isinstance(answer, FetchResponse):
            self._why[who] = f"answers {type(answer).__name__}"
        elif answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._told[who] = Told(who, -1, None)
        elif answer.error_code != ErrorCode.NONE or not answer.responses or not answer.responses[0].partitions:
            self._why[who] = ErrorCode.of(answer.error_code).name
        else:
            leader = answer.responses[0].partitions[0].current_leader
            if leader.leader_epoch < 0:
                self._why[who] = "does not say its epoch"
            else:
                leader_id = leader.leader_id if leader.leader_id >= 0 else None
                self._told[who] = Told(who, leader.leader_epoch, leader_id)

    @property
    def silent(self) -> dict[Who, str]:
        """The servers that have not told an epoch, each with the last failure or error; empty: not asked yet."""
        return {who: self._why.get(who, "") for who in self.others if who not in self._told}

    @property
    def witness(self) -> Told[Who] | None:
        """The answer that shows a quorum: of another cluster, else of the highest epoch; None: no answer shows one."""
        told = self._told.values()
        foreign = next((each for each in told if each.epoch < 0), None)
        if foreign is not None:
            return foreign
        known = [each for each in told if each.epoch > 0 or each.leader_id is not None]
        return max(known, key=lambda each: each.epoch, default=None)

    @property
    def found(self) -> Found:
        """What the answers show so far."""
        witness = self.witness
        if witness is not None:
            return Found.OTHER_CLUSTER if witness.epoch < 0 else Found.QUORUM
        return Found.UNKNOWN if self.silent else Found.NOTHING
