"""What is committed, as async iterators."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Protocol, Self

import trio

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.log import Log
from kraftcore.errors import CorruptDataError, LocalError
from kraftcore.observer.records import ObservedRecord, Snapshot, observed_records
from kraftcore.ownership import Owned
from kraftcore.protocol.log_contents import ContentsJudge
from kraftcore.storage.snapshot_batches import SnapshotReader, read_batches
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore

READ_BYTES = 1 << 20


class Source(Protocol):
    """What a stream needs of its observer."""

    @property
    def high_watermark(self) -> int:
        """Below it everything is committed."""
        ...

    @property
    def is_readable(self) -> bool:
        """Whether log and snapshots may be read."""
        ...

    def check_open(self) -> None:
        """Raise if it has ended."""
        ...

    async def caught_up(self) -> int:
        """Wait until it has caught up."""
        ...

    async def changed(self) -> None:
        """Wait for news."""
        ...


class Batches(Owned):
    """What ``Observer.batches`` returns. Iterating raises:

    NodeStoppedError: the observer ended; its ``__cause__`` says why, None if it was closed.
    LocalError: the snapshot that would come next is gone from the mirror.
    CorruptDataError, StorageError: the mirror cannot be read.
    """

    def __init__(self, observer: Source, log: Log, store: SnapshotStore, from_offset: int | None) -> None:
        if from_offset is not None and from_offset < 0:
            raise LocalError(f"offset {from_offset} is below 0")
        self._observer = observer
        self._log = log
        self._store = store
        self._offset = from_offset
        self._chunk: Iterator[RecordBatch] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Snapshot | RecordBatch:
        observer, log = self._observer, self._log
        if self._offset is None:
            self._offset = await observer.caught_up()
        while True:
            batch = next(self._chunk, None)
            if batch is not None:
                self._offset = batch.next_offset
                return batch
            await trio.lowlevel.checkpoint()
            observer.check_open()
            if not observer.is_readable:
                await observer.changed()
            elif self._offset < log.log_start_offset:
                latest = self._store.latest
                if latest is None or latest.end_offset < log.log_start_offset:
                    raise LocalError(f"the mirror begins at {log.log_start_offset}, and its snapshot is gone")
                self._offset = latest.end_offset
                return Snapshot(latest.end_offset, latest.epoch, self._store)
            elif self._offset < observer.high_watermark:
                data = log.read(self._offset, READ_BYTES, up_to=observer.high_watermark)
                self._chunk = iter_batches(data, verify=False)
            else:
                await observer.changed()


class Records(Owned):
    """What ``Observer.records`` returns; iterating raises as for `Batches`."""

    def __init__(self, batches: Batches, from_offset: int, types: Collection[str], *, decode: bool) -> None:
        self._batches = batches
        self._from_offset = from_offset
        self._types = frozenset(types)
        self._contents_of_log = ContentsJudge() if decode else None
        self._ready: deque[ObservedRecord] = deque()
        self._snapshot: SnapshotId | None = None
        self._reader: SnapshotReader | None = None
        self._contents: Iterator[tuple[int, RecordBatch]] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Snapshot | ObservedRecord:
        while not self._ready:
            if self._reader is not None:
                await trio.lowlevel.checkpoint()
                _, found = next(self._contents, (0, None))
                if found is None:
                    self._reader.close()
                    self._reader = self._snapshot = None
                    continue
                item: Snapshot | RecordBatch = found
            else:
                item = await anext(self._batches)
            if isinstance(item, Snapshot):
                self._reader = item.open()  # at once, see there
                self._contents = read_batches(self._reader.raw.file)
                self._snapshot = SnapshotId(item.end_offset, item.epoch)
                self._from_offset = 0
                return item
            self._take_apart(item)
        return self._ready.popleft()

    def _take_apart(self, batch: RecordBatch) -> None:
        contents, of_clients = self._contents_of_log, self._snapshot is not None and batch.producer_id >= 0
        if contents is not None and not batch.is_control and not of_clients:
            with suppress(CorruptDataError):  # told below
                contents.look(batch.values())
        decode = contents is not None and contents.is_metadata is not False
        found = observed_records(batch, decode=decode, from_offset=self._from_offset, snapshot=self._snapshot)
        self._ready.extend(record for record in found if not self._types or record.type in self._types)
