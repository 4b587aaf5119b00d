"""Prints a segment's index and producer state files for ``dump-log``."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

import click

from kraftcore.core.batch import RecordBatch
from kraftcore.core.crc32c import crc32c
from kraftcore.core.disk.files import File
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_ENTRY = struct.Struct(">bxqqqq")
PRODUCER_HEAD = struct.Struct(">hIi")
PRODUCER_ENTRY = struct.Struct(">qhiqiqiq")
PRODUCER_CRC_START = 6
PREFIX = 17  # bytes of a batch up to and including magic
OVERHEAD = 12  # bytes of a batch before those that its length counts
LEAST_LENGTH = 14
BATCH_HEADER = struct.Struct(">qiiBIhi")  # up to lastOffsetDelta
READ_BYTES = 1 << 16


class OutputFile:
    """Prints a dump on stdout: lines of text, or one JSON object a line."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        if sys.stdout is None:
            raise LocalError("the output is closed: redirect it to a file or /dev/null")
        self._stream: BinaryIO = sys.stdout.buffer
        self.write: Callable[[bytes], object] = self._stream.write

    def text(self, text: str) -> None:
        """Print text that the JSON form leaves out."""
        if not self.as_json:
            self.write(text.encode("utf-8", "surrogateescape"))

    def line(self, text: str, *, kind: str, **fields: object) -> None:
        """Print one line: ``text``, or the JSON object."""
        if self.as_json:
            line = json.dumps({"kind": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
            self.write(line.encode("utf-8", "replace") + b"\n")
        else:
            self.text(text + "\n")

    def head(self, **fields: object) -> None:
        """Print an object that the text form leaves out."""
        if self.as_json:
            self.line("", **fields)  # type: ignore[arg-type]

    def problem(self, text: str, *, kind: str | None = None, **fields: object) -> None:
        """Print a finding: ``text`` on stderr, or the JSON object (if ``kind`` is given) on stdout."""
        if not self.as_json:
            self.flush()
            click.echo(text, err=True)
        elif kind is not None:
            self.line(text, kind=kind, **fields)

    def flush(self) -> None:
        """Write out everything printed so far."""
        self._stream.flush()


class IndexDumper:
    """Prints index files and compares them with the log beside them.

    Args:
        out: takes the lines.
        sanity_only: make only the check by which a start decides whether to rebuild an index.
        verify_only: compare without printing entries.
        max_batch_bytes: batches behind an offset index entry are taken to be no larger.
    """

    def __init__(self, out: OutputFile, *, sanity_only: bool, verify_only: bool, max_batch_bytes: int) -> None:
        self.out = out
        self.sanity_only = sanity_only
        self.verify_only = verify_only
        self.max_batch_bytes = max_batch_bytes
        self.offset_mismatches: dict[str, dict[int, int]] = {}
        self.time_mismatches: dict[str, list[tuple[int, int]]] = {}
        self.time_order: dict[str, list[tuple[int, int]]] = {}
        self.not_found: dict[str, list[tuple[int, int]]] = {}

    def dump(self, path: str, suffix: str) -> bool:
        """Print one file; returns False if its suffix is unknown.

        Raises:
            CorruptDataError: the file, or the log it belongs to, is damaged.
            LocalError: the file's name has no offset.
            StorageError: the file or its log cannot be read.
        """
        actions = {
            ".index": self._dump_offset_index,
            ".timeindex": self._dump_time_index,
            ".snapshot": self._dump_producers,
            ".txnindex": self._dump_aborted,
        }
        action = actions.get(suffix)
        if action is not None:
            action(path)
        return action is not None

    def _dump_offset_index(self, path: str) -> None:
        base_offset = offset_of(path)
        self.out.head(kind="file", path=path, type="index", baseOffset=base_offset)
        files = OsFiles()
        with files.open(_sibling(path, ".log"), read_only=True) as log:
            data = files.read_file(path)
            count = len(data) // OFFSET_ENTRY.size
            if not count:
                self.out.line(f"{path} is empty.", kind="indexCheck", path=path, result="empty")
                return
            if self.sanity_only:
                self._check_size(path, data, OFFSET_ENTRY.size)
                if OFFSET_ENTRY.unpack_from(data, (count - 1) * OFFSET_ENTRY.size)[0] < 0:
                    raise CorruptDataError("the last entry is below the base offset", path=path)
                self.out.line(f"{path} passed sanity check.", kind="indexCheck", path=path, result="passed")
                return
            size = log.size()
            for number, (relative, position) in enumerate(_entries(OFFSET_ENTRY, data)):
                if relative == 0 and number > 0:  # preallocated: never written
                    return
                offset = base_offset + relative
                found = self._last_offset_at(path, log, size, position)
                if found != offset:
                    self.offset_mismatches.setdefault(os.path.abspath(path), {})[offset] = found
                if not self.verify_only:
                    self.out.line(
                        f"offset: {offset} position: {position}", kind="indexEntry", offset=offset, position=position
                    )

    def _last_offset_at(self, path: str, log: File, size: int, position: int) -> int:
        if not 0 <= position <= size:
            raise CorruptDataError(f"an entry points to byte {position} of a log of {size}", path=path)
        batch = next(_batch_offsets(log, position, min(position + self.max_batch_bytes, size)), None)
        if batch is None:
            raise CorruptDataError(
                f"no batch of at most {self.max_batch_bytes} bytes at {position} of the log", path=path
            )
        return batch[1]

    def _dump_time_index(self, path: str) -> None:
        base_offset = offset_of(path)
        self.out.head(kind="file", path=path, type="timeindex", baseOffset=base_offset)
        files = OsFiles()
        with files.open(_sibling(path, ".log"), read_only=True) as log:
            offsets = files.read_file(_sibling(path, ".index"))
            data = files.read_file(path)
            if self.sanity_only:
                self._check_time_index(path, data)
                self.out.line(f"{path} passed sanity check.", kind="indexCheck", path=path, result="passed")
                return
            previous = -1
            for number, (timestamp, relative) in enumerate(_entries(TIME_ENTRY, data)):
                if relative == 0 and number > 0:
                    return
                offset = base_offset + relative
                self._check_time_entry(path, log, timestamp, offset, _look_up(offsets, relative), previous)
                if not self.verify_only:
                    self.out.line(
                        f"timestamp: {timestamp} offset: {offset}",
                        kind="timeIndexEntry",
                        timestamp=timestamp,
                        offset=offset,
                    )
                previous = timestamp

    def _check_time_entry(
        self, path: str, log: File, timestamp: int, offset: int, position: int, previous: int
    ) -> None:
        size = log.size()
        if not 0 <= position <= size:
            raise CorruptDataError(f"the offset index points to byte {position} of a log of {size}", path=path)
        where = os.path.abspath(path)
        match = next((batch for batch in _batch_offsets(log, position, size) if batch[1] >= offset), None)
        if match is None or match[1] != offset:
            self.not_found.setdefault(where, []).append((offset, -1 if match is None else match[1]))
            return
        batch = RecordBatch(log.read_at(match[0], match[2]), verify=False)
        largest = max((record.timestamp_ms for record in batch), default=-1)
        if max(largest, -1) != timestamp:
            self.time_mismatches.setdefault(where, []).append((timestamp, max(largest, -1)))
        if previous >= timestamp:
            self.time_order.setdefault(where, []).append((timestamp, previous))

    def _check_time_index(self, path: str, data: bytes) -> None:
        count = len(data) // TIME_ENTRY.size
        if count:
            first, _ = TIME_ENTRY.unpack_from(data, 0)
            last, relative = TIME_ENTRY.unpack_from(data, (count - 1) * TIME_ENTRY.size)
            if last < first:
                raise CorruptDataError(f"the last timestamp {last} is below the first, {first}", path=path)
            if relative < 0:
                raise CorruptDataError("the last entry is below the base offset", path=path)
        self._check_size(path, data, TIME_ENTRY.size)

    def _check_size(self, path: str, data: bytes, entry_size: int) -> None:
        if len(data) % entry_size:
            raise CorruptDataError(f"{len(data)} bytes are no multiple of {entry_size}", path=path)

    def _dump_producers(self, path: str) -> None:
        data = OsFiles().read_file(path)
        self.out.head(kind="file", path=path, type="producerSnapshot")
        reason = _producer_fault(data)
        if reason is not None:
            self.out.problem(reason, kind="producerFault", path=path, reason=reason)
            return
        count = PRODUCER_HEAD.unpack_from(data)[2]
        for entry in _entries(PRODUCER_ENTRY, data[PRODUCER_HEAD.size :][: max(count, 0) * PRODUCER_ENTRY.size]):
            producer, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = entry
            open_at = f"OptionalLong[{first_offset}]" if first_offset >= 0 else "OptionalLong.empty"
            text = (
                f"producerId: {producer} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
                f"currentTxnFirstOffset: {open_at} lastTimestamp: {timestamp}"
            )
            first_sequence = last_sequence - delta if last_sequence >= delta else last_sequence - delta + (1 << 31)
            if last_offset >= 0:
                text += (
                    f" firstSequence: {first_sequence} lastSequence: {last_sequence} lastOffset: {last_offset} "
                    f"offsetDelta: {delta} timestamp: {timestamp}"
                )
            self.out.line(
                text,
                kind="producer",
                producerId=producer,
                producerEpoch=epoch,
                coordinatorEpoch=coordinator_epoch,
                currentTxnFirstOffset=first_offset if first_offset >= 0 else None,
                lastTimestamp=timestamp,
                firstSequence=first_sequence if last_offset >= 0 else None,
                lastSequence=last_sequence if last_offset >= 0 else None,
                lastOffset=last_offset if last_offset >= 0 else None,
                offsetDelta=delta if last_offset >= 0 else None,
            )

    def _dump_aborted(self, path: str) -> None:
        offset_of(path)
        data = OsFiles().read_file(path)
        self.out.head(kind="file", path=path, type="transactionIndex")
        found = list(_entries(ABORTED_ENTRY, data))
        for version, *_ in found:
            if version > 0:
                raise CorruptDataError(f"aborted transaction of version {version}, known is 0", path=path)
        for version, producer, first, last, stable in found:
            self.out.line(
                f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} "
                f"lastStableOffset: {stable}",
                kind="abortedTransaction",
                version=version,
                producerId=producer,
                firstOffset=first,
                lastOffset=last,
                lastStableOffset=stable,
            )

    def report(self) -> None:
        """Print the results of the comparisons, in Kafka's words and order."""
        for path, offsets in self.offset_mismatches.items():
            self.out.problem(f"Mismatches in :{path}")
            for offset, found in sorted(offsets.items(), reverse=True):
                self.out.problem(
                    f"  Index offset: {offset}, log offset: {found}",
                    kind="indexMismatch",
                    path=path,
                    indexOffset=offset,
                    logOffset=found,
                )
        sections = (
            (self.time_mismatches, "Found timestamp mismatch in :", "  Index timestamp: {}, log timestamp: {}",
             "timeIndexMismatch", "indexTimestamp", "logTimestamp"),
            (self.time_order, "Found out of order timestamp in :",
             "  Index timestamp: {}, Previously indexed timestamp: {}",
             "timeIndexOrder", "indexTimestamp", "previousTimestamp"),
            (self.not_found, "The following indexed offsets are not found in :",
             "Indexed offset: {}, found log offset: {}", "offsetNotFound", "indexOffset", "logOffset"),
        )  # fmt: skip
        for section, title, form, kind, first, second in sections:
            for path, pairs in section.items():
                self.out.problem(title + path)
                for pair in pairs:
                    self.out.problem(form.format(*pair), kind=kind, **{"path": path, first: pair[0], second: pair[1]})


def offset_of(path: str) -> int:
    """The offset in a segment file's name.

    Raises:
        LocalError: the name does not begin with one.
    """
    text = os.path.basename(path).split(".")[0]
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text, re.ASCII) or not -(1 << 63) <= int(text) < 1 << 63:
        raise LocalError(f"{path}: the name of a segment file begins with its base offset")
    return int(text)


