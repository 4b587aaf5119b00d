"""What a partition is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, Protocol

from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.errors import RefusedError
from kraftcore.protocol.error_codes import ErrorCode

NO_EPOCH = -1
"""A leader epoch that no request named."""


UNKNOWN_BROKER_EPOCH = -1
"""A broker epoch that no request named (KIP-903)."""


class View(Enum):
    """How much of a log a reader may see."""

    REPLICA = auto()
    """All of it."""
    CONSUMER = auto()
    """What is committed: up to the high watermark."""
    COMMITTED = auto()
    """Of transactions, too: up to the last stable offset (``isolation.level=read_committed``)."""


class PartitionSettings(NamedTuple):
    """The settings of a topic's partitions.

    Attributes:
        min_insync_replicas: acks=all is refused if the ISR has fewer replicas.
        lag_time_max_ms: how long a follower may be behind before it leaves the ISR.
        flush_messages: a sync is due when so many records are not synced (``flush.messages``), >= 1.
    """

    min_insync_replicas: int = 1
    lag_time_max_ms: int = 30_000
    flush_messages: int = 2**63 - 1


class Assignment(NamedTuple):
    """The controller's decision about a partition: its leader, epochs, replicas and ISR.

    Attributes:
        leader: the leader's broker id; -1: there is none.
        leader_epoch: grows with every election.
        partition_epoch: grows with every change of leader, ISR or replicas.
        replicas: broker ids, the preferred leader first.
        isr: the broker ids of the ISR.
        topic_id: the topic's id; None: the controller names the topic by name alone.
        directory: id of the log directory that this broker's replica is assigned to (KIP-858).
        is_recovering: whether an unclean election made the leader, which has not recovered yet (KIP-704).
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
    """A change of the ISR that a leader proposes to the controller (AlterPartition).

    Attributes:
        isr: the broker ids of the proposed ISR.
        leader_epoch: the leader epoch of the proposing leader.
        partition_epoch: the partition epoch that the proposal is based on.
        broker_epochs: broker epochs of the members of ``isr``, in its order; -1: not known, or of the leader itself
            (KIP-903). A broker that registers anew may lack records that it had when it was seen to be in sync.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: tuple[int, ...] = ()


class IsrAnswer(NamedTuple):
    """The controller's answer to a proposal.

    Attributes:
        error: NONE, or the reason of the refusal.
        leader_epoch: the partition's leader epoch, if the error is NONE.
        partition_epoch: the new partition epoch, if the error is NONE.
        isr: the new ISR, if the error is NONE.
    """

    error: ErrorCode
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()


class Waiter(Protocol):
    """A request that waits until records are committed, or synced."""

    @property
    def is_over(self) -> bool:
        """Whether the request no longer waits, as its time has passed."""

    def end(self, error: ErrorCode) -> None:
        """End the wait: NONE says that the records are committed, or synced; else the error says why not."""


@dataclass(slots=True)
class PartitionEffects:
    """The work that an event leaves to its caller, to be done in any order.

    Attributes:
        ended: the waiters that wait no longer, each with its error or NONE.
        proposal: a change of the ISR to send to the controller; None: there is none.
        has_changed: whether the log end offset, high watermark, role, epoch or ISR changed: waiting fetches look again.
        repeated_ms: after an append of a repeated batch, the largest timestamp of the stored batch; else None.
        needs_sync: whether the log is to be synced, and then ``Partition.synced`` to be called.
    """

    ended: list[tuple[Waiter, ErrorCode]] = field(default_factory=list)
    proposal: IsrProposal | None = None
    has_changed: bool = False
    repeated_ms: int | None = None
    needs_sync: bool = False


def refused(error: ErrorCode, message: str = "") -> RefusedError:
    """The error to raise for a refusal with this code."""
    return RefusedError(error.name, message)
