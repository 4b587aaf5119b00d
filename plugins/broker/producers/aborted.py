"""Aborted transactions, and the files ``<segment's base offset>.txnindex`` that hold them.

An entry stands with the segment that holds its marker; entries are in the order of their markers. The file is made with
the first entry of a segment, or, empty, when it is known that a segment with markers has none: it need not be searched
again. In memory they are the files' bytes.

    version int16 (0) | producer id int64 | first offset int64 | offset of the marker int64 | last stable offset int64

Source: Kafka 4.3.1, TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.errors import CorruptDataError, StorageError

SUFFIX = ".txnindex"
_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_FILE = re.compile(r"([0-9]{20})\.txnindex", re.ASCII)


class AbortedTransaction(NamedTuple):
    """An aborted transaction of a partition.

    Attributes:
        producer_id: the producer of the transaction.
        first_offset: the offset of its first record.
        last_offset: the offset of the marker that ended it.
        last_stable_offset: the last stable offset when it had ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """The file's content."""
    return b"".join(_ENTRY.pack(_VERSION, *each) for each in entries)


def decode_aborted(data: bytes | bytearray, base_offset: int, path: str | None = None) -> list[AbortedTransaction]:
    """Read a file's content.

    Args:
        data: the content.
        base_offset: the base offset of the segment.
        path: the file's path, for errors.

    Raises:
        CorruptDataError: the file is no index of aborted transactions, or damaged.
    """
    if len(data) % _ENTRY.size:
        raise CorruptDataError(f"{len(data)} bytes are no transaction index", path=path)
    found: list[AbortedTransaction] = []
    last = base_offset - 1
    for number, (version, *fields) in enumerate(_ENTRY.iter_unpack(data)):
        entry = AbortedTransaction._make(fields)
        position = number * _ENTRY.size
        if version != _VERSION:
            raise CorruptDataError(f"an entry of version {version}, expected {_VERSION}", position=position, path=path)
        if entry.last_offset <= last or not 0 <= entry.first_offset < entry.last_offset:
            raise CorruptDataError(f"{entry} does not follow offset {last}", position=position, path=path)
        last = entry.last_offset
        found.append(entry)
    return found


def _entry_at(data: bytearray, number: int) -> AbortedTransaction:
    return AbortedTransaction._make(_ENTRY.unpack_from(data, number * _ENTRY.size)[1:])


def _first_from(data: bytearray, marker: int) -> int:
    return bisect_left(range(len(data) // _ENTRY.size), marker, key=lambda number: _entry_at(data, number).last_offset)


class AbortedTransactions:
    """The aborted transactions of a log.

    Args:
        log: the partition's log.
        files: the file system of the log's folder; None: the entries are kept in memory alone.
    """

    def __init__(self, log: Log, files: Files | None = None) -> None:
        self._log = log
        self._files = files
        self._by_segment: dict[int, bytearray] = {}
        self._unsynced: set[int] = set()

    def load(self) -> bool:
        """Read the files; return whether all could be read.

        Raises:
            StorageError: the disk failed.
        """
        self._by_segment.clear()
        if self._files is None:
            return True
        for name in self._files.list_folder(self._log.folder):
            match = _FILE.fullmatch(name)
            if match is None:
                continue
            base = int(match[1])
            try:
                data = self._files.read_file(self._path(base))
                decode_aborted(data, base, self._path(base))
            except CorruptDataError:
                return False
            self._by_segment[base] = bytearray(data)
        return True

    def __bool__(self) -> bool:
        return any(self._by_segment.values())

    @property
    def all(self) -> list[AbortedTransaction]:
        """All aborted transactions, by the offset of their markers."""
        return [entry for base in sorted(self._by_segment) for entry in decode_aborted(self._by_segment[base], base)]

    def covers(self, base_offset: int) -> bool:
        """Whether a segment has a file."""
        return base_offset in self._by_segment

    def replace(self, entries: Iterable[AbortedTransaction], bases: Iterable[int]) -> None:
        """Write the files anew, durably.

        Args:
            entries: all there are, by their markers.
            bases: segments that shall have a file in any case.

        Raises:
            StorageError: the disk failed.
        """
        if self._files is not None:
            for name in self._files.list_folder(self._log.folder):
                if _FILE.fullmatch(name):
                    self._files.unlink(os.path.join(self._log.folder, name))
        self._by_segment.clear()
        for entry in entries:
            self.add(entry)
        self.cover(bases)
        self.sync()

    def cover(self, bases: Iterable[int]) -> None:
        """Segments of which all are known have a file in any case. One that a power cut takes is made again.

        Raises:
            StorageError: the disk failed.
        """
        for base in bases:
            if base not in self._by_segment:
                self._by_segment[base] = bytearray()
                if self._files is not None:
                    self._files.open(self._path(base), create=True).close()

    def add(self, entry: AbortedTransaction) -> None:
        """One more was aborted; one that is known is left out.

        Raises:
            StorageError: the disk failed.
        """
        bases = [segment.base_offset for segment in self._log.segment_list()]
        if entry.last_offset < bases[0]:
            return
        base = bases[bisect_right(bases, entry.last_offset) - 1]
        entries = self._by_segment.get(base, bytearray())
        if entries and _entry_at(entries, len(entries) // _ENTRY.size - 1).last_offset >= entry.last_offset:
            return
        encoded = encode_aborted([entry])
        if self._files is not None:
            with self._files.open(self._path(base), create=True) as file:
                file.write_at(len(entries), encoded)
            self._unsynced.add(base)
        entries += encoded
        self._by_segment[base] = entries
        for gone in [each for each in self._by_segment if each < bases[0]]:
            del self._by_segment[gone]  # with their segments

    def sync(self) -> None:
        """Sync the added entries, before a snapshot of producers says that they are there.

        Raises:
            StorageError: the disk failed.
        """
        if self._files is None or not self._unsynced:
            return
        for base in sorted(self._unsynced):
            try:
                with self._files.open(self._path(base)) as file:
                    file.sync()
            except StorageError as error:
                if error.errno != errno.ENOENT:  # it went with its segment
                    raise
        self._files.sync_folder(self._log.folder)
        self._unsynced.clear()

    def truncate(self, end: int) -> None:
        """Forget the entries whose markers are at ``end`` or above it.

        Raises:
            StorageError: the disk failed.
        """
        bases = {segment.base_offset for segment in self._log.segment_list()}
        for base, entries in list(self._by_segment.items()):
            kept = entries[: _first_from(entries, end) * _ENTRY.size]
            if base not in bases:
                del self._by_segment[base]  # its file went with the segment
            elif len(kept) < len(entries):
                self._by_segment[base] = kept
                if self._files is not None:
                    with self._files.open(self._path(base), create=True) as file:
                        file.truncate(len(kept))
                    self._unsynced.add(base)
        self.sync()

    def within(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from ``start`` to below ``end``."""
        found = []
        for base in sorted(self._by_segment):
            entries = self._by_segment[base]
            for number in range(_first_from(entries, start), len(entries) // _ENTRY.size):
                entry = _entry_at(entries, number)
                if entry.first_offset < end:
                    found.append(entry)
                if entry.last_stable_offset >= end:
                    return found
        return found

    def _path(self, base_offset: int) -> str:
        return os.path.join(self._log.folder, f"{base_offset:020d}{SUFFIX}")
