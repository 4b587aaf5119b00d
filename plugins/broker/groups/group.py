"""One consumer group of the classic protocol: its members, and what it is doing.

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable ──> PreparingRebalance ...
                └──> Empty, when nobody is left

Source: Kafka 4.3.1, ClassicGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from kraftcore.core.wire import decode_prefix
from kraftcore.errors import InvariantError, KraftError
from kraftcore.plugins.broker.groups.effects import Ticket
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.controller.hash_order import in_hash_order
from kraftcore.protocol.data.consumer_protocol_subscription import ConsumerProtocolSubscription
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.join_group import JoinGroupResponse

CONSUMER = "consumer"
"""Protocol type of groups of consumers; their members' metadata says which topics they subscribe to."""
_VERSION_BYTES = 2


class State(StrEnum):
    """What a group is doing; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
    State.DEAD: set(State),
}


class Member:
    """A member of a group.

    Attributes:
        id: as given out by the coordinator.
        instance_id: of a static member (KIP-345), or None.
        client_id: what its client calls itself.
        client_host: its address.
        rebalance_timeout_ms: how long a rebalance waits for it.
        session_timeout_ms: how long it may be silent.
        protocols: (name, metadata), the one it likes best first.
        assignment: what the leader gave it.
        join_ticket: its JoinGroup that waits, or None.
        sync_ticket: its SyncGroup that waits, or None.
        is_new: it has not been part of a generation yet.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join_ticket",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Sequence[tuple[str, bytes]],
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = list(protocols)
        self.assignment = b""
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.is_new = False

    def metadata(self, protocol: str | None) -> bytes:
        """What it says in a protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise InvariantError(f"member {self.id} has no protocol {protocol}: the group must not choose it")

    @property
    def is_alive(self) -> bool:
        """Whether its session goes on though it is silent, as it waits for an answer."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


