"""The checks of a node's directory before the node takes part: damage is repaired if harmless, else stops the start.

A voter that lost records it acknowledged, or its vote, can make others lose committed records. So anything that shows
that something durable is gone stops the start with an error that names the way out; docs/damage.md has each case. Files
whose content is held elsewhere, or derived from other files, are repaired here, with a line in the log.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator

from kraftcore.config import NodeConfig
from kraftcore.core.batch import RecordBatch
from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.log.listing import LISTING_NAME
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.protocol.election_state import ElectionState
from kraftcore.raft.control_records import control_batches, first_batch, voter_changes
from kraftcore.raft.quorum import VoterSet
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.log_mark import read_log_mark
from kraftcore.storage.meta_properties import META_PROPERTIES, NodeFolders
from kraftcore.storage.quorum_state import QuorumStateFile
from kraftcore.storage.snapshot_batches import verify_snapshot
from kraftcore.storage.snapshots import BOOTSTRAP_SNAPSHOT_ID, SUFFIX, SnapshotId, SnapshotStore

DAMAGED_SUFFIX = ".damaged"
PAGE = "docs/damage.md"
_logger = logging.getLogger("kraftcore.node")
_LOG_SUFFIX = ".log"
_FORMAT = "kraftcore storage format --no-initial-controllers"
_ALONE = (
    f"replace this node as after a lost disk (move the directory away, then {_FORMAT}); if there is no quorum without "
    "it, restore a backup"
)
_REPLACE = f"{_ALONE} ({PAGE})"
_REPAIR = f"{_ALONE}, or see what mending would lose: kraftcore storage repair ({PAGE})"


def what_stopped(files: Files, directory: str, error: BaseException) -> str:
    """Why a node stopped, for people: of a disk's failure also what became of the directory, and what to do.

    Args:
        files: where the directory is.
        directory: path of the node's directory.
        error: that stopped the node.
    """
    if not isinstance(error, StorageError):
        return str(error)
    text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if not files.exists(directory):
        return f"{text}; the node's directory {directory} {gone(directory)}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{text}; make room on the disk of {directory}, then start the node again: nothing is lost by this"
    if error.errno == errno.ENOENT:
        return f"{text}; somebody removed it while the node ran. Start the node again: it says what is missing ({PAGE})"
    return f"{text}; the disk of {directory} failed. Start the node again if it is well; else {_ALONE} ({PAGE})"


def gone(directory: str) -> str:
    """What a node's directory that is not there may mean, and what to do: the end of a sentence."""
    return (
        f"is gone: if its disk is not mounted, mount it; if it is lost, format {directory} anew, as a node that joins "
        f"the others ({_FORMAT}; {PAGE}, Lost disks)"
    )


def check_meta_properties(files: Files, directory: str, folder: str, found: NodeFolders) -> None:
    """A directory with a log must have a `meta.properties` that names its node and cluster.

    Args:
        files: where the directory is.
        directory: path of the node's directory.
        folder: path of its log.
        found: the ``meta.properties`` of all directories of the node.

    Raises:
        CorruptDataError: the file is missing, damaged or incomplete.
        StorageError: the file cannot be read.
    """
    path = os.path.join(directory, META_PROPERTIES)
    properties = found.properties.get(directory)
    if properties is not None and properties.cluster_id is not None and properties.node_id is not None:
        return
    has_log = holds_log(files, folder)
    way = (
        f"put it back from a backup, or have it written from the log: kraftcore storage repair --cluster-id ID ({PAGE})"
    )
    if properties is not None:
        reason = "names no cluster.id or no node id"
    elif directory in found.failed:
        error = found.failed[directory]
        if not isinstance(error, CorruptDataError):
            raise error
        reason = error.reason
    elif has_log:
        reason = "is missing, though this directory holds a log; formatting it again would make another node of it"
    else:
        return
    if not has_log:
        way = "there is no log here: delete it, then format the directory again (kraftcore storage format)"
    raise CorruptDataError(f"{reason}: {way}", path=path)


def holds_log(files: Files, folder: str) -> bool:
    """Whether a log's folder has a segment or a snapshot, whole or damaged."""
    return any(name.endswith((_LOG_SUFFIX, SUFFIX)) for name in list_if_there(files, folder))


def holds_more_than_formatting_leaves(files: Files, folder: str) -> bool:
    """Whether a log's folder has a segment, or a snapshot besides the 0-0 checkpoint."""
    names = (name for name in list_if_there(files, folder) if name != BOOTSTRAP_SNAPSHOT_ID.file_name)
    return any(name.endswith((_LOG_SUFFIX, SUFFIX)) for name in names)


