"""What a partition is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, Protocol

from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.errors import RefusedError
from kraftcore.protocol.error_codes import ErrorCode

NO_EPOCH = -1
"""A leader epoch that nobody told."""


UNKNOWN_BROKER_EPOCH = -1
"""A broker epoch that nobody told (KIP-903)."""


class View(Enum):
    """What somebody who reads may see of a log."""

    REPLICA = auto()
    """All of it."""
    CONSUMER = auto()
    """What is committed: up to the high watermark."""
    COMMITTED = auto()
    """Of transactions, too: up to the last stable offset (``isolation.level=read_committed``)."""


class PartitionSettings(NamedTuple):
    """The settings of a topic's partitions.

    Attributes:
        min_insync_replicas: fewer in-sync replicas, and acks=all is refused.
        lag_time_max_ms: how long a follower may be behind before it leaves the ISR.
        flush_messages: so many records that are not synced have to be (``flush.messages``), >= 1.
    """

    min_insync_replicas: int = 1
    lag_time_max_ms: int = 30_000
    flush_messages: int = 2**63 - 1


class Assignment(NamedTuple):
    """What the controller says of a partition.

    Attributes:
        leader: broker id, or -1.
        leader_epoch: grows with every election.
        partition_epoch: grows with every change of leader, ISR or replicas.
        replicas: broker ids, the preferred leader first.
        isr: broker ids that are in sync.
        topic_id: of the topic; None: the controller names it by name alone.
        directory: id of the log directory that this broker's replica is assigned to (KIP-858).
        is_recovering: the leader came in by an unclean election and has not said yet that it recovered (KIP-704).
        is_new: this broker's replica holds nothing yet that anybody counts on: its log may be made though a directory
            cannot be looked into.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    topic_id: Uuid | None = None
    directory: Uuid = UNASSIGNED_DIRECTORY
    is_recovering: bool = False
    is_new: bool = False


class IsrProposal(NamedTuple):
    """A change of the ISR for the controller to decide about (AlterPartition).

    Attributes:
        isr: broker ids that shall be in sync.
        leader_epoch: of the leader that proposes.
        partition_epoch: of the state that it changes.
        broker_epochs: of the incarnations that are meant, as ``isr``; -1: not known, or ours (KIP-903). They are those
            of the moment: a later incarnation may lack what the one had that was seen to be in sync.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: tuple[int, ...] = ()


class IsrAnswer(NamedTuple):
    """What the controller answers to a proposal.

    Attributes:
        error: NONE, or why it refused.
        leader_epoch: with NONE, the partition's.
        partition_epoch: with NONE, the new one.
        isr: with NONE, the ISR as it is now.
    """

    error: ErrorCode
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()


class Waiter(Protocol):
    """Somebody who waits until records are committed, or synced."""

    @property
    def is_over(self) -> bool:
        """Whether it waits no more, for its time is over."""

    def end(self, error: ErrorCode) -> None:
        """It is over: NONE, they are."""


@dataclass(slots=True)
class PartitionEffects:
    """What is to be done after an event, in any order.

    Attributes:
        ended: produces that are over, each with its error or NONE.
        proposal: to send to the controller.
        has_changed: the log's end, the high watermark, the role, epoch or ISR changed: waiting fetches look again.
        repeated_ms: of an append that was a repetition, the largest timestamp of the batch that is stored; else None.
        needs_sync: the log is to be synced, then ``Partition.synced`` called.
    """

    ended: list[tuple[Waiter, ErrorCode]] = field(default_factory=list)
    proposal: IsrProposal | None = None
    has_changed: bool = False
    repeated_ms: int | None = None
    needs_sync: bool = False


def refused(error: ErrorCode, message: str = "") -> RefusedError:
    """The error to raise for what a client is told by this code."""
    return RefusedError(error.name, message)
