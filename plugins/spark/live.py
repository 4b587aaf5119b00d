"""Reads a running quorum: an observer follows the quorum in a thread, and tasks get committed batches as bytes.

An observer is no member of the quorum, see ``kraftcore.observer``. The observer and its mirror are in the process that
plans the query; workers need not reach the quorum or the mirror.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import trio

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import LocalError, NodeStoppedError, UnreachableError
from kraftcore.observer import Observer, Snapshot, observe
from kraftcore.plugins.spark.arrow_batches import Range
from kraftcore.plugins.spark.contents import LOOK_BYTES, judge
from kraftcore.plugins.spark.place import Place, explained
from kraftcore.plugins.spark.stores import LOG, SNAPSHOT, Identity, LogFile
from kraftcore.storage.snapshots import RawSnapshotReader

T = TypeVar("T")
_SNAPSHOT_PIECE = 1 << 20


class Quorum:
    """An observer of a quorum in a thread of its own, until ``close`` or the end of the process.

    Args:
        place: the quorum's addresses.
        cluster_id: id in the rows; None: the quorum's cluster id.
        node_id: id in the rows; None: -1.

    Raises:
        KraftError: as ``kraftcore.observe``.
    """

    def __init__(self, place: Place, cluster_id: str | None = None, node_id: int | None = None) -> None:
        self._place = place
        self._name = f"the quorum at {', '.join(place.controllers)}"
        self._started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._observer: Observer | None = None
        self._is_metadata: bool | None = None  # not known yet
        self._thread = threading.Thread(target=self._run, name="kraftcore-observer", daemon=True)
        self._thread.start()
        error = self._started.get()
        if error is not None:
            raise explained(error) if isinstance(error, UnreachableError) else error
        self.identity = Identity(cluster_id or self._running.cluster_id, -1 if node_id is None else node_id)

    def _run(self) -> None:
        try:
            trio.run(self._follow)
        except BaseException as error:
            self._started.put(error)

    async def _follow(self) -> None:
        place = self._place
        self._end = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with observe(
            place.controllers, place.mirror, topic=place.topic, tls=place.tls(), timing=place.timing()
        ) as observer:
            self._observer = observer
            self._started.put(None)
            await self._end.wait()

    @property
    def _running(self) -> Observer:
        if self._observer is None:
            raise LocalError("the observer has not started")
        return self._observer

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        try:
            return trio.from_thread.run(function, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):  # the observer has ended
            self._thread.join()
            try:
                error = self._started.get_nowait()
            except queue.Empty:
                error = None
            raise NodeStoppedError(f"the observer of {self._name} stopped") from error

    def caught_up(self) -> int:
        """Wait until the mirror holds all records that were committed when this was called.

        Returns:
            The high watermark.

        Raises:
            LocalError: no leader answered within ``timeout_ms``.
            NodeStoppedError: the observer failed.
        """

        async def wait() -> int:
            with trio.fail_after(self._place.timeout_ms / 1000):
                return await self._running.caught_up()

        try:
            return self._call(wait)
        except trio.TooSlowError:
            raise LocalError(f"{self._name}: no leader answered within {self._place.timeout_ms} ms") from None

    def high_watermark(self) -> int:
        """The offset below which the mirror holds all records, committed; grows in the background."""

        async def look() -> int:
            await trio.lowlevel.checkpoint()
            self._running.check_open()
            return self._running.high_watermark

        return self._call(look)

    def ranges(self, start: int, end: int, range_bytes: int, *, count_max: int | None = None) -> list[Range]:
        """Committed batches from offset ``start`` to below ``end``, in ranges of about ``range_bytes``.

        If the log does not reach back to ``start``, the whole snapshot comes first. At most ``count_max`` ranges; None:
        all.

        Raises:
            CorruptDataError, StorageError: the mirror cannot be read.
            NodeStoppedError: the observer failed.
        """

        async def collect() -> list[Range]:
            # In the form of a path, for the rows' file and log ids are made of it.
            found = _Ranges(f"quorum:{self.identity.cluster_id}/{self._place.topic}-0", self.identity, range_bytes)
            if start < end:
                batches = self._running.batches(start)
                async for item in batches:
                    position = found.add(item)
                    if position >= end or len(found) == count_max:
                        break
            return found.finish()

        return [self._judged(one) for one in self._call(collect)]

    def _judged(self, one: Range) -> Range:
        if self._is_metadata is None and one.data is not None:
            self._is_metadata = judge(one.data[:LOOK_BYTES], is_snapshot=one.file.source == SNAPSHOT)
        return one if self._is_metadata is not False else replace(one, file=replace(one.file, is_metadata=False))

    def end_for_bytes(self, start: int, end: int, bytes_max: int) -> int:
        """The offset behind about ``bytes_max`` of batches from ``start`` on, at most ``end``."""
        for one in self.ranges(start, end, bytes_max, count_max=1):
            behind = one.file.base_offset if one.file.source == SNAPSHOT else one.file.next_offset
            return min(end, end if behind is None else behind)
        return end

    def close(self) -> None:
        """Stop following."""
        if self._thread.is_alive():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._end.set)
            self._thread.join()

    def __enter__(self) -> Quorum:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Ranges:
    """Gathers batches into ranges of at least ``range_bytes``."""

    def __init__(self, name: str, identity: Identity, range_bytes: int) -> None:
        self._name = name
        self._identity = identity
        self._range_bytes = range_bytes
        self._data = bytearray()
        self._first = self._next = 0
        self._found: list[Range] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, item: Snapshot | RecordBatch) -> int:
        """Add the next batch or snapshot; returns the offset behind it."""
        if isinstance(item, Snapshot):
            with item.open() as reader:
                data = b"".join(_file_pieces(reader.raw))
            path = f"{self._name}/{item.end_offset:020d}-{item.epoch:010d}.checkpoint"
            file = LogFile(path, SNAPSHOT, len(data), self._identity, item.end_offset, item.epoch)
            self._found.append(Range(file, 0, len(data), data=data))
            return item.end_offset
        if not self._data:
            self._first = item.base_offset
        self._data += item.raw
        self._next = item.next_offset
        if len(self._data) >= self._range_bytes:
            self._flush()
        return item.next_offset

    def _flush(self) -> None:
        if self._data:
            data = bytes(self._data)
            path = f"{self._name}/{self._first:020d}.log"
            file = LogFile(path, LOG, len(data), self._identity, self._first, next_offset=self._next)
            self._found.append(Range(file, 0, len(data), data=data))
            self._data = bytearray()

    def finish(self) -> list[Range]:
        """All ranges."""
        self._flush()
        return self._found


def _file_pieces(file: RawSnapshotReader) -> Iterator[bytes]:
    position = 0
    while piece := file.read_at(position, _SNAPSHOT_PIECE):
        yield piece
        position += len(piece)
