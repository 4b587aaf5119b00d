"""Voter sets as values, and the arithmetic of majorities.

Everything here is a frozen value or a pure function, without roles, messages or time, so that every layer may use it.

A voter set holds one entry per replica id. An entry without a directory id (static voters, kraft.version 0) matches
every directory of that id. Source: KIP-853 "Set of voters"; Kafka 4.3.1 keeps the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from kraftcore.errors import LocalError
from kraftcore.protocol.election_state import ReplicaKey


class Endpoint(NamedTuple):
    """Where a listener can be reached.

    Attributes:
        name: listener name, upper case as KRaftVoters records have it; empty in what a leader's answer tells of it.
        host: host name or address.
        port: 0 to 65535.
    """

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}{'://' if self.name else ''}{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The kraft.version levels a replica supports, both ends included."""

    min: int = 0
    max: int = 0

    def __contains__(self, version: int) -> bool:
        return self.min <= version <= self.max


@dataclass(frozen=True, slots=True)
class Voter:
    """One entry of a voter set.

    Entries are equal if they name the same listeners, in any order: Kafka 4.3.1 writes listeners in the order of a hash
    map (``raft.Endpoints``).

    Attributes:
        key: replica key; the directory id is unknown for static voters.
        endpoints: where it listens.
        supported: the kraft.version levels it supports.
    """

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = field(default=(), compare=False)
    supported: VersionRange = VersionRange()
    _listeners: frozenset[Endpoint] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_listeners", frozenset(self.endpoints))

    def endpoint(self, name: str) -> Endpoint | None:
        """Where the listener of this name listens; None: the entry does not say."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == name), None)

    def at(self, endpoint: Endpoint) -> Voter:
        """This entry with the endpoint of the same name replaced; added in front if there is none of that name."""
        if self.endpoint(endpoint.name) is None:
            return replace(self, endpoints=(endpoint, *self.endpoints))
        kept = tuple(endpoint if old.name == endpoint.name else old for old in self.endpoints)
        return replace(self, endpoints=kept)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """An immutable set of voters, at most one per id.

    Args:
        voters: in any order; kept by id.

    Attributes:
        ids: of all voters.

    Raises:
        LocalError: two entries with one id.
    """

    voters: tuple[Voter, ...] = ()
    _by_id: Mapping[int, Voter] = field(init=False, repr=False, compare=False)
    ids: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_id = {voter.key.id: voter for voter in sorted(self.voters, key=lambda voter: voter.key.id)}
        if len(by_id) != len(self.voters):
            raise LocalError(f"two voters share an id: {[str(voter.key) for voter in self.voters]}")
        object.__setattr__(self, "voters", tuple(by_id.values()))
        object.__setattr__(self, "_by_id", MappingProxyType(by_id))
        object.__setattr__(self, "ids", frozenset(by_id))

    def __reduce__(self) -> tuple[type[VoterSet], tuple[tuple[Voter, ...]]]:
        return VoterSet, (self.voters,)

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The replica keys, by id."""
        return tuple(voter.key for voter in self.voters)

    @property
    def majority(self) -> int:
        """The least number of voters that is more than half."""
        return majority(len(self.voters))

    def get(self, replica_id: int) -> Voter | None:
        """The entry with this id, or None."""
        return self._by_id.get(replica_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether a replica is a voter: its id is here, and the entry's directory id is the same or unknown."""
        entry = self._by_id.get(key.id)
        return entry is not None and entry.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether a replica is the only voter."""
        return len(self.voters) == 1 and self.is_voter(key)

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set and one more voter.

        Raises:
            LocalError: the set has a voter of that id, of whatever directory.
        """
        return VoterSet((*self.voters, voter))

    def without(self, key: ReplicaKey) -> VoterSet:
        """This set less the voter with exactly this key.

        Raises:
            LocalError: the set has no voter with that key, or no other voter.
        """
        entry = self._by_id.get(key.id)
        if entry is None or entry.key != key or len(self.voters) == 1:
            raise LocalError(f"cannot remove {key} from {self}")
        return VoterSet(tuple(voter for voter in self.voters if voter is not entry))

    def with_updated(self, voter: Voter, *, any_directory: bool = False) -> VoterSet:
        """This set with the entry of the same replica replaced.

        Args:
            voter: the new entry.
            any_directory: whether the entry may be of another directory. Only for sets that are not in force, as
                before the upgrade to kraft.version 1; elsewhere another directory is another voter.

        Raises:
            LocalError: no entry matches the key.
        """
        if voter.key.id not in self._by_id or not (any_directory or self.is_voter(voter.key)):
            raise LocalError(f"cannot update {voter.key} in {self}")
        return VoterSet(tuple(voter if old.key.id == voter.key.id else old for old in self.voters))

    def __str__(self) -> str:
        return "[" + ", ".join(str(voter.key) for voter in self.voters) + "]"


def majority(count: int) -> int:
    """The least number that is more than half of ``count``; 1 of 0, so that nobody wins an election without voters."""
    return count // 2 + 1


@dataclass(slots=True)
class Tally:
    """The votes of one election, against the voter set in force when it began.

    Votes are counted by id, so a voter that answers twice, or from two directories, counts once.

    Attributes:
        voters: who may vote.
        granted: ids of the voters that granted.
        rejected: ids of the voters that refused.
    """

    voters: VoterSet
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    def record(self, voter_id: int, granted: bool) -> bool:
        """Count a vote; False if ``voter_id`` is no voter."""
        if voter_id not in self.voters.ids:
            return False
        (self.granted if granted else self.rejected).add(voter_id)
        (self.rejected if granted else self.granted).discard(voter_id)
        return True

    @property
    def won(self) -> bool:
        """Whether a majority granted."""
        return len(self.granted) >= self.voters.majority

    @property
    def lost(self) -> bool:
        """Whether a majority can no longer grant."""
        return len(self.voters) - len(self.rejected) < self.voters.majority

    @property
    def unanswered(self) -> list[int]:
        """Ids of the voters that have not answered, ascending."""
        return sorted(self.voters.ids - self.granted - self.rejected)


def static_voters(entries: Iterable[tuple[int, Endpoint]]) -> VoterSet:
    """The voter set of ``controller.quorum.voters``: directory ids unknown, kraft.version 0 only."""
    return VoterSet(tuple(Voter(ReplicaKey(voter_id), (endpoint,)) for voter_id, endpoint in entries))
