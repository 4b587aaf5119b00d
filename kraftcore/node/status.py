"""What a node says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from kraftcore.core.uuid import Uuid
from kraftcore.node.home import Home
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.replica import Replica
from kraftcore.raft.roles import Role


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """What a leader knows of a replica that fetches from it.

    Attributes:
        key: its id and directory id.
        is_voter: whether it is in the voter set in force.
        log_end_offset: how far it has everything, durably; None before its first Fetch.
        lag: records it lacks; None likewise.
        last_fetch_ms: when it last fetched, milliseconds since 1970.
        last_caught_up_ms: when it last had everything.
    """

    key: ReplicaKey
    is_voter: bool
    log_end_offset: int | None
    lag: int | None
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """A node at one moment.

    Attributes:
        node_id: its replica id.
        directory_id: of the directory that holds its log.
        cluster_id: of the quorum.
        role: its role.
        epoch: its leader epoch.
        leader_id: the leader of that epoch, or None while unknown.
        voters: the voter set in force, committed or not.
        kraft_version: the level in force.
        log_start_offset: the first offset in its log.
        log_end_offset: the next offset in its log.
        flushed_offset: below it the log is durable.
        high_watermark: below it everything is committed; None until known.
        applied_offset: below it everything is applied to the state machine.
        replicas: on a leader, everybody who fetches from it; elsewhere empty.
        snapshots: (end offset, epoch) of its snapshots, oldest first.
        bytes_in_flight: of proposals pending or uncommitted.
    """

    node_id: int
    directory_id: Uuid
    cluster_id: str
    role: Role
    epoch: int
    leader_id: int | None
    voters: VoterSet
    kraft_version: int
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int | None
    applied_offset: int
    replicas: tuple[ReplicaStatus, ...]
    snapshots: tuple[tuple[int, int], ...]
    bytes_in_flight: int


def describe(replica: Replica, home: Home, applied_offset: int, bytes_in_flight: int) -> Status:
    """Gather a node's status."""
    log = home.log
    end = log.log_end_offset
    replicas = tuple(
        ReplicaStatus(
            seen.key,
            replica.voters.is_voter(seen.key),
            seen.log_end_offset,
            None if seen.log_end_offset is None else max(end - seen.log_end_offset, 0),
            seen.last_fetch_ms,
            seen.last_caught_up_ms,
        )
        for seen in replica.progress
    )
    return Status(
        home.key.id,
        home.key.directory_id,
        home.cluster_id,
        replica.role,
        replica.epoch,
        replica.leader_id,
        replica.voters,
        replica.kraft_version,
        log.log_start_offset,
        end,
        log.flushed_offset,
        replica.high_watermark,
        applied_offset,
        replicas,
        tuple((found.end_offset, found.epoch) for found in home.store.ids),
        bytes_in_flight,
    )
