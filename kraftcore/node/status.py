"""A node's status."""

from __future__ import annotations

from typing import NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.executor.executor import Executor
from kraftcore.node.home import Home
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint, VoterSet
from kraftcore.raft.roles import Role


class ReplicaStatus(NamedTuple):
    """A replica that fetches from a leader, as the leader knows it.

    Attributes:
        key: its id and directory id.
        is_voter: whether it is in the voter set in force.
        log_end_offset: everything below it is durable on the replica; None before its first Fetch.
        lag: records between ``log_end_offset`` and this leader's log end offset; None before the first Fetch.
        last_fetch_ms: when it last fetched, milliseconds since 1970.
        last_caught_up_ms: when it last had all records of the leader, milliseconds since 1970.
    """

    key: ReplicaKey
    is_voter: bool
    log_end_offset: int | None
    lag: int | None
    last_fetch_ms: int
    last_caught_up_ms: int

    def __repr__(self) -> str:
        behind = "nothing fetched yet" if self.lag is None else f"{self.lag} behind"
        return f"<ReplicaStatus {self.key.id}: {'voter' if self.is_voter else 'observer'}, {behind}>"


class Status(NamedTuple):
    """A node at one moment.

    Attributes:
        node_id: its replica id.
        directory_id: of the directory that holds its log.
        cluster_id: of the quorum.
        role: its role.
        epoch: its leader epoch.
        leader_id: the leader of that epoch; None while unknown, and while it has not answered for a fetch timeout.
        voters: the voter set in force, committed or not.
        kraft_version: the level in force.
        log_start_offset: the first offset in its log.
        log_end_offset: the next offset in its log.
        flushed_offset: below it the log is durable.
        high_watermark: below it everything is committed; None until known.
        applied_offset: below it everything is applied to the state machine.
        replicas: on a leader, all replicas that fetch from it; elsewhere empty.
        snapshots: (end offset, epoch) of its snapshots, oldest first.
        bytes_in_flight: of proposals pending or uncommitted.
        leader_endpoints: where the leader listens, as far as known.
        listeners: where this node listens, as it tells other nodes.
        is_voter: whether this node is in the voter set in force.
        voted_key: whom it voted for in this epoch, or None.
        changes_voters: whether it leads, and a voter change is not committed yet.
        last_epoch: of the log's last record; 0 without any.
        log_bytes: size of the log's segments.
        snapshot_bytes: size of the latest snapshot; 0 without one.
        sessions: clients remembered for their retries.
        connections: open ones (accepted, made); None if the transport does not count.
        alarm: why this node does not follow its leader, which would have it drop committed records; None: it follows.
        is_on_probation: whether it does not count as a voter: it formatted itself, and may have voted and acknowledged
            with another disk (docs/damage.md).
        applied_timestamp_ms: the largest timestamp that was applied, milliseconds since 1970; 0 before the first one.
        leader_silent_ms: milliseconds since the leader last answered this node; on a leader, since a majority of the
            voters had fetched from it. Since the start of the node, if that has not happened yet.
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
    leader_endpoints: tuple[Endpoint, ...]
    listeners: tuple[Endpoint, ...]
    is_voter: bool
    voted_key: ReplicaKey | None
    changes_voters: bool
    last_epoch: int
    log_bytes: int
    snapshot_bytes: int
    sessions: int
    connections: tuple[int, int] | None
    alarm: str | None
    is_on_probation: bool
    leader_silent_ms: int
    applied_timestamp_ms: int

    def __repr__(self) -> str:
        told = [
            self.role.value,
            f"epoch {self.epoch}",
            "no leader known" if self.leader_id is None else f"leader {self.leader_id}",
            f"voters {', '.join(map(str, sorted(self.voters.ids)))}",
            f"log {self.log_start_offset} to {self.log_end_offset}",
            f"high watermark {self.high_watermark}",
        ]
        lags = ", ".join(f"{each.key.id}: {each.lag}" for each in self.replicas)
        told += [f"behind it {lags}"] if lags else []
        told += [self.alarm] if self.alarm else []
        return f"<Status of {self.node_id}: {', '.join(told)}>"


def describe(executor: Executor, home: Home, connections: tuple[int, int] | None, leader_silent_ms: int) -> Status:
    """Gather a node's status."""
    log, store, replica = home.log, home.store, executor.replica
    end = log.log_end_offset
    snapshots = tuple((found.end_offset, found.epoch) for found in store.ids)
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
        node_id=home.key.id,
        directory_id=home.key.directory_id,
        cluster_id=home.cluster_id,
        role=replica.role,
        epoch=replica.epoch,
        leader_id=replica.answering_leader_id,
        voters=replica.voters,
        kraft_version=replica.kraft_version,
        log_start_offset=log.log_start_offset,
        log_end_offset=end,
        flushed_offset=log.flushed_offset,
        high_watermark=replica.high_watermark,
        applied_offset=executor.applier.offset,
        replicas=replicas,
        snapshots=snapshots,
        bytes_in_flight=executor.queue.bytes_in_flight,
        leader_endpoints=replica.leader_endpoints,
        listeners=replica.listeners,
        is_voter=replica.is_voter,
        voted_key=replica.voted_key,
        changes_voters=replica.changes_voters,
        last_epoch=replica.last_epoch,
        log_bytes=log.size_in_bytes,
        snapshot_bytes=store.size(snapshots[-1]) if snapshots else 0,
        sessions=len(executor.applier.sessions),
        connections=connections,
        alarm=replica.alarm,
        is_on_probation=replica.is_on_probation,
        leader_silent_ms=leader_silent_ms,
        applied_timestamp_ms=executor.applier.timestamp_ms,
    )