class Group:
    """A consumer group of the classic protocol: its members, its generation, its state.

    Args:
        group_id: its name.
        now_ms: the time, milliseconds since 1970.

    Attributes:
        id: its name.
        state: what it is doing.
        previous_state: what it was doing before.
        state_since_ms: since when; -1: not known.
        generation: grows with every rebalance.
        protocol_type: such as ``consumer``; None: no member ever joined, offsets alone are kept.
        protocol_name: that of this generation, or None.
        leader: id of the member that assigns, or None.
        members: by id, in the order in which they came.
        pending_members: ids that were given out to clients that have not joined with them (KIP-394).
        pending_sync: ids of members whose SyncGroup has not come in this generation.
        static_members: member id by instance id.
        subscribed_topics: of a group of consumers; None: not known.
        has_new_member: whether a member joined while the first rebalance waits for more.
    """

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.id = group_id
        self.state = self.previous_state = State.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._supporters: Counter[str] = Counter()  # members by the name of a protocol that they have
        self.pending_members: set[str] = set()
        self.pending_sync: set[str] = set()
        self.static_members: dict[str, str] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self.has_new_member = False

    # --- members ------------------------------------------------------------------------------------------------------

    def put(self, member: Member) -> None:
        """Add a member."""
        self._count(member.protocols, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self.pending_members.discard(member.id)

    def remove(self, member_id: str) -> None:
        """Forget a member, or an id that was given out; another member leads if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def replace(self, instance_id: str, new_id: str) -> tuple[Member, Member]:
        """A static member came back without its id: give it another. The old and the new member."""
        old = self.members[self.static_members[instance_id]]
        new = Member(
            new_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
        )
        new.assignment = old.assignment
        # Its place in the order stays, and what depends on it: who is asked to lead next.
        self.members = {
            new_id if key == old.id else key: new if key == old.id else each for key, each in self.members.items()
        }
        self.static_members[instance_id] = new_id
        if self.leader == old.id:
            self.leader = new_id
        return old, new

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request speaks for.

        Raises:
            RefusedError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID when another one has its instance id now.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has no static member {instance_id}")
            if known != member_id:
                raise refused(ErrorCode.FENCED_INSTANCE_ID, f"static member {instance_id} has another member id now")
        member = self.members.get(member_id)
        if member is None:
            raise refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has no member {member_id}")
        return member

    @property
    def joined(self) -> int:
        """How many members wait for the next generation."""
        return sum(member.join_ticket is not None for member in self.members.values())

    @property
    def have_all_joined(self) -> bool:
        """Whether no member is waited for any more."""
        return not self.pending_members and all(member.join_ticket is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: as long as its most patient member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_simple(self) -> bool:
        """Whether it only keeps offsets."""
        return self.protocol_type is None and self.state is State.EMPTY and not self.pending_members

    def elect_joined_leader(self) -> bool:
        """Choose a leader that has joined; False: no member has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is not None:
            return True
        joined = next((member.id for member in self.members.values() if member.join_ticket is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    # --- states -------------------------------------------------------------------------------------------------------

    def move_to(self, state: State, now_ms: int) -> None:
        """Begin another state."""
        if self.state not in _BEFORE[state]:
            raise InvariantError(f"group {self.id} cannot go from {self.state} to {state}")
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in _BEFORE[State.PREPARING_REBALANCE]

    def next_generation(self, now_ms: int) -> None:
        """All who will have joined: choose the protocol, and wait for the leader's assignment, or be empty."""
        # Kafka's integer wraps around; that takes a rebalance a second for 68 years.
        self.generation = self.generation + 1 if self.generation < 2**31 - 1 else 0
        self.protocol_name = self.choose_protocol() if self.members else None
        self.subscribed_topics = self.topics_of_members()
        self.move_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_ms)
        self.pending_sync.clear()

    # --- protocols ----------------------------------------------------------------------------------------------------

    def set_protocols(self, member: Member, protocols: Sequence[tuple[str, bytes]]) -> None:
        """A member has other protocols than before."""
        self._count(member.protocols, -1)
        member.protocols = list(protocols)
        self._count(member.protocols, 1)

    def _count(self, protocols: Sequence[tuple[str, bytes]], by: int) -> None:
        for name in {name for name, _ in protocols}:
            self._supporters[name] += by
            if not self._supporters[name]:
                del self._supporters[name]

    def supports(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols may join: each member must have one of them."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(self._is_common(name) for name, _ in protocols)

    def _is_common(self, protocol: str) -> bool:
        return self._supporters[protocol] == len(self.members)

    def choose_protocol(self) -> str:
        """The one with most votes among those that all have; each member votes for the first on its list.

        Of several the first in the order of Java's hash tables, as Kafka's coordinator takes it.
        """
        votes = Counter(
            next(name for name, _ in member.protocols if self._is_common(name)) for member in self.members.values()
        )
        most = max(votes.values())
        return next(name for name in in_hash_order(votes) if votes[name] == most)

    def topics_of_members(self) -> frozenset[str] | None:
        """What a group of consumers subscribes to; None: it is not one, or its members' metadata cannot be read."""
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                # Version 0 begins all later ones.
                found, _ = decode_prefix(
                    ConsumerProtocolSubscription, member.metadata(self.protocol_name), 0, _VERSION_BYTES
                )
                topics.update(found.topics)
        except KraftError:
            return None
        return frozenset(topics)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads a topic, or may do so."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    def told_members(self) -> list[JoinGroupResponse.JoinGroupResponseMember]:
        """All members with their metadata, for the leader."""
        return [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # --- look inside --------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise InvariantError if something does not hold that always must. For tests."""
        problems = []
        if self.members and self.leader not in self.members:
            problems.append(f"leader {self.leader} is no member")
        if self.state is State.EMPTY and self.members:
            problems.append("empty, with members")
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE) and not self.members:
            problems.append(f"{self.state}, without members")
        if self.static_members != {m.instance_id: m.id for m in self.members.values() if m.instance_id is not None}:
            problems.append("static members are not those among the members")
        if self._supporters != Counter(name for m in self.members.values() for name in dict(m.protocols)):
            problems.append("protocols are not counted as the members have them")
        if not self.pending_sync <= self.members.keys():
            problems.append("a SyncGroup is waited for from who is no member")
        if self.pending_members & self.members.keys():
            problems.append("a member is still to join")
        if self.state is not State.PREPARING_REBALANCE and any(m.join_ticket for m in self.members.values()):
            problems.append(f"a JoinGroup waits while {self.state}")
        if self.state is not State.COMPLETING_REBALANCE and any(m.sync_ticket for m in self.members.values()):
            problems.append(f"a SyncGroup waits while {self.state}")
        if problems:
            raise InvariantError(f"group {self.id}: {'; '.join(problems)}")
