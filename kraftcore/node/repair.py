"""``kraftcore storage repair``: repairs a damaged directory when no backup is at hand, and says what is lost by it.

One damage at a time is found, shown with its remedy and what the remedy loses, and repaired if ``execute`` is set.
Files that are taken out are renamed to ``*.damaged``; records cut off the end of a log are deleted. A voter that lost
records it acknowledged, or its vote, can make others lose committed records: where other voters live, replacing the
node is the better way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from kraftcore.config import NodeConfig
from kraftcore.core.disk.files import Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log
from kraftcore.core.log.listing import LISTING_NAME
from kraftcore.core.log.recovery import SEGMENT_SUFFIXES
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, DamagedLogError, LocalError
from kraftcore.namespace import listing
from kraftcore.node.damage import (
    DAMAGED_SUFFIX,
    check_committed,
    check_log_is_there,
    check_meta_properties,
    check_no_gap,
    check_quorum_state,
    end_of,
    holds_log,
    latest_voters,
    list_if_there,
    lower_committed,
    set_aside_damaged,
    state_after,
)
from kraftcore.node.home import log_folder
from kraftcore.protocol.election_state import ElectionState
from kraftcore.storage.committed import COMMITTED, CommittedFile
from kraftcore.storage.lock import lock_folders
from kraftcore.storage.log_mark import read_log_mark
from kraftcore.storage.meta_properties import META_PROPERTIES, MetaProperties, load_folders, write_meta_properties
from kraftcore.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from kraftcore.storage.snapshot_batches import verify_snapshot
from kraftcore.storage.snapshots import SnapshotStore

__all__ = ["Damage", "repair"]
__dir__ = listing(__all__)

_STEPS_MAX = 100  # each repair removes a file or records, so a few suffice


@dataclass(frozen=True)
class Damage:
    """A damage that keeps a node from starting.

    Attributes:
        what: text of the error that the start raises.
        remedy: what ``mend`` does, in words; None: this command cannot repair the damage.
        loses: what the remedy loses, in words.
        mend: carries the remedy out.
    """

    what: str
    remedy: str | None = None
    loses: str = "nothing"
    mend: Callable[[], None] = lambda: None


def repair(
    config: NodeConfig,
    tell: Callable[[Damage], None],
    *,
    execute: bool = False,
    cluster_id: str | None = None,
    directory_id: Uuid | None = None,
    files: Files | None = None,
) -> bool:
    """Look for damage in a node's directory, and repair it if ``execute`` is set.

    Looking recovers the log as a start does: an incomplete batch at its end, never acknowledged, is cut off.

    Args:
        config: of the node; its ``create`` is ignored.
        tell: gets each damage before it is repaired.
        execute: repair; else only the first damage is reported, for others may show only after it is repaired.
        cluster_id: for a new ``meta.properties``.
        directory_id: for a new ``meta.properties``; None: the id this directory is known to have had, or the one that
            the voter set names.
        files: where the directory is; None: the operating system's files.

    Returns:
        Whether the directory is without damage now.

    Raises:
        LocalError: there is no directory, or it is not formatted; or the cluster id is needed and missing.
        LockedError: a node runs there.
        StorageError: the disk failed.
    """
    disk = OsFiles() if files is None else files
    if not disk.exists(config.directory):
        raise LocalError(f"{config.directory} is not there")
    with lock_folders(disk, [config.directory]):
        work = _Repair(config, disk, cluster_id, directory_id)
        for _ in range(_STEPS_MAX):
            found = work.look()
            if found is None:
                return True
            tell(found)
            if not execute or found.remedy is None:
                return False
            found.mend()
    raise LocalError(f"{config.directory}: the same damage shows again and again; this is beyond repair")


class _Repair:
    def __init__(self, config: NodeConfig, files: Files, cluster_id: str | None, directory_id: Uuid | None) -> None:
        self.config = config
        self.files = files
        self.folder = log_folder(config)
        self.cluster_id = cluster_id
        self.directory_id = directory_id

    def look(self) -> Damage | None:
        """The first damage found, or None; further damage may be its consequence."""
        directory = self.config.directory
        has_log = holds_log(self.files, self.folder)
        found = load_folders(self.files, [directory], metadata_folder=directory)
        try:
            check_log_is_there(self.files, self.config, self.folder, read_log_mark(self.files, directory))
        except CorruptDataError as error:
            return self._no_log(error)
        if has_log:
            damage = self._look_at_log()
            if damage is not None:
                return damage
        elif found.unformatted:
            raise LocalError(f"{directory} is not formatted: there is nothing to repair")
        try:
            check_meta_properties(self.files, directory, self.folder, found)
        except CorruptDataError as error:
            return self._meta_properties(error) if has_log else Damage(str(error))
        found.verify(cluster_id=self.config.cluster_id, node_id=self.config.node_id)
        return None

    def _look_at_log(self) -> Damage | None:
        try:
            log = self._open()
        except DamagedLogError as error:
            return self._damaged_log(error)
        except CorruptDataError as error:
            path = error.path or self.folder
            return Damage(str(error), f"rename {os.path.basename(path)}", mend=partial(self._set_aside, [path]))
        with log:
            try:
                store = set_aside_damaged(self.files, self.config, log, SnapshotStore(self.files, self.folder))
            except CorruptDataError as error:
                return Damage(str(error))
            try:
                check_no_gap(log, store)
            except CorruptDataError as error:
                return self._gap(error, log, store)
            file = QuorumStateFile(self.files, os.path.join(self.folder, QUORUM_STATE))
            try:
                had_log = read_log_mark(self.files, self.config.directory) is not None
                check_quorum_state(self.config, log, store, file, had_log=had_log)
            except CorruptDataError as error:
                state = state_after(log, store)
                return Damage(
                    str(error),
                    f"write it anew: epoch {state.epoch}, the one after the last that has records, and no vote",
                    "whom this node voted for since: be sure that no other voter ran for leader after that epoch",
                    partial(self._quorum_state, file, state),
                )
            committed = CommittedFile(self.files, self.folder)
            try:
                check_committed(self.config, log, store, committed)
            except CorruptDataError as error:
                return self._committed(error, log, store, committed)
        return None

    def _open(self, *, cut: bool = False) -> Log:
        now_ms = time.time_ns() // 1_000_000
        return Log.open(self.files, self.folder, self.config.log_config(), now_ms=now_ms, repair=cut)

    # --- the log ------------------------------------------------------------------------------------------------------

    def _damaged_log(self, error: DamagedLogError) -> Damage:
        segments = self._segments()
        end_offset = self._intact_snapshot_end()
        behind = [base for base in segments if base > error.offset]
        if behind and behind[0] <= end_offset:
            before = [path for base in segments if base < behind[0] for path in self._files_of(base)]
            remedy = f"let the log begin at offset {behind[0]}: rename " + ", ".join(map(os.path.basename, before))
            listing = os.path.join(self.folder, LISTING_NAME)
            mend = partial(self._set_aside, [*before, listing])
            return Damage(str(error), remedy, f"nothing: a snapshot up to {end_offset} holds these records", mend)
        remedy = f"cut the log at offset {error.offset}"
        if behind:
            remedy += f", and delete {', '.join(f'{base:020d}.log' for base in behind)}"
        first = max(error.offset, end_offset)
        loses = f"the records from offset {first} on"
        if error.durable_offset is not None and error.durable_offset > first:
            loses += f", at least up to {error.durable_offset - 1}"
        return Damage(str(error), remedy, loses, self._cut)

    def _no_log(self, error: CorruptDataError) -> Damage:
        end_offset = self._intact_snapshot_end()
        if not end_offset:
            return Damage(str(error))
        remedy = f"begin an empty log behind the snapshot up to {end_offset}"
        return Damage(str(error), remedy, f"the records from offset {end_offset} on", self._begin_behind_snapshot)

    def _begin_behind_snapshot(self) -> None:
        with self._open() as log:
            self._lower_committed(log)

    def _cut(self) -> None:
        with self._open(cut=True) as log:
            self._lower_committed(log)

    def _lower_committed(self, log: Log) -> None:
        # Records that the operator has cut off are lost, committed or not: the next start must not ask for them.
        lower_committed(log, SnapshotStore(self.files, self.folder), CommittedFile(self.files, self.folder))

    def _committed(self, error: CorruptDataError, log: Log, store: SnapshotStore, file: CommittedFile) -> Damage:
        try:
            known = file.read()
        except CorruptDataError:
            known = None
        if known is None:
            loses = "the memory of what was committed: a leader that lacks committed records would not be refused"
            return Damage(str(error), f"rename {COMMITTED}", loses, partial(self._set_aside, [file.path]))
        end = end_of(log, store)
        lost = f"the records from offset {end.offset} to {known.offset - 1}" if end.offset < known.offset else "records"
        return Damage(
            str(error),
            f"go on with what is here, up to offset {end.offset}",
            f"{lost}, which were committed: other voters have them",
            partial(lower_committed, log, store, file),
        )

    def _gap(self, error: CorruptDataError, log: Log, store: SnapshotStore) -> Damage:
        latest = store.latest
        if latest is None or latest.end_offset == 0:
            return Damage(str(error))
        paths = [path for base in self._segments() for path in self._files_of(base)]
        remedy = f"go back to the snapshot up to {latest.end_offset}: rename " + ", ".join(map(os.path.basename, paths))
        loses = f"the records from offset {latest.end_offset} to {log.log_end_offset - 1}"
        return Damage(str(error), remedy, loses, partial(self._go_back, paths))

    def _go_back(self, paths: list[str]) -> None:
        self._set_aside([*paths, os.path.join(self.folder, LISTING_NAME)])
        self._begin_behind_snapshot()

    def _segments(self) -> list[int]:
        names = list_if_there(self.files, self.folder)
        return sorted(int(name[:20]) for name in names if name.endswith(".log") and name[:-4].isdecimal())

    def _files_of(self, base: int) -> list[str]:
        paths = (os.path.join(self.folder, f"{base:020d}{suffix}") for suffix in SEGMENT_SUFFIXES)
        return [path for path in paths if self.files.exists(path)]

    def _intact_snapshot_end(self) -> int:
        if not self.files.exists(self.folder):
            return 0
        store = SnapshotStore(self.files, self.folder)
        for snapshot_id in reversed(store.ids):
            try:
                with store.open(snapshot_id) as raw:
                    verify_snapshot(raw)
            except CorruptDataError:
                continue
            return snapshot_id.end_offset
        return 0

    # --- small files --------------------------------------------------------------------------------------------------

    def _set_aside(self, paths: list[str]) -> None:
        for path in paths:
            if self.files.exists(path):
                self.files.rename(path, path + DAMAGED_SUFFIX)
        self.files.sync_folder(self.folder)

    def _quorum_state(self, file: QuorumStateFile, state: ElectionState) -> None:
        self._set_aside([file.path])
        file.write(state)

    def _meta_properties(self, error: CorruptDataError) -> Damage:
        directory_id, why = self._find_directory_id()
        cluster = self.cluster_id or "(give --cluster-id)"
        remedy = (
            f"write it anew: cluster.id={cluster}, node.id={self.config.node_id}, directory.id={directory_id} ({why})"
        )
        return Damage(str(error), remedy, mend=partial(self._write_meta_properties, directory_id))

    def _find_directory_id(self) -> tuple[Uuid, str]:
        if self.directory_id is not None:
            return self.directory_id, "as asked for"
        mark = read_log_mark(self.files, self.config.directory)
        if mark is not None:
            return mark, "what this directory had"
        with self._open() as log:
            voters = latest_voters(self.config, log, SnapshotStore(self.files, self.folder))
        own = voters.get(self.config.node_id)
        if own is not None and own.key.has_directory:
            return own.key.directory_id, "of this node's entry among the voters: right unless its disk was replaced"
        return Uuid.random(os.urandom), "a new one: the voter set names none"

    def _write_meta_properties(self, directory_id: Uuid) -> None:
        if self.cluster_id is None:
            raise LocalError("meta.properties needs the quorum's cluster id: give --cluster-id (cluster_id)")
        directory = self.config.directory
        path = os.path.join(directory, META_PROPERTIES)
        if self.files.exists(path):
            self.files.rename(path, path + DAMAGED_SUFFIX)
        properties = MetaProperties(self.cluster_id, self.config.node_id, directory_id)
        write_meta_properties(self.files, directory, properties, datetime.now(UTC))
