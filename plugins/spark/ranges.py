"""Cuts files into ranges at batch boundaries, packs ranges into tasks, and tracks how far each file was read."""

from __future__ import annotations

import errno
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, takewhile
from typing import Any, TypeVar

import pyarrow as pa

from kraftcore.errors import StorageError
from kraftcore.plugins.spark.arrow_batches import BrokenOff, Range, RangeReader, pieces
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.stores import LOG, LogFile, Source, has_folder, index_entries

T = TypeVar("T")
RANGE_BYTES = 16 << 20
MARKS_MAX = 64
_WINDOW_BYTES = 1 << 20
_HEADER_BYTES = 61
_MAGIC = 2


def file_ranges(file: LogFile, start: int, end: int, range_bytes: int, generation: int = 0) -> list[Range]:
    """Cut ``[start, end)`` of a file at batch boundaries into ranges of about ``range_bytes``."""
    cuts: list[int] = []
    if end - start > range_bytes:
        entries = {position: offset for offset, position in index_entries(file) if start < position < end}
        cuts = _cuts(list(entries), start, end, range_bytes)
        if not entries or None in _last_offsets(file, [(entries[cut], cut) for cut in cuts]):
            cuts = _cuts(boundaries(file, start, end), start, end, range_bytes)
    return [Range(file, low, high, generation) for low, high in pairwise([start, *cuts, end]) if low < high]