def _sibling(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + suffix)


def _entries(form: struct.Struct, data: bytes) -> Iterator[tuple[int, ...]]:
    return form.iter_unpack(data[: len(data) - len(data) % form.size])


def _batch_offsets(log: File, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Position, last offset and size of each whole batch from ``position`` on, checksums not compared."""
    data = b""
    start = position
    while position < end - PREFIX:
        at = position - start
        if at + BATCH_HEADER.size > len(data):
            start, at = position, 0
            data = log.read_at(position, READ_BYTES)
        if len(data) - at < BATCH_HEADER.size:
            return
        base_offset, length, _, magic, _, _, delta = BATCH_HEADER.unpack_from(data, at)
        if length < LEAST_LENGTH:
            raise CorruptDataError(f"batch length {length} is below {LEAST_LENGTH}", position=position, path=log.path)
        if position > end - OVERHEAD - length:
            return
        if magic < 2:
            raise CorruptDataError(f"record format {magic} is not supported", position=position, path=log.path)
        yield position, base_offset + delta, length + OVERHEAD
        position += length + OVERHEAD


def _look_up(offsets: bytes, relative: int) -> int:
    """The position of the last offset index entry at or below ``relative``, by Kafka's search; 0 if there is none."""
    count = len(offsets) // OFFSET_ENTRY.size
    low, high = 0, count - 1
    hot = max(0, count - 1 - 8192 // OFFSET_ENTRY.size)  # Kafka searches the end of the index apart from the rest
    if not count:
        return 0

    def entry(number: int) -> tuple[int, int]:
        found = OFFSET_ENTRY.unpack_from(offsets, number * OFFSET_ENTRY.size)
        return found[0], found[1]

    if entry(hot)[0] < relative:
        low = hot
    elif entry(0)[0] > relative:
        return 0
    else:
        high = hot
    while low < high:
        middle = (low + high + 1) // 2
        if entry(middle)[0] > relative:
            high = middle - 1
        elif entry(middle)[0] < relative:
            low = middle
        else:
            return entry(middle)[1]
    return entry(low)[1]


def _producer_fault(data: bytes) -> str | None:
    """Why bytes are not a valid producer state, in Kafka's words; None if they are valid."""
    if len(data) < PRODUCER_HEAD.size:
        return "Snapshot failed schema validation: null"
    version, crc, count = PRODUCER_HEAD.unpack_from(data)
    if version != 1:
        return f"Snapshot failed schema validation: Snapshot contained an unknown file version {version}"
    room = len(data) - PRODUCER_HEAD.size
    if count < 0:
        return "Snapshot failed schema validation: non-nullable field producerEntries was serialized as null"
    if count > room:
        return (
            f"Snapshot failed schema validation: Tried to allocate a collection of size {count}, "
            f"but there are only {room} bytes remaining."
        )
    if count * PRODUCER_ENTRY.size > room:
        return "Snapshot failed schema validation: null"
    computed = crc32c(data[PRODUCER_CRC_START:])
    if crc != computed:
        return f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
    return None
