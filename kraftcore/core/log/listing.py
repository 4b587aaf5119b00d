"""``kraftcore-segments``: the file that spares a start from reading the whole log.

Kafka reads every segment again at each start; it also ignores this file (its loader goes by suffix). It lists
segments that were complete and durable when it was written, with the sizes and modification times of their files: a
start trusts a segment whose files still have them, and reads any other one again. A change of a segment by another
program changes size or time, so nothing stale is ever trusted; and a list that is older than the log costs time, not
safety.

    kraftcore-segments 2
    start <first base offset that counts: segments below it are on their way out>
    durable <offset: everything below it had been synced>
    segment <base> <next> <size> <time> <index size> <time> <time index size> <time> <max timestamp> <at> <epoch>
        <control> ...
    ...
    crc <CRC-32C of all lines above, 8 hex digits>

All of a segment on one line; sizes in bytes, modification times in nanoseconds; at the end the base offsets of its
control batches. Text, so that people can read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kraftcore.core.crc32c import crc32c
from kraftcore.errors import CorruptDataError

LISTING_NAME = "kraftcore-segments"
_TITLE = "kraftcore-segments 2"
_LIMIT = 2**63
_SEGMENT_NUMBERS = 11  # before the control batches


class SegmentEntry(NamedTuple):
    """The list's entry of one segment: sizes in bytes, file times in nanoseconds, offsets, timestamp in ms."""

    base_offset: int
    next_offset: int
    size: int
    mtime_ns: int
    index_size: int
    index_mtime_ns: int
    time_index_size: int
    time_index_mtime_ns: int
    max_timestamp: int
    max_timestamp_offset: int
    last_epoch: int
    control_offsets: tuple[int, ...] = ()


@dataclass
class Listing:
    """The content of the file.

    Attributes:
        start_offset: segments with a smaller base offset are to be deleted.
        durable_offset: everything below it had been synced: damage there is a loss, not a torn tail.
        segments: entries by base offset.
    """

    start_offset: int = 0
    durable_offset: int = 0
    segments: dict[int, SegmentEntry] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The file's bytes."""
        lines = [_TITLE, f"start {self.start_offset}", f"durable {self.durable_offset}"]
        for base in sorted(self.segments):
            *numbers, control_offsets = self.segments[base]
            lines.append(" ".join(map(str, ("segment", *numbers, *control_offsets))))
        body = "".join(line + "\n" for line in lines).encode()
        return body + f"crc {crc32c(body):08x}\n".encode()

    @classmethod
    def decode(cls, data: bytes, path: str | None = None) -> Listing:
        """Read the file.

        Raises:
            CorruptDataError: not written by ``encode``.
        """
        body, mark, crc = data[:-13], data[-13:-9], data[-9:]
        if mark != b"crc " or crc != f"{crc32c(body):08x}\n".encode():
            raise CorruptDataError("the checksum line is missing or differs", path=path)
        lines = [line.split(" ") for line in body.decode("ascii", "replace").split("\n")]
        listing = cls()
        try:
            if " ".join(lines[0]) != _TITLE or lines[1][0] != "start" or lines[2][0] != "durable" or lines[-1] != [""]:
                raise ValueError("unknown version or lines")
            listing.start_offset, listing.durable_offset = _numbers(lines[1])[0], _numbers(lines[2])[0]
            for line in lines[3:-1]:
                if line[0] != "segment":
                    raise ValueError(f"unknown line {line[0]!r}")
                numbers = _numbers(line, _SEGMENT_NUMBERS, more=True)
                entry = SegmentEntry._make([*numbers[:_SEGMENT_NUMBERS], tuple(numbers[_SEGMENT_NUMBERS:])])
                listing.segments[entry.base_offset] = entry
        except (ValueError, IndexError) as error:
            raise CorruptDataError(str(error), path=path) from None
        return listing


def _numbers(line: list[str], count: int = 1, *, more: bool = False) -> list[int]:
    numbers = [int(word) for word in line[1:] if len(word) <= 20]
    right = len(numbers) >= count if more else len(numbers) == count
    if not right or len(numbers) != len(line) - 1 or not all(-1 <= number < _LIMIT for number in numbers):
        raise ValueError(f"{line[0]}: expected {count} numbers")
    return numbers
