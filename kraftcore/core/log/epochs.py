"""Leader epochs of a log: the offset at which each begins, and the ``leader-epoch-checkpoint`` file.

Rules, Kafka's (LeaderEpochFileCache): entries grow strictly in epoch and offset. Assigning (epoch, offset) drops
entries at or above either. Raising the log start drops the entries below it, except that the last of them moves up
to the new start.

File: text, one line each: version ``0``, number of entries, then ``epoch start_offset``; a newline after each line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import NamedTuple

from kraftcore.core.disk.files import Files
from kraftcore.errors import CorruptDataError, LocalError

CHECKPOINT_NAME = "leader-epoch-checkpoint"
UNSYNCED_NAME = CHECKPOINT_NAME + "-unsynced.tmp"
_EPOCH_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


class OffsetAndEpoch(NamedTuple):
    """A place in a log.

    Attributes:
        offset: exclusive end, or position of a record.
        epoch: leader epoch it belongs to.
    """

    offset: int
    epoch: int


class EpochEntry(NamedTuple):
    """Where an epoch begins.

    Attributes:
        epoch: leader epoch.
        start_offset: of its first record.
    """

    epoch: int
    start_offset: int


_EPOCH, _START = attrgetter("epoch"), attrgetter("start_offset")


class LeaderEpochs:
    """The epochs of one log, in memory.

    Args:
        entries: (epoch, start offset) pairs, growing strictly in both.

    Raises:
        CorruptDataError: the entries do not grow.
    """

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries: list[EpochEntry] = []  # replaced as a whole by each change: a thread may be writing it out
        found: list[EpochEntry] = []
        for epoch, start in entries or ():
            if not 0 <= epoch <= _EPOCH_MAX or not 0 <= start <= _OFFSET_MAX:
                raise CorruptDataError(f"epoch {epoch} at offset {start} is out of range")
            if found and (epoch <= found[-1].epoch or start <= found[-1].start_offset):
                raise CorruptDataError(
                    f"epoch {epoch} at offset {start} does not follow epoch {found[-1].epoch} at "
                    f"{found[-1].start_offset}"
                )
            found.append(EpochEntry(epoch, start))
        self._entries = found

    @property
    def latest(self) -> int | None:
        """The newest epoch, or None."""
        entries = self._entries
        return entries[-1].epoch if entries else None

    def entries(self) -> list[EpochEntry]:
        """All entries, oldest first."""
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` begins at ``start_offset``.

        Returns:
            Whether anything changed: not when it is the newest epoch already and began no later.

        Raises:
            LocalError: negative epoch or offset.
        """
        if epoch < 0 or start_offset < 0:
            raise LocalError(f"epoch {epoch} at offset {start_offset}: both must be at least 0")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        kept = min(bisect_left(entries, epoch, key=_EPOCH), bisect_left(entries, start_offset, key=_START))
        self._entries = [*entries[:kept], EpochEntry(epoch, start_offset)]
        return True

    def truncate_end(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or above ``end_offset``; whether any did."""
        entries = self._entries
        kept = bisect_left(entries, end_offset, key=_START)
        self._entries = entries[:kept]
        return kept < len(entries)

    def truncate_start(self, start_offset: int) -> bool:
        """Drop entries below ``start_offset``; the epoch in force there begins there. Returns whether any changed."""
        entries = self._entries
        below = bisect_right(entries, start_offset, key=_START)
        if not below:
            return False
        self._entries = [EpochEntry(entries[below - 1].epoch, start_offset), *entries[below:]]
        return True

    def clear(self) -> None:
        """Drop all entries."""
        self._entries = []

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """Where the largest epoch at or below ``epoch`` ends.

        Returns:
            Its exclusive end and the epoch. Below the oldest known epoch: where the oldest starts, and ``epoch``
            itself. None when ``epoch`` is newer than all, or no epoch is known.
        """
        entries = self._entries
        if not entries:
            return None
        if epoch == entries[-1].epoch:
            return OffsetAndEpoch(log_end_offset, epoch)
        higher = bisect_right(entries, epoch, key=_EPOCH)
        if higher == len(entries):
            return None
        found = entries[higher - 1].epoch if higher else epoch
        return OffsetAndEpoch(entries[higher].start_offset, found)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at ``offset``; None below the oldest entry."""
        entries = self._entries
        number = bisect_right(entries, offset, key=_START)
        return entries[number - 1].epoch if number else None

    def encode(self) -> bytes:
        """The checkpoint file, of one moment: another thread may change the epochs meanwhile."""
        entries = self._entries
        lines = [f"{epoch} {start}\n" for epoch, start in entries]
        return f"0\n{len(lines)}\n{''.join(lines)}".encode()

    @classmethod
    def decode(cls, data: bytes, path: str | None = None) -> LeaderEpochs:
        """Read a checkpoint file.

        Raises:
            CorruptDataError: it is not a checkpoint file; the message names the line.
        """
        try:
            lines = data.decode("ascii").split("\n")
        except UnicodeDecodeError as error:
            raise CorruptDataError("not text", position=error.start, path=path) from None
        if lines[-1] == "":
            lines.pop()
        pairs = []
        for number, line in enumerate(lines, 1):
            words = line.split()
            wanted = 1 if number <= 2 else 2
            if len(words) != wanted or not all(word.isdecimal() and len(word) <= 19 for word in words):
                raise CorruptDataError(
                    f"line {number}: expected {wanted} whole number(s), got {line[:40]!r}", path=path
                )
            pairs.append([int(word) for word in words])
        if len(pairs) < 2 or pairs[0] != [0]:
            raise CorruptDataError("not a version 0 checkpoint", path=path)
        if pairs[1] != [len(pairs) - 2]:
            raise CorruptDataError(f"line 2: {pairs[1][0]} entries announced, {len(pairs) - 2} found", path=path)
        try:
            return cls([(epoch, start) for epoch, start in pairs[2:]])
        except CorruptDataError as error:
            raise CorruptDataError(error.reason, path=path) from None


def show_epochs(files: Files, folder: str, epochs: LeaderEpochs) -> None:
    """Write the checkpoint, unsynced, for readers and for a start after a kill; a power cut may lose it.

    Raises:
        StorageError: it cannot be written.
    """
    path = f"{folder}/{UNSYNCED_NAME}"
    with files.open(path, create=True, truncate=True) as file:
        file.write_at(0, epochs.encode())
    files.rename(path, f"{folder}/{CHECKPOINT_NAME}")
