"""A quorum whose majority of disks is lost for good: one survivor becomes the only voter.

No rule of the consensus can help there: committed records are on a majority of the voters, so the survivors cannot know
whether they have all of them. An operator can decide to go on with one survivor's records; its node must not run.

``look`` describes what the survivor has; ``become_only_voter`` appends a batch to its log, in an epoch of its own, that
names this node as the only voter. That commits everything in its log, and everything else is lost.

Source: ours, like etcd's ``--force-new-cluster``; Kafka 4.3.1 has no such command.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random

from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.uuid import ZERO_UUID
from kraftcore.errors import LocalError
from kraftcore.protocol.election_state import EPOCH_MAX, ElectionState, ReplicaKey
from kraftcore.raft import control_records
from kraftcore.raft.events import RaftConfig
from kraftcore.raft.installing import discard_log_behind_snapshot
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.raft.state import RaftState
from kraftcore.storage.lock import lock_folders
from kraftcore.storage.meta_properties import (
    METADATA_PARTITION,
    MIRROR_NODE_ID,
    ensure_directory_ids,
    load_folders,
    write_meta_properties,
)
from kraftcore.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from kraftcore.storage.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True)
class Survivor:
    """The log, snapshot and voter set that one node has left of a quorum.

    Attributes:
        key: the node's id and its directory's id.
        log_start_offset: of its log; earlier records are in the snapshot.
        log_end_offset: the offset after its last record.
        last_epoch: leader epoch of its last record; 0 without any.
        epoch: the leader epoch it was in.
        snapshot: (end offset, epoch) of its latest snapshot, or None.
        kraft_version: the level in force.
        voters: the voter set in force.
        voters_offset: offset of the record that names the voters; -1: the 0-0 checkpoint does; None: nothing does.
    """

    key: ReplicaKey
    log_start_offset: int
    log_end_offset: int
    last_epoch: int
    epoch: int
    snapshot: tuple[int, int] | None
    kraft_version: int
    voters: VoterSet
    voters_offset: int | None

    @property
    def others(self) -> tuple[int, ...]:
        """Ids of the other voters, ascending; records that only they have would be lost."""
        return tuple(sorted(key.id for key in self.voters.keys if key != self.key))


def look(files: Files, directory: str, node_id: int) -> Survivor:
    """Describe what a node that does not run has left. Its log is opened, and recovered as at any start.

    Args:
        files: where the directory is.
        directory: the node's metadata directory.
        node_id: the id that the directory must have, unless it is a mirror.

    Raises:
        LocalError: the directory is not formatted, or another node's, or it has no log.
        LockedError: the node runs.
        CorruptDataError, StorageError: it cannot be read.
    """
    with (
        locked_at_rest(files, directory, node_id, or_mirror=True) as (cluster_id, key),
        open_state(files, directory, cluster_id, key) as (state, _, _),
    ):
        return _survivor(state)


def become_only_voter(files: Files, directory: str, node_id: int, endpoint: Endpoint) -> Survivor:
    """Make a node that does not run the only voter of its quorum; durable when it returns.

    An observer's mirror becomes the node's directory. A directory without an id, as a mirror is one, gets a random id
    first, as it would at a start.

    Args:
        files: where the directory is.
        directory: the node's metadata directory.
        node_id: whose it has to be.
        endpoint: where it listens; other listeners stay as its log names them.

    Returns:
        What it has now.

    Raises:
        LocalError: as `look`; or the voters are static (kraft.version 0), or it is the only voter already, or there is
            no further leader epoch.
        LockedError, CorruptDataError, StorageError: as `look`; it can be run again.
    """
    with (
        locked_at_rest(files, directory, node_id, or_mirror=True, gives_id=True) as (cluster_id, key),
        open_state(files, directory, cluster_id, key) as (state, log, quorum_file),
    ):
        if state.version < 1:
            raise LocalError(
                f"the voters of node {node_id} are static (kraft.version 0): name the nodes that are left in "
                "controller.quorum.voters, the same on each of them, and start them"
            )
        if state.voters.is_only_voter(key):
            raise LocalError(f"node {node_id} is the only voter already: start it")
        epoch = max(state.epoch, state.last_epoch) + 1
        if epoch >= EPOCH_MAX:
            raise LocalError(f"{EPOCH_MAX} is the last leader epoch there is")
        entry = state.voters.get(key.id)
        known = () if entry is None or entry.key != key else entry.endpoints
        alone = VoterSet((Voter(key, known, VersionRange(0, state.config.max_supported_version)).at(endpoint),))
        entries = [
            control_records.leader_change(key.id, alone, [key.id]),
            control_records.kraft_version(state.version),
            control_records.kraft_voters(alone),
        ]
        # The epoch first: whatever follows, no vote of an earlier epoch counts any more.
        quorum_file.write(ElectionState(epoch, kraft_version=state.version))
        now_ms = time.time_ns() // 1_000_000
        log.assign_epoch_start_offset(epoch, log.log_end_offset)
        log.append_as_leader(control_records.control_batch(entries, now_ms), epoch, now_ms)
        log.flush()
        state.epoch = epoch
        state.load_history()
        return _survivor(state)


@contextmanager
def locked_at_rest(
    files: Files, directory: str, node_id: int, *, or_mirror: bool = False, gives_id: bool = False
) -> Iterator[tuple[str | None, ReplicaKey]]:
    """Hold the directory of a node that does not run.

    Args:
        files: where the directory is.
        directory: the node's metadata directory.
        node_id: the id that the directory must have.
        or_mirror: the directory may also be an observer's mirror.
        gives_id: make a mirror the node's directory, and give a directory without an id a random one.

    Yields:
        The cluster's id, and the node's key.

    Raises:
        LocalError: the directory is not formatted, or another node's, or it has no log.
        LockedError: the node runs.
        CorruptDataError, StorageError: it cannot be read.
    """
    if not files.exists(directory) or not files.exists(os.path.join(directory, METADATA_PARTITION)):
        raise LocalError(
            f"{directory} holds no {METADATA_PARTITION}: nothing is left of a quorum there. If its disk is not "
            "mounted, mount it; else look at the other nodes (docs/operating.md, When most voters are lost)"
        )
    with lock_folders(files, [directory]):
        found = load_folders(files, [directory], metadata_folder=directory)
        own = found.properties.get(directory)
        is_mirror = or_mirror and own is not None and own.node_id == MIRROR_NODE_ID
        found.verify(cluster_id=None, node_id=MIRROR_NODE_ID if is_mirror else node_id)
        if is_mirror and own is not None and gives_id:
            write_meta_properties(files, directory, replace(own, node_id=node_id), datetime.now(UTC))
            found = load_folders(files, [directory], metadata_folder=directory)
        if gives_id:
            found = ensure_directory_ids(files, found, datetime.now(UTC))
        yield found.cluster_id, ReplicaKey(node_id, found.properties[directory].directory_id or ZERO_UUID)


@contextmanager
def open_state(
    files: Files, directory: str, cluster_id: str | None, key: ReplicaKey
) -> Iterator[tuple[RaftState, Log, QuorumStateFile]]:
    """Open the log in a directory that `locked_at_rest` holds, and read from it what a replica begins with.

    Raises:
        CorruptDataError, StorageError: it cannot be read.
    """
    folder = os.path.join(directory, METADATA_PARTITION)
    quorum_file = QuorumStateFile(files, os.path.join(folder, QUORUM_STATE))
    with Log.open(files, folder, now_ms=time.time_ns() // 1_000_000) as log:
        saved = quorum_file.read() or ElectionState()
        state = RaftState(RaftConfig(cluster_id, key), log, SnapshotStore(files, folder), Random(0), saved)
        discard_log_behind_snapshot(log, state.snapshots, 0)
        state.load_history()
        yield state, log, quorum_file


def _survivor(state: RaftState) -> Survivor:
    return Survivor(
        key=state.config.key,
        log_start_offset=state.log.log_start_offset,
        log_end_offset=state.log.log_end_offset,
        last_epoch=state.last_epoch,
        epoch=max(state.epoch, state.last_epoch),
        snapshot=state.snapshots.latest,
        kraft_version=state.version,
        voters=state.voters,
        voters_offset=state.voter_sets.latest_offset,
    )
