"""A node's directory: locked, formatted if the configuration says so, opened."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from kraftcore.config import NodeConfig
from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, LocalError, LockedError
from kraftcore.node.damage import (
    check_committed,
    check_log_is_there,
    check_meta_properties,
    check_no_gap,
    check_quorum_state,
    gone,
    holds_more_than_formatting_leaves,
    set_aside_damaged,
)
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.raft.control_records import voter_entries
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.storage.bootstrap import (
    begun_store,
    read_bootstrap_checkpoint,
    write_bootstrap_checkpoint,
    write_initial_voters,
)
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.format import plan_format
from kraftcore.storage.lock import FolderLocks, lock_folders
from kraftcore.storage.log_mark import remove_log_mark, write_log_mark
from kraftcore.storage.meta_properties import (
    MetaProperties,
    ensure_directory_ids,
    load_folders,
    read_meta_properties,
    write_meta_properties,
)
from kraftcore.storage.probation_mark import ProbationMark
from kraftcore.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from kraftcore.storage.snapshots import SnapshotStore

_logger = logging.getLogger("kraftcore.node")


@dataclass(frozen=True, slots=True)
class Home:
    """A node's open directory: its identity, its log and its files.

    Attributes:
        key: the node's id and its directory's id.
        cluster_id: from ``meta.properties``.
        log: open and recovered.
        store: the log's snapshots.
        quorum_state: epoch and vote.
        committed: the file of the floor, see `raft.floor`.
        probation: the mark of a node on probation, see `raft.probation`.
        files: where the directory is.
        directory: path of the directory.
    """

    key: ReplicaKey
    cluster_id: str
    log: Log
    store: SnapshotStore
    quorum_state: QuorumStateFile
    committed: CommittedFile
    probation: ProbationMark
    locks: FolderLocks
    files: Files
    directory: str

    def read_bootstrap(self) -> tuple[bytes, ...]:
        """The records that formatting left for the first leader of an empty log; none if there is no such file.

        Raises:
            CorruptDataError, StorageError: see ``read_bootstrap_checkpoint``.
        """
        return read_bootstrap_checkpoint(self.files, self.directory) or ()

    def close(self) -> None:
        """Close the log, and unlock the directory. Idempotent."""
        try:
            self.log.close()
        finally:
            self.locks.release()


def open_home(files: Files, config: NodeConfig, endpoints: tuple[Endpoint, ...] | None = None) -> Home:
    """Open a node's directory; recovering its log may take a while.

    Args:
        files: where the directory is.
        config: of the node.
        endpoints: where the node listens, for its own voter set entry if the directory is formatted; None: as
            configured.

    Raises:
        LocalError: the directory is not formatted, or belongs to another node or cluster, or does not fit the node's
            other directories.
        LockedError: another process owns it.
        CorruptDataError: something durable is gone or damaged; the text names the way out (docs/damage.md).
        StorageError: the directory cannot be read.
    """
    directory = config.directory
    if config.create is not None:
        files.make_folder(directory)
    elif is_new(files, config):
        raise LocalError(_nothing_there(directory, is_empty=files.exists(directory)))
    try:
        locks = lock_folders(files, [directory])
    except LockedError as locked:
        hint = "processes of one application can share its node: kraftcore.open_or_attach"
        raise LockedError(f"{locked}; {hint}", locked.pid) from None
    try:
        if config.create is not None and is_new(files, config):
            _create(files, config, endpoints or config.listeners)
        found = load_folders(files, [directory, *config.log_directories], metadata_folder=directory)
        check_meta_properties(files, directory, log_folder(config), found)
        found.verify(cluster_id=config.cluster_id, node_id=config.node_id, require_formatted=config.create is None)
        for error in found.failed.values():
            _logger.warning("node %d goes on without a directory: %s", config.node_id, error)
        found = ensure_directory_ids(files, found, datetime.now(UTC))
        directory_id, cluster_id = found.properties[directory].directory_id, found.cluster_id
        if directory_id is None or cluster_id is None:
            raise LocalError(f"{directory}: meta.properties names no directory id or cluster id: format it again")
        return _open_log(files, config, directory_id, cluster_id, locks)
    except BaseException:
        locks.release()
        raise


def _nothing_there(directory: str, *, is_empty: bool) -> str:
    what = "is empty" if is_empty else "is not there"
    return (
        f"{directory} {what}. Of a node that ran before, it {gone(directory)}. Of a new node: format it first "
        '(kraftcore storage format), or set create (kraftcore.create) to "standalone" for the first node of a new '
        'quorum, to "join" for the others'
    )


def _open_log(files: Files, config: NodeConfig, directory_id: Uuid, cluster_id: str, locks: FolderLocks) -> Home:
    folder = log_folder(config)
    had_log = check_log_is_there(files, config, folder, directory_id)
    files.make_folder(folder)
    log = Log.open(files, folder, config.log_config(), now_ms=_now_ms())
    try:
        for text in log.recovery_actions:
            _logger.warning("node %d: %s", config.node_id, text)
        store = set_aside_damaged(files, config, log, SnapshotStore(files, folder))
        check_no_gap(log, store)
        quorum_state = QuorumStateFile(files, os.path.join(folder, QUORUM_STATE))
        check_quorum_state(config, log, store, quorum_state, had_log=had_log)
        committed = CommittedFile(files, folder)
        check_committed(config, log, store, committed)
        write_log_mark(files, config.directory, directory_id)
    except BaseException:
        log.close()
        raise
    return Home(
        ReplicaKey(config.node_id, directory_id),
        cluster_id,
        log,
        store,
        quorum_state,
        committed,
        ProbationMark(files, config.directory),
        locks,
        files,
        config.directory,
    )


def is_new(files: Files, config: NodeConfig) -> bool:
    """Whether a node's directory is empty, or was left by formatting that was interrupted.

    A directory with a log and without ``meta.properties`` is not new: a new node with that log would never lead again.

    Raises:
        StorageError: the directory cannot be read.
    """
    if not files.exists(config.directory):
        return True
    try:
        if read_meta_properties(files, config.directory) is not None:
            return False
    except CorruptDataError:
        return False  # ``open_home`` raises an error that says what is damaged, and the way out
    return not holds_more_than_formatting_leaves(files, log_folder(config))


def log_folder(config: NodeConfig) -> str:
    """The path of a node's log."""
    return os.path.join(config.directory, f"{config.topic}-0")


