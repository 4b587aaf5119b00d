"""What the autopilot knows, what it is told to keep to, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kraftcore.errors import LocalError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as the leader sees it. Times are milliseconds on the clock of ``decide``'s ``now_ms``.

    Attributes:
        key: id and directory id.
        last_fetch_ms: when it last fetched from a leader; of one that was never seen to fetch, when it was first
            listed. For the leader itself the present.
        caught_up_ms: until when its log was as long as the leader's; None while unknown.
        lag: records that it lacks.
        endpoints: where it listens as a controller; empty: unknown, or it is no controller.
        answers: whether it answered the autopilot itself just now.
    """

    key: ReplicaKey
    last_fetch_ms: int
    caught_up_ms: int | None = None
    lag: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    answers: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A quorum at one moment.

    Attributes:
        leader_id: node id of the leader.
        is_settled: whether the leader has committed something in its epoch.
        voters: the voter set, the leader included unless it removed itself.
        observers: replicas that fetch and do not vote, brokers among them.
    """

    leader_id: int
    is_settled: bool
    voters: tuple[Replica, ...]
    observers: tuple[Replica, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What to keep to.

    Attributes:
        voters: the wanted number, >= 1.
        min_voters: dead voters are not removed below it, unless a replacement is ready, >= 1.
        dead_after_ms: a voter that has not fetched for so long counts as dead, >= ``alive_within_ms``.
        alive_within_ms: a replica that fetched within this is counted on, > 0. Kafka's replicas fetch twice a second.
        ready_within_ms: a candidate's log was as long as the leader's within this, > 0.
        candidates: ids that may become voters; None: any controller.

    Raises:
        LocalError: a number out of range.
    """

    voters: int = 3
    min_voters: int = 2
    dead_after_ms: int = 60_000
    alive_within_ms: int = 5_000
    ready_within_ms: int = 5_000
    candidates: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if self.voters < 1 or self.min_voters < 1:
            raise LocalError(f"a quorum has at least 1 voter: {self.voters} are wanted, {self.min_voters} at least")
        if self.alive_within_ms <= 0 or self.ready_within_ms <= 0:
            raise LocalError("alive_within_ms and ready_within_ms are above 0")
        if self.dead_after_ms < self.alive_within_ms:
            raise LocalError(
                f"dead_after_ms {self.dead_after_ms} is below alive_within_ms {self.alive_within_ms}: a voter would be "
                "dead and alive"
            )


class Action(Enum):
    """What to do."""

    ADD = "add"
    REMOVE = "remove"
    HOLD = "hold"  # something is not as wanted, and nothing can or should be done now


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing to do, or to leave.

    Attributes:
        action: at most one of a list is not HOLD, and that comes first.
        key: whom it concerns; None: the quorum.
        endpoints: for ADD.
        reason: for people, with the figures that led to it but for those that change with every look.
    """

    action: Action
    key: ReplicaKey | None
    reason: str
    endpoints: tuple[Endpoint, ...] = ()

    def __str__(self) -> str:
        who = "" if self.key is None else f" {self.key.id} ({self.key.directory_id})"
        return f"{self.action.value}{who}: {self.reason}"
