"""Who a replica is, and what it must never forget of elections.

Values that the consensus and the ``quorum-state`` file share.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.dataclass import dataclass
from kraftcore.errors import LocalError

EPOCH_MAX = (1 << 31) - 1  # a leader epoch is an int32 everywhere


class ReplicaKey(NamedTuple):
    """Who a replica is: its id, and the directory that holds its log.

    Attributes:
        id: replica id, >= 0; -1 for a replica that must stay nameless (an anonymous observer).
        directory_id: the zero uuid while unknown.
    """

    id: int
    directory_id: Uuid = ZERO_UUID

    @property
    def has_directory(self) -> bool:
        """Whether the directory id is known."""
        return self.directory_id != ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """Whether an entry with this key stands for ``other``: same id, and same or unknown directory."""
        return self.id == other.id and (not self.has_directory or self.directory_id == other.directory_id)

    def __str__(self) -> str:
        # As Kafka prints it in the messages of AddRaftVoter and RemoveRaftVoter.
        return f"ReplicaKey(id={self.id}, directoryId={self.directory_id if self.has_directory else '<undefined>'})"


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What a replica must never forget of elections.

    Attributes:
        epoch: the leader epoch it is in, 0 to 2147483647.
        leader_id: the leader of that epoch, or None.
        voted_key: whom it voted for in that epoch, or None. ``quorum-state`` keeps only the id at kraft.version 0.
        kraft_version: the latest in the log, committed or not; chooses the data version of ``quorum-state``, so a file
            may lag behind the log.
        voter_ids: at kraft.version 0 only, ascending.

    Raises:
        LocalError: a number out of range.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted_key: ReplicaKey | None = None
    kraft_version: int = 0
    voter_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        numbers = {"epoch": self.epoch, "kraft_version": self.kraft_version}
        if self.leader_id is not None:
            numbers["leader_id"] = self.leader_id
        if self.voted_key is not None:
            numbers["voted_key.id"] = self.voted_key.id
        for name, value in (*numbers.items(), *(("a voter id", voter_id) for voter_id in self.voter_ids)):
            if not 0 <= value < 1 << 31:
                raise LocalError(f"{name} {value} is not in 0 to 2147483647")
        if self.voter_ids and self.kraft_version > 0:
            raise LocalError(f"voter ids are kept at kraft.version 0 only, not at {self.kraft_version}")
