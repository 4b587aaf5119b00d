"""The events of a node, for plugins and for readers of ``Node.events``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import Role


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """This node is in another role now, or in the same role in another epoch."""

    role: Role
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Another node leads, or no leader has answered for a fetch timeout (``leader_id`` is None)."""

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class LeadershipReady:
    """This node leads, and has applied all records of earlier epochs: from now on it takes decisions."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LeadershipEnded:
    """This node does not lead any more; comes once after each `LeadershipReady`, unless the node ends."""

    epoch: int


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """Another voter set is in force; it may not be committed yet."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything below ``high_watermark`` is committed, and applied here."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """This node wrote a snapshot of its state machine; it holds everything below ``end_offset``."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SnapshotRestored:
    """The state machine was loaded from this snapshot, at start or because the leader has no older records."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Noted:
    """A line for the operator's log: a contradiction or refusal that should not happen."""

    text: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The node ends. ``error`` is None if the application stopped it."""

    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A batch proposed here was committed and applied; made only if a plugin or reader asked for this class.

    Attributes:
        latency_s: seconds from the batch's append to its records' results.
        records: how many records the batch has.
    """

    latency_s: float
    records: int


@dataclass(frozen=True, slots=True)
class Elected:
    """An election that this node took part in as a candidate ended with a leader.

    Attributes:
        latency_s: seconds since this node began to ask for votes.
    """

    latency_s: float


@dataclass(frozen=True, slots=True)
class Missed:
    """``Node.events`` only: the reader was slow, and ``count`` older events were dropped."""

    count: int


NodeEvent: TypeAlias = (
    RoleChanged
    | LeaderChanged
    | LeadershipReady
    | LeadershipEnded
    | VotersChanged
    | Committed
    | SnapshotTaken
    | SnapshotRestored
    | Noted
    | Stopped
    | Measured
    | Elected
    | Missed
)