def format_home(
    files: Files,
    config: NodeConfig,
    key: ReplicaKey,
    cluster_id: str,
    voters: VoterSet,
    *,
    may_have_forgotten: bool = False,
) -> None:
    """Format an empty directory for a node.

    Args:
        files: where the directory is.
        config: of the node.
        key: the node's id, and the id its directory gets.
        cluster_id: of its quorum.
        voters: the quorum's first voters, the same for each of them; empty for a node that joins a quorum.
        may_have_forgotten: the node may have had another directory: a static voter is then on probation.

    Raises:
        StorageError: the disk failed; the directory still counts as empty.
    """
    records = plan_format(node_id=key.id, cluster_id=cluster_id).records
    values = [encode_metadata_record(record, 0) for record in records]
    files.make_folder(config.directory)
    remove_log_mark(files, config.directory)
    CommittedFile(files, log_folder(config)).remove()
    probation = ProbationMark(files, config.directory)
    if may_have_forgotten:
        probation.set()
    else:
        probation.clear()
    write_bootstrap_checkpoint(files, config.directory, values, _now_ms)
    if voters:
        write_initial_voters(begun_store(files, log_folder(config)), voter_entries(voters), _now_ms)
    # Last: a directory without this file counts as empty, and is formatted again.
    properties = MetaProperties(cluster_id, key.id, key.directory_id)
    write_meta_properties(files, config.directory, properties, datetime.now(UTC))


def _create(files: Files, config: NodeConfig, endpoints: tuple[Endpoint, ...]) -> None:
    key = ReplicaKey(config.node_id, Uuid.random(os.urandom))
    alone = (Voter(key, config.advertise(endpoints), VersionRange(0, 1)),)
    voters = VoterSet(alone if config.create == "standalone" else ())
    cluster_id = config.cluster_id or str(Uuid.random(os.urandom))
    is_static_voter = config.can_become_voter and config.node_id in config.voters.ids
    format_home(files, config, key, cluster_id, voters, may_have_forgotten=is_static_voter)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
