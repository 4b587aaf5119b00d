"""The state that metadata gave at some offset: read from a snapshot, from a node's directory, or from a live quorum."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import click
import trio

from kraftcore.cli.admin_tool import Connection
from kraftcore.cli.metadata_words import record_fields
from kraftcore.cli.observe_run import catch_up, show_progress
from kraftcore.cli.output import is_terminal, printable
from kraftcore.cli.waiting import telling
from kraftcore.core.batch import RecordBatch
from kraftcore.core.disk.files import File, Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import (
    CorruptBatchError,
    CorruptDataError,
    LocalError,
    NodeStoppedError,
    RemoteProtocolError,
    UnreachableError,
)
from kraftcore.metadata import Image
from kraftcore.observer import Observer, Snapshot
from kraftcore.observer import observe as open_observer
from kraftcore.ports.nursery import open_nursery
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.protocol.registry import MetadataRecordType
from kraftcore.raft.control_records import voter_changes, voter_entries
from kraftcore.storage.backup_note import BackupNote
from kraftcore.storage.meta_properties import METADATA_PARTITION, read_meta_properties
from kraftcore.storage.snapshot_batches import SnapshotReader, SnapshotWriter, read_batches
from kraftcore.storage.snapshots import SUFFIX, RawSnapshotReader, SnapshotId, SnapshotStore, parse_name

_LOG = ".log"
_LENGTH_END = 12  # a batch's base offset and length


@dataclass
class State:
    """The state of a cluster at one offset; grows by batches.

    Attributes:
        source: where it was read, for people.
        image: of all records below ``end_offset``; those of an open metadata transaction count once it ends.
        end_offset: exclusive.
        epoch: leader epoch of the last record.
        cluster_id: None: unknown.
        kraft_version: the level in force.
        voters: the voter set in force, or None.
        timestamp_ms: of the last record.
    """

    source: str
    image: Image = field(default_factory=Image)
    end_offset: int = 0
    epoch: int = 0
    cluster_id: str | None = None
    kraft_version: int = 0
    voters: tuple[VotersRecord.Voter, ...] | None = None
    timestamp_ms: int = 0

    def restore(self, reader: SnapshotReader, snapshot_id: SnapshotId) -> None:
        """Take the state of a snapshot in place of all that was applied."""
        self.image = Image()
        try:
            for batch in reader.batches():
                self.image.apply_values(batch.values())
        except RemoteProtocolError as error:
            raise _no_metadata(self.source, error) from None
        self.end_offset, self.epoch = snapshot_id
        self.kraft_version, self.voters = reader.kraft_version, reader.voters
        self.timestamp_ms = reader.last_contained_log_timestamp_ms

    def apply(self, batch: RecordBatch, until: int | None = None) -> None:
        """Apply the records of a batch of the log, as far as they lie below ``until``."""
        end = batch.next_offset if until is None else min(until, batch.next_offset)
        if batch.is_control:
            for offset, version, voters in voter_changes(batch):
                if version is not None and offset < end:
                    self.kraft_version = version
                if voters is not None and offset < end:
                    self.voters = tuple(voter_entries(voters))
        else:
            try:
                self.image.apply_values(batch.values()[: end - batch.base_offset], batch.base_offset)
            except RemoteProtocolError as error:
                raise _no_metadata(self.source, error) from None
        self.end_offset, self.epoch = end, batch.leader_epoch
        self.timestamp_ms = max(self.timestamp_ms, batch.max_timestamp_ms)


def _no_metadata(source: str, error: Exception) -> LocalError:
    return LocalError(
        f"{source} holds records that this release does not take for a cluster's metadata: {error}. Of an "
        "application's own log keep a copy of a directory instead (docs/damage.md, Backup)"
    )


# --- files ------------------------------------------------------------------------------------------------------------


def read_snapshot(path: str) -> State:
    """The state in a snapshot's file, Kafka's or a backup; every batch's checksum is compared.

    Raises:
        LocalError: the name is not a snapshot's, or contradicts the backup's note.
        CorruptDataError, StorageError: it cannot be read, or is not complete.
    """
    files = OsFiles()
    name = parse_name(os.path.basename(path))
    if name is None or name.suffix != SUFFIX:
        raise LocalError(
            f"{path}: a snapshot is named <offset>-<epoch>{SUFFIX}, as {SnapshotId(123, 4).file_name}: give the file "
            "its own name again"
        )
    with SnapshotReader(RawSnapshotReader(name.id, files.open(path, read_only=True))) as reader:
        _check_complete(reader.raw.file)
        state = State(path)
        note = BackupNote.decode(next(reader.values(), None), path)
        if note is not None:
            _check_note(note, reader, name.id, path)
            state.cluster_id = note.cluster_id
        state.restore(reader, name.id)
    return state


def _check_complete(file: File) -> None:
    """The offsets in a snapshot follow each other: no batch was taken out."""
    expected = 0
    for position, batch in read_batches(file):
        if batch.base_offset != expected:
            raise CorruptDataError(
                f"a batch with offset {batch.base_offset} follows, where {expected} is due: something is missing",
                position=position,
                path=file.path,
            )
        expected = batch.next_offset


def _check_note(note: BackupNote, reader: SnapshotReader, snapshot_id: SnapshotId, path: str) -> None:
    if (note.end_offset, note.epoch) != snapshot_id:
        own = SnapshotId(note.end_offset, note.epoch)
        raise LocalError(f"{path}: this backup is {own.file_name}, and was renamed: give it that name again")
    records = sum(batch.count for batch in reader.batches()) - 1
    if records != note.records:
        raise CorruptDataError(f"holds {records} records, {note.records} were written", path=path)


def read_directory(path: str, until: int | None = None) -> State:
    """The state that a node's directory, or a mirror, holds at an offset; nothing there is locked or changed.

    Args:
        path: the directory, or the log's folder in it.
        until: everything below this offset counts; None: all records there are, committed or not.

    Raises:
        LocalError: there is no metadata log, or it does not reach to ``until``, or no more back to it.
        CorruptDataError, StorageError: it cannot be read.
    """
    files = OsFiles()
    folder = partition_folder(path)
    names = sorted(os.listdir(folder))
    state = State(path if until is None else f"{path}@{until}")
    known = read_meta_properties(files, os.path.dirname(folder))
    state.cluster_id = None if known is None else known.cluster_id or None
    snapshots = [found.id for name in names if (found := parse_name(name)) and found.suffix == SUFFIX]
    fitting = [each for each in snapshots if until is None or each.end_offset <= until]
    segments = _segments(folder)
    if not snapshots and not segments:
        raise LocalError(f"{path} holds no metadata log: give a node's directory, or its {METADATA_PARTITION}")
    if fitting:
        latest = max(fitting)
        file = files.open(os.path.join(folder, latest.file_name), read_only=True)
        with SnapshotReader(RawSnapshotReader(latest, file)) as reader:
            state.restore(reader, latest)
    for batch in _batches(files, folder, segments, state.end_offset):
        if until is not None and batch.base_offset >= until:
            break
        if batch.base_offset > state.end_offset:
            raise LocalError(
                f"{path}: the records from {state.end_offset} to {batch.base_offset} are in no file any more"
                + (f": the earliest offset to ask for is {min(snapshots).end_offset}" if snapshots else "")
            )
        state.apply(batch, until)
    if until is not None and state.end_offset < until:
        raise LocalError(f"{path}: the log ends at offset {state.end_offset}, before {until}")
    return state


def partition_folder(path: str) -> str:
    """The folder of the metadata log in a node's directory; the path itself, if it is that folder."""
    folder = os.path.join(path, METADATA_PARTITION)
    return folder if os.path.isdir(folder) else os.path.normpath(path)