def list_if_there(files: Files, folder: str) -> list[str]:
    """The names in a folder; empty if the folder is missing."""
    return files.list_folder(folder) if files.exists(folder) else []


def check_log_is_there(files: Files, config: NodeConfig, folder: str, directory_id: Uuid | None) -> bool:
    """A directory that held a log must hold it still.

    Args:
        files: where the directory is.
        config: of the node.
        folder: path of the log.
        directory_id: of the directory; None: unknown.

    Returns:
        Whether the directory held a log at an earlier start of kraftcore. An observer (``can_become_voter`` is False)
        acknowledges nothing: its log may be missing and is fetched again, and False is returned.

    Raises:
        CorruptDataError: the folder or every segment is gone.
    """
    if directory_id is None or read_log_mark(files, config.directory) != directory_id:
        return False
    names = list_if_there(files, folder)
    if LISTING_NAME in names or any(name.endswith(_LOG_SUFFIX) for name in names):
        return True  # the log's own listing of segments finds out whether some are missing
    if not config.can_become_voter:
        _logger.warning("node %d: %s holds no log any more; it is fetched again", config.node_id, folder)
        return False
    what, way = ("holds no segment of the log any more", _REPAIR) if names else ("is missing", _REPLACE)
    raise CorruptDataError(f"{what}; this node would forget what it acknowledged and voted: {way}", path=folder)


def set_aside_damaged(files: Files, config: NodeConfig, log: Log, store: SnapshotStore) -> SnapshotStore:
    """Read all snapshots; rename damaged ones whose records other snapshots and the log hold, too.

    Args:
        files: where the directory is.
        config: of the node.
        log: the node's log.
        store: the snapshots.

    Returns:
        The snapshots that are left; ``store`` itself if that is all of them.

    Raises:
        CorruptDataError: a damaged snapshot holds records that nothing else here holds.
    """
    damaged = {}
    for snapshot_id in store.ids:
        try:
            with store.open(snapshot_id) as raw:
                verify_snapshot(raw)
        except CorruptDataError as error:
            damaged[snapshot_id] = error
    if not damaged:
        return store
    intact = [each for each in store.ids if each not in damaged]
    for snapshot_id, fault in damaged.items():
        path = store.path(snapshot_id)
        if not _is_held_elsewhere(config, log, intact, snapshot_id):
            raise CorruptDataError(f"{fault.reason}; nothing else here holds these records: {_REPLACE}", path=path)
        files.rename(path, path + DAMAGED_SUFFIX)
        _logger.warning(
            "node %d: %s; renamed to %s%s: other snapshots and the log hold all that was in it",
            *(config.node_id, fault, os.path.basename(path), DAMAGED_SUFFIX),
        )
    files.sync_folder(store.folder)
    return SnapshotStore(files, store.folder)


def _is_held_elsewhere(config: NodeConfig, log: Log, intact: list[SnapshotId], damaged: SnapshotId) -> bool:
    if any(each.end_offset > damaged.end_offset for each in intact):
        return True
    before = max((each.end_offset for each in intact), default=0)
    if damaged.end_offset > log.log_end_offset or log.log_start_offset > before:
        return False
    # If only the log is left, the first voters must be in it, too, unless they are static.
    return bool(intact or config.voters or any(voters for _, voters in _changes(control_batches(log, 0))))


def check_no_gap(log: Log, store: SnapshotStore) -> None:
    """The records below the log's start must be in a snapshot.

    Raises:
        CorruptDataError: there is no snapshot, or the newest one ends below the log's start.
    """
    latest = store.latest
    end_offset = 0 if latest is None else latest.end_offset
    if end_offset < log.log_start_offset:
        what = f"the newest snapshot ends at {end_offset}" if end_offset else "no snapshot is there"
        raise CorruptDataError(
            f"the log starts at offset {log.log_start_offset}, but {what}: the records before are gone: {_REPAIR}",
            path=log.folder,
        )