def _cuts(positions: list[int], start: int, end: int, range_bytes: int) -> list[int]:
    # No cut in the last quarter of a range: the last range should not be much smaller than the others.
    cuts: list[int] = []
    last = bisect_left(positions, end - range_bytes // 4)
    at = bisect_left(positions, start + range_bytes)
    while at < last:
        cuts.append(positions[at])
        at = bisect_left(positions, cuts[-1] + range_bytes)
    return cuts


def boundaries(file: LogFile, start: int, end: int) -> list[int]:
    """Starts of batches between two byte positions, some MiB apart, found by walking over all headers."""
    with Source(file.path) as source:
        return [piece.end for piece in pieces(source, start, end, verify=False)]


def _last_offsets(file: LogFile, entries: Sequence[tuple[int, int]]) -> list[int | None]:
    # For entries (offset, position) of an index, the last offset of the batch at the position. None: no such batch
    # begins there, because the index is damaged or belongs to another file.
    if not entries:
        return []
    with Source(file.path) as source:
        return [_last_offset(source, file.base_offset, *entry) for entry in entries]


def _last_offset(source: Source, first: int, offset: int, position: int) -> int | None:
    header = source.read(position, _HEADER_BYTES)
    if len(header) < _HEADER_BYTES or header[16] != _MAGIC:
        return None
    mark = _mark(position, header)
    is_whole = _HEADER_BYTES <= mark.size <= source.size - position
    if not is_whole or not first <= mark.base_offset <= offset:
        return None
    return mark.base_offset + int.from_bytes(header[23:27], "big")


def narrow(file: LogFile, filters: Filters) -> tuple[int, int]:
    """Start and end of the bytes of a segment that may hold wanted offsets, by its index."""
    if file.source != LOG or filters.offset.is_open:
        return 0, file.size
    start, end = 0, file.size
    entries = index_entries(file)
    offsets = [offset for offset, _ in entries]
    before = bisect_right(offsets, filters.offset.low)
    behind = bisect_right(offsets, filters.offset.high)
    if before and _last_offsets(file, entries[before - 1 : before])[0] is not None:
        start = entries[before - 1][1]
    for last_offset in _last_offsets(file, entries[behind : behind + 1]):
        if last_offset is not None and last_offset >= filters.offset.high:
            end = entries[behind][1] + 1
    return start, end


def split_into_ranges(files: Iterable[LogFile], filters: Filters, range_bytes: int = RANGE_BYTES) -> list[Range]:
    """Ranges that hold all rows that the filters want.

    Raises:
        StorageError: a file cannot be read.
    """
    ranges: list[Range] = []
    for file in files:
        if file.size == 0 or not filters.wants(file) or _too_late(file, filters):
            continue
        start, end = narrow(file, filters)
        ranges += file_ranges(file, start, end, range_bytes)
    return ranges


def _too_late(file: LogFile, filters: Filters) -> bool:
    if file.source != LOG or filters.time_ms.high >= 1 << 61:
        return False
    with Source(file.path) as source:
        header = source.read(0, _HEADER_BYTES)
    if len(header) < _HEADER_BYTES or header[16] != _MAGIC:
        return False
    return int.from_bytes(header[27:35], "big", signed=True) > filters.time_ms.high + filters.clock_skew_ms


def pack(ranges: Iterable[Range], range_bytes: int = RANGE_BYTES) -> list[tuple[Range, ...]]:
    """Put small ranges together: one task for each group."""
    return [tuple(group) for group in grouped(ranges, lambda one: one.end - one.start, range_bytes)]


def grouped(
    items: Iterable[T], size_of: Callable[[T], int], size_max: int, count_max: int | None = None
) -> Iterator[list[T]]:
    """Cut items, in order, into groups of at most ``size_max`` in sum and ``count_max`` items (None: any number).

    An item larger than ``size_max`` is a group of its own.
    """
    group: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if group and (total + size > size_max or len(group) == count_max):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group


@dataclass(frozen=True)
class Mark:
    """The identity of a batch that was read; if the batch changes, the file was cut off or written anew."""

    position: int
    size: int
    base_offset: int
    epoch: int
    crc: int

    def is_told_by(self, header: bytes) -> bool:
        """Whether ``header``, the bytes at ``position`` now, is still this batch's header."""
        return len(header) == _HEADER_BYTES and self == _mark(self.position, header)


def _mark(position: int, header: bytes) -> Mark:
    return Mark(
        position,
        int.from_bytes(header[8:12], "big", signed=True) + 12,
        int.from_bytes(header[:8], "big", signed=True),
        int.from_bytes(header[12:16], "big", signed=True),
        int.from_bytes(header[17:21], "big"),
    )


@dataclass(frozen=True)
class Stop:
    """A place in a file where no batch could be recognized, though the file went on.

    Attributes:
        position: byte position behind the last whole batch.
        header: the bytes at ``position``, at most the length of a batch header, as hex digits.
        torn: size of the file if it ended inside the batch at ``position``; else 0.
    """

    position: int
    header: str
    torn: int

    def is_told_by(self, source: Source) -> bool:
        """Whether the bytes at ``position`` are unchanged, so that still no batch can be recognized."""
        return self == _stop(source, self.position, is_torn=self.torn > 0)


def _stop(source: Source, position: int, *, is_torn: bool) -> Stop:
    header = source.read(position, min(_HEADER_BYTES, max(source.size - position, 0)))
    return Stop(position, header.hex(), source.size if is_torn else 0)


@dataclass(frozen=True)
class Reached:
    """How far one file was read.

    Attributes:
        position: all bytes before this position were read, or could not be read.
        generation: how often reading went back because the end of the file was cut off.
        rewound: byte position at which this generation started.
        torn: size of the file when a torn end was reported; 0: never.
        marks: the last batches read, oldest first.
        stop: where unreadable bytes before ``position`` begin, or None; they are read again once they change.
    """

    position: int = 0
    generation: int = 0
    rewound: int = 0
    torn: int = 0
    marks: tuple[Mark, ...] = ()
    stop: Stop | None = None


Progress = dict[str, Reached]


def progress_to_json(progress: Progress) -> str:
    """The progress as JSON, the same text for the same progress."""
    state = {
        path: [one.position, one.generation, one.rewound, one.torn]
        + [[mark.position, mark.size, mark.base_offset, mark.epoch, mark.crc] for mark in one.marks]
        + ([asdict(one.stop)] if one.stop else [])
        for path, one in sorted(progress.items())
    }
    return json.dumps(state, separators=(",", ":"))


def progress_from_json(text: str) -> Progress:
    """The progress from the text of ``progress_to_json``."""
    state: dict[str, list[Any]] = json.loads(text)
    found: Progress = {}
    for path, (position, generation, rewound, torn, *others) in state.items():
        marks = tuple(Mark(*one) for one in others if isinstance(one, list))
        stop = next((Stop(**one) for one in others if isinstance(one, dict)), None)
        found[path] = Reached(position, generation, rewound, torn, marks, stop)
    return found


class Tracker:
    """Finds new bytes in files.

    Args:
        report_torn: whether a torn end is new once for each size of the file.
    """

    def __init__(self, *, report_torn: bool = False) -> None:
        self._report_torn = report_torn

    def advance(self, progress: Progress, files: Iterable[LogFile]) -> Progress:
        """The progress after reading all bytes that the files have now.

        The progress of files that are not in ``files`` stays.

        Raises:
            StorageError: a file cannot be read. A file that was removed since it was listed is skipped.
        """
        result = dict(progress)
        for file in files:
            before = progress.get(file.path)
            try:
                after = self._advance_one(file, before or Reached())
            except StorageError as error:
                if error.errno == errno.ENOENT:
                    continue
                raise
            if before is not None or after != Reached():
                result[file.path] = after
        return result

    def _advance_one(self, file: LogFile, before: Reached) -> Reached:
        if file.source != LOG:
            if file.size == before.position:
                return before
            again = before.generation + 1 if before.position else before.generation
            return Reached(file.size, again)
        if file.size == 0 and before.position == 0:
            return before
        with Source(file.path) as source:
            reached = self._after_truncation(source, before)
            if source.size <= reached.position:
                return reached
            if file.may_grow:
                return self._scan(source, reached)
            return self._sealed(file, source, reached)

    @staticmethod
    def _after_truncation(source: Source, before: Reached) -> Reached:
        kept, stop = _still_there(source, before.marks), before.stop
        is_told = stop is None or (source.size >= stop.position and stop.is_told_by(source))
        if kept == before.marks and source.size >= before.position and is_told:
            return before
        if kept == before.marks and stop is not None and source.size >= stop.position:
            is_told, position = False, stop.position
        else:
            kept = tuple(mark for mark in kept if mark.position + mark.size <= source.size)
            position = kept[-1].position + kept[-1].size if kept else 0
        if stop is not None and stop.position < position and not is_told:
            position = stop.position
        kept = tuple(mark for mark in kept if mark.position < position)
        stop = stop if stop is not None and stop.position < position else None
        return Reached(position, before.generation + 1, position, 0, kept, stop)

    def _scan(self, source: Source, reached: Reached) -> Reached:
        # Walks over all batches, up to the last whole one.
        marks = list(reached.marks)
        position = reached.position
        damaged = False
        for piece in pieces(source, position, source.size, verify=False):
            marks += [
                _mark_of(piece.headers, row)
                for row in range(max(0, piece.headers.num_rows - MARKS_MAX), piece.headers.num_rows)
            ]
            position = piece.end
            damaged = bool(piece.damage) and not piece.is_torn
        torn, stop = reached.torn, reached.stop
        if damaged:
            stop = stop or _stop(source, position, is_torn=False)
            position = source.size
        elif position < source.size and self._report_torn:
            torn = source.size
        return replace(reached, position=position, torn=torn, marks=tuple(marks[-MARKS_MAX:]), stop=stop)

    @staticmethod
    def _sealed(file: LogFile, source: Source, reached: Reached) -> Reached:
        # A full segment: finds only its last batch, from the last entry of its index on.
        start = reached.position
        for offset, position in index_entries(file)[-1:]:
            if position > start and _last_offset(source, file.base_offset, offset, position) is not None:
                start = position
        marks, stop = reached.marks, reached.stop
        for piece in pieces(source, start, source.size, verify=False):
            if piece.headers.num_rows:
                marks = (_mark_of(piece.headers, piece.headers.num_rows - 1),)
            if piece.end < source.size and piece.damage:
                stop = stop or _stop(source, piece.end, is_torn=piece.is_torn)
        return replace(reached, position=source.size, marks=marks, stop=stop)


def _mark_of(headers: pa.RecordBatch, row: int) -> Mark:
    return Mark(*(headers[name][row].as_py() for name in ("position", "size", "base_offset", "epoch", "crc")))


def _still_there(source: Source, marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    # The marks before the first changed batch. All are compared: a repaired copy may differ in the middle only.
    if not marks:
        return ()
    low, high = marks[0].position, min(marks[-1].position + _HEADER_BYTES, source.size)
    # One read if the batches are close together: each read of an object store takes tens of ms.
    window = source.read(low, high - low) if high - low <= _WINDOW_BYTES else None

    def header(position: int) -> bytes:
        if window is not None:
            return window[position - low :][:_HEADER_BYTES]
        return source.read(position, min(_HEADER_BYTES, source.size - position))

    return tuple(takewhile(lambda mark: mark.is_told_by(header(mark.position)), marks))


def new_ranges(start: Progress, end: Progress, files: Iterable[LogFile], range_bytes: int) -> list[Range]:
    """Ranges between two states of progress, of the files in ``files``.

    A file that was removed since it was listed gets one range: its reader reports the removal.
    """
    ranges: list[Range] = []
    for file in files:
        after = end.get(file.path)
        if after is None:
            continue
        before = start.get(file.path, Reached())
        low = before.position if before.generation == after.generation else after.rewound
        whole = replace(file, size=max(file.size, after.position))
        if low < after.position:
            try:
                ranges += file_ranges(whole, low, after.position, range_bytes, after.generation)
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                ranges.append(Range(whole, low, after.position, after.generation))
        if after.torn > after.position and after.torn != before.torn:
            ranges.append(Range(whole, after.position, after.torn, after.generation))
    return ranges


def limit_bytes(start: Progress, end: Progress, files: Iterable[LogFile], bytes_max: int, range_bytes: int) -> Progress:
    """A progress between ``start`` and ``end``, about ``bytes_max`` bytes and at least one range after ``start``."""
    ranges = new_ranges(start, end, files, min(range_bytes, bytes_max))
    paths = {one.file.path for one in ranges}
    result = start | {path: reached for path, reached in end.items() if path not in paths}
    left = bytes_max
    for one in ranges:
        size = one.end - one.start
        if left < size and left != bytes_max:
            break
        left -= size
        target = end[one.file.path]
        if one.end >= target.position:
            result[one.file.path] = target
        else:
            mark = _mark_at(one.file.path, one.end)
            stop = target.stop if target.stop is not None and target.stop.position <= one.end else None
            result[one.file.path] = Reached(one.end, target.generation, target.rewound, marks=mark, stop=stop)
    return result


def _mark_at(path: str, position: int) -> tuple[Mark, ...]:
    # The mark of the next batch: if that batch changes, the file was cut off here or before.
    with Source(path) as source:
        header = source.read(position, _HEADER_BYTES)
    return (_mark(position, header),) if len(header) == _HEADER_BYTES else ()


def read_ranges(ranges: Iterable[Range], reader: RangeReader) -> Iterator[pa.RecordBatch]:
    """All rows of some ranges. A removed file has none: nodes remove segments that are below a snapshot.

    Raises:
        CorruptDataError: as ``RangeReader.read``.
        StorageError: a file cannot be read, or its folder does not exist either, as if nothing were mounted.
    """
    for one in ranges:
        try:
            yield from reader.read(one)
        except StorageError as error:
            if not is_about(error, one) or not has_folder(one.file.path):
                raise


def is_about(error: StorageError, part: Range) -> bool:
    """Whether an error says that the range's file does not exist."""
    return error.errno == errno.ENOENT and error.filename == part.file.path


def without(progress: Progress, gone: Iterable[str]) -> Progress:
    """The progress with files that were removed before they were read: if they return, they are read whole."""
    return progress | {path: Reached(generation=progress[path].generation + 1) for path in gone}


def with_stops(progress: Progress, found: Iterable[BrokenOff]) -> Progress:
    """The progress with the first place in each file where reading ended at damage.

    ``Tracker`` does not look into the middle of full segments, so only their readers find such places.
    """
    result = dict(progress)
    for one in found:
        reached = result.get(one.path)
        if reached is not None and (reached.stop is None or one.position < reached.stop.position):
            result[one.path] = replace(reached, stop=Stop(one.position, one.header.hex(), one.torn))
    return result