def _segments(folder: str) -> list[str]:
    names = sorted(os.listdir(folder))
    return [name for name in names if name.endswith(_LOG) and name.removesuffix(_LOG).isdecimal()]


def _batches(files: Files, folder: str, segments: list[str], start: int) -> Iterator[RecordBatch]:
    """The batches from an offset on. Half a batch at the end is left out: a node may be writing it now."""
    bases = [int(name.removesuffix(_LOG)) for name in segments]
    for at, name in enumerate(segments):
        is_last = at + 1 == len(segments)
        if not is_last and bases[at + 1] <= start:
            continue
        with files.open(os.path.join(folder, name), read_only=True) as file:
            try:
                for _, batch in read_batches(file):
                    if batch.next_offset > start:
                        yield batch
            except CorruptBatchError as error:
                if not (is_last and _is_half(file, error.position)):
                    raise


def _is_half(file: File, position: int) -> bool:
    head = file.read_at(position, _LENGTH_END)
    return len(head) < _LENGTH_END or int.from_bytes(head[8:], signed=True) > file.size() - position - _LENGTH_END


# --- a live quorum ----------------------------------------------------------------------------------------------------


T = TypeVar("T")


def observe_state(connection: Connection) -> State:
    """The state of a live quorum: of all that is committed now, and of no metadata transaction's half.

    Raises:
        KraftError: nobody answers, or the log is no cluster's metadata; see `kraftcore.observe`.
    """

    async def done(observer: Observer, state: State) -> State:
        return state

    return _observing(connection, done)