def check_quorum_state(
    config: NodeConfig, log: Log, store: SnapshotStore, file: QuorumStateFile, *, had_log: bool
) -> None:
    """A voter must know whom it voted for.

    Args:
        config: of the node.
        log: its log.
        store: its snapshots.
        file: the ``quorum-state``.
        had_log: the result of ``check_log_is_there``: kraftcore had this log open before, and so wrote the file.

    Raises:
        CorruptDataError: the file is damaged; or it is missing, and other voters may count on this one's vote.
    """
    try:
        state = file.read()
    except CorruptDataError as error:
        raise CorruptDataError(f"{error.reason}: {_REPAIR}", path=file.path) from None
    is_empty = log.log_end_offset == 0 and (store.latest is None or store.latest.end_offset == 0)
    if state is not None or is_empty or not had_log:
        return
    if config.can_become_voter and latest_voters(config, log, store).ids - {config.node_id}:
        raise CorruptDataError(f"is missing: this node may have voted, and would vote again: {_REPAIR}", path=file.path)
    _logger.warning("node %d: %s is missing; going on from the log's last epoch", config.node_id, file.path)


def check_committed(config: NodeConfig, log: Log, store: SnapshotStore, file: CommittedFile) -> None:
    """Log and snapshots must hold all records that are known to be committed.

    Args:
        config: of the node.
        log: its log.
        store: its snapshots.
        file: the ``kraftcore-committed``.

    Raises:
        CorruptDataError: the file is damaged; or log and snapshots end below the offset in it, or hold another epoch
            there. An observer acknowledges nothing: its log may end below, and the file is lowered.
    """
    try:
        known = file.read()
    except CorruptDataError as error:
        raise CorruptDataError(f"{error.reason}: {_REPAIR}", path=file.path) from None
    if known is None or reaches(log, store, known):
        return
    end = end_of(log, store)
    if not config.can_become_voter:
        _logger.warning("node %d: its log ends at %d; it is fetched again from there", config.node_id, end.offset)
        lower_committed(log, store, file)
        return
    raise CorruptDataError(
        f"everything below {known.offset} is known to be committed, with epoch {known.epoch} at its end, but what is "
        f"here ends at {end.offset} in epoch {end.epoch}: {_REPAIR}",
        path=file.path,
    )


def reaches(log: Log, store: SnapshotStore, known: OffsetAndEpoch) -> bool:
    """Whether log and snapshots hold everything below an offset, with the record of its epoch at the end."""
    latest = store.latest
    if latest is not None and latest.end_offset >= known.offset:
        return latest.epoch >= known.epoch
    if log.log_end_offset < known.offset:
        return False
    return known.offset <= log.log_start_offset or log.epoch_at(known.offset - 1) in (None, known.epoch)


def end_of(log: Log, store: SnapshotStore) -> OffsetAndEpoch:
    """Where log and snapshots end, and the epoch of the last record."""
    latest = store.latest
    if latest is not None and latest.end_offset >= log.log_end_offset:
        return OffsetAndEpoch(latest.end_offset, latest.epoch)
    return OffsetAndEpoch(log.log_end_offset, log.last_epoch or 0)


def lower_committed(log: Log, store: SnapshotStore, file: CommittedFile) -> None:
    """Lower the offset in the file of committed records to the end of log and snapshots.

    Raises:
        StorageError: the disk failed.
    """
    try:
        known = file.read()
    except CorruptDataError:
        known = None
    if known is not None and reaches(log, store, known):
        return
    end = end_of(log, store)
    if known is not None and 0 < end.offset < known.offset and end.epoch <= known.epoch:
        file.write(end)  # all records that are left lie below the offset that was known
    else:
        file.remove()


def latest_voters(config: NodeConfig, log: Log, store: SnapshotStore) -> VoterSet:
    """The voter set in force, from the newest snapshot and the log; the static one if neither names any."""
    found = [voters for _, voters in _changes(_control(log, store)) if voters is not None]
    return found[-1] if found else config.voters


def state_after(log: Log, store: SnapshotStore) -> ElectionState:
    """The election state in place of a lost ``quorum-state``: the epoch after that of the last record, and no vote."""
    versions = [version for version, _ in _changes(_control(log, store)) if version is not None]
    epoch = max(log.last_epoch or 0, store.latest.epoch if store.latest else 0)
    return ElectionState(epoch + 1, kraft_version=max(versions, default=0))


def _control(log: Log, store: SnapshotStore) -> Iterator[RecordBatch]:
    latest = store.latest
    if latest is not None:
        yield first_batch(store, latest)
    yield from control_batches(log, max(log.log_start_offset, latest.end_offset if latest else 0))


def _changes(batches: Iterable[RecordBatch]) -> Iterator[tuple[int | None, VoterSet | None]]:
    for batch in batches:
        for _, version, voters in voter_changes(batch):
            yield version, voters
