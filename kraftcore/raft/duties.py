"""What the duties of a replica ask of each other, as protocols: nobody needs to know more of the others than this.

``election``, ``replication``, ``snapshots``, ``membership`` and ``leadership`` implement them; ``replica`` puts them
together.
"""
# ruff: noqa: D102 (the modules that implement them document the methods)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.raft import partition, records
from kraftcore.raft.events import Destination
from kraftcore.raft.quorum import Endpoint, VoterSet
from kraftcore.raft.roles import Cause, Follower, Leader, RoleState
from kraftcore.raft.state import ReplicaState


class ElectionDuty(Protocol):
    """Of ``election``."""

    def check_quorum_deadline(self) -> int: ...
    def resign(self, cause: Cause, first: ReplicaKey | None = None) -> None: ...
    def on_begin_quorum_epoch_answer(self, source: Destination, response: Any) -> bool: ...


class ReplicationDuty(Protocol):
    """Of ``replication``."""

    def open_epoch(self, leader: Leader, granting: list[int]) -> None: ...
    def append_control(self, role: Leader, entries: list[records.ControlEntry]) -> int: ...
    def heard_from(self, role: Leader, voter_id: int) -> None: ...
    def voters_in_force(self, role: Leader) -> None: ...
    def raise_high_watermark(self, value: int) -> None: ...
    def fetched_well(self, role: Follower) -> None: ...


class MembershipDuty(Protocol):
    """Of ``membership``."""

    def voters_with_own_entry(self) -> VoterSet: ...
    def voters_changed(self, role: Leader) -> None: ...
    def committed(self, role: Leader, high_watermark: int) -> None: ...


class LeadershipDuty(Protocol):
    """Of ``leadership``."""

    def voters_changed(self, role: Leader) -> None: ...


class SnapshotsDuty(Protocol):
    """Of ``snapshots``."""

    def begin_fetch(self, role: Follower, snapshot_id: tuple[int, int]) -> bool: ...


class Duties(Protocol):
    """Of ``replica``, for its duties."""

    @property
    def state(self) -> ReplicaState: ...
    @property
    def verify_snapshot(self) -> Callable[[Any], object]: ...
    @property
    def election(self) -> ElectionDuty: ...
    @property
    def replication(self) -> ReplicationDuty: ...
    @property
    def membership(self) -> MembershipDuty: ...
    @property
    def leadership(self) -> LeadershipDuty: ...
    @property
    def snapshots(self) -> SnapshotsDuty: ...
    def become(
        self, role: RoleState, cause: Cause, epoch: int | None = None, vote: ReplicaKey | None = None
    ) -> None: ...
    def check_leader_only(self, epoch: int) -> ErrorCode: ...
    def meet_leader(
        self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], *, by_itself: bool = False
    ) -> bool: ...
    def meet_answer(self, answer: partition.Answer, node_endpoints: Sequence[Any], source: Destination) -> bool: ...
    def single_partition(self, response: Any, source: Destination) -> Any: ...
    def refuse_answer(self, source: Destination, response: Any, told: Any = None) -> None: ...


def soonest(first: int | None, second: int | None) -> int | None:
    """The earlier of two times, None meaning never."""
    if first is None:
        return second
    return first if second is None or first <= second else second