def follow_state(connection: Connection, use: Callable[[State, str], T]) -> T:
    """Run a function in a thread while a state follows a live quorum, and return what it returns.

    Args:
        connection: to the quorum.
        use: gets the state, and the directory in which the log is. It may look at the state only in functions that
            it hands to ``trio.from_thread.run_sync``, between which the state changes.

    Raises:
        KraftError: as `observe_state`, also later.
    """

    async def followed(observer: Observer, state: State) -> T:
        async with open_nursery() as nursery:
            nursery.start_soon(_follow, observer, state)
            used = await trio.to_thread.run_sync(use, state, observer.directory, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()
        return used

    return _observing(connection, followed)


def _observing(connection: Connection, use: Callable[[Observer, State], Awaitable[T]]) -> T:
    try:
        return trio.run(_observe, connection, use)
    except UnreachableError as error:
        raise click.ClickException(printable(f"no controller answers: {error.last_failure}")) from None


async def _observe(connection: Connection, use: Callable[[Observer, State], Awaitable[T]]) -> T:
    try:
        async with (
            telling() as watch,
            open_observer(
                connection.controllers,
                tls=connection.tls(),
                sasl=connection.sasl(),
                timing=connection.timing(),
                watch=watch,
            ) as observer,
        ):
            async with open_nursery() as nursery:
                nursery.start_soon(catch_up, observer, watch)
                if is_terminal(sys.stderr):
                    nursery.start_soon(show_progress, observer)
                state = await _committed(observer, ",".join(connection.controllers))
                nursery.cancel_scope.cancel()
            return await use(observer, state)
    except NodeStoppedError as error:
        raise error.__cause__ or error from None


async def _follow(observer: Observer, state: State) -> None:
    async for item in observer.batches(state.end_offset):
        if isinstance(item, Snapshot):
            with item.open() as reader:
                state.restore(reader, SnapshotId(item.end_offset, item.epoch))
        else:
            state.apply(item)


async def _committed(observer: Observer, source: str) -> State:
    state = State(source, cluster_id=observer.cluster_id)
    end = await observer.caught_up()
    if not end:
        raise LocalError(f"{source}: the quorum has committed nothing yet")
    async for item in observer.batches():
        if isinstance(item, Snapshot):
            with item.open() as reader:
                state.restore(reader, SnapshotId(item.end_offset, item.epoch))
        else:
            state.apply(item)
        if state.end_offset >= end and not state.image.in_transaction:
            break
    return state


# --- backups ----------------------------------------------------------------------------------------------------------


class Backup(NamedTuple):
    """A backup that is there now.

    Attributes:
        path: of the file.
        records: number of records in it, without the note.
        existed: whether it was there before.
    """

    path: str
    records: int
    existed: bool


def write_backup(state: State, directory: str) -> Backup:
    """Write a state as a snapshot with a note, and read it again; durable when it returns.

    Raises:
        LocalError: there is a backup of that name of another cluster.
        CorruptDataError: what was written, or was there, cannot be read.
        StorageError: the disk failed; there is no new file.
    """
    store = SnapshotStore(OsFiles(), directory)
    snapshot_id = SnapshotId(state.end_offset, state.epoch)
    path = store.path(snapshot_id)
    values = list(state.image.freeze().values())
    if snapshot_id in store:
        known = read_snapshot(path)
        if known.cluster_id != state.cluster_id:
            raise LocalError(
                f"{path} is there already, of cluster {known.cluster_id or '(not named)'}; this is {state.cluster_id}: "
                "give each cluster's backups a directory of their own"
            )
        return Backup(path, len(values), existed=True)
    note = BackupNote(state.cluster_id or "", state.end_offset, state.epoch, len(values))
    with SnapshotWriter(
        store.create(snapshot_id),
        now_ms=state.timestamp_ms,
        last_contained_log_timestamp_ms=state.timestamp_ms,
        kraft_version=state.kraft_version,
        voters=state.voters if state.kraft_version else None,
    ) as writer:
        writer.append([note.encode(), *values], state.timestamp_ms)
        writer.freeze(state.timestamp_ms)
    if read_snapshot(path).cluster_id != (state.cluster_id or ""):
        raise CorruptDataError("was written, and reads as another cluster's: do not use it", path=path)
    return Backup(path, len(values), existed=False)


# --- the log ----------------------------------------------------------------------------------------------------------


def offset_at(path: str, timestamp_ms: int) -> int:
    """The offset below which a directory's log has everything that was written until a moment.

    Raises:
        LocalError: the log does not go back to it.
    """
    files = OsFiles()
    folder = partition_folder(path)
    until = None
    for batch in _batches(files, folder, _segments(folder), 0):
        if batch.max_timestamp_ms > timestamp_ms:
            break
        until = batch.next_offset
    if until is None:
        raise LocalError(f"the log in {path} does not go back to this moment")
    return until


def records_below(path: str, end: int, count: int, topic: tuple[str, str] | None) -> list[dict[str, object]]:
    """The last records of a directory's log below an offset, as objects of ``dump-log``, but for secrets.

    Args:
        path: the directory.
        end: exclusive.
        count: how many at most.
        topic: name and id of a topic: only records that name it; None: all.
    """
    files = OsFiles()
    folder = partition_folder(path)
    found: deque[dict[str, object]] = deque(maxlen=max(count, 0))
    for batch in _batches(files, folder, _segments(folder), 0):
        if batch.base_offset >= end:
            break
        for record in () if batch.is_control else batch:
            try:
                body, version = decode_metadata_record(record.value or b"")
            except RemoteProtocolError:
                continue
            data = record_fields(body, version)
            if topic is None or set(_texts(data)) & set(topic):
                kind = MetadataRecordType(body.schema.api_key or 0).name
                payload = {"type": kind, "data": data}
                found.append({"offset": record.offset, "timestamp": record.timestamp_ms, "payload": payload})
    return list(found)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value
