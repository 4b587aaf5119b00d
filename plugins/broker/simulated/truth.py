"""What is committed of a partition, and what each replica's log holds, as seen from outside."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from kraftcore.core.batch import iter_batches
from kraftcore.core.log import Log
from kraftcore.metadata import PartitionKey

_READ_BYTES = 1 << 20


class Seen(NamedTuple):
    """A batch in a log.

    Attributes:
        base_offset: of its first record.
        next_offset: one past its last.
        epoch: its leader epoch.
        crc: of its content.
    """

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


class Shadow:
    """What was last seen of one broker's log of a partition; it outlives the broker's processes.

    Attributes:
        batches: in the log.
        start: where the log starts.
        end: where it ends.
        compared: everything below was found equal to the truth.
        is_exempt: it may differ from the truth until it has been cut: records were lost as the rules allow.
        is_damaged: it lost records of its own in a power cut, which others may have.
        resets: how often the truth had been cut when it was last found equal to it.
    """

    __slots__ = ("batches", "compared", "end", "is_damaged", "is_exempt", "resets", "start")

    def __init__(self, resets: int) -> None:
        self.batches: list[Seen] = []
        self.start = self.end = self.compared = 0
        self.is_exempt = self.is_damaged = False
        self.resets = resets

    def follow(self, log: Log) -> list[Seen]:
        """Read what is new; the batches that are."""
        start, end = log.log_start_offset, log.log_end_offset
        batches = self.batches
        if start > self.start:
            del batches[: next((at for at, seen in enumerate(batches) if seen.next_offset > start), len(batches))]
        while batches and batches[-1].next_offset > end:
            batches.pop()
        self.compared = min(self.compared, end)
        offset = batches[-1].next_offset if batches else start
        known = len(batches)
        while offset < end:
            for batch in iter_batches(log.read(offset, _READ_BYTES), verify=False):
                batches.append(Seen(batch.base_offset, batch.next_offset, batch.leader_epoch, batch.crc))
                offset = batch.next_offset
        self.start, self.end = start, end
        return batches[known:]


class Truth:
    """What is committed of a partition.

    Args:
        key: topic id and number.

    Attributes:
        key: as given.
        batches: committed, in order: the longest that any leader's high watermark ever told.
        epoch: leaders of older epochs may not know that records were lost since.
        led: the newest epoch in which somebody began to lead.
        resets: how often records were lost as the rules allow.
        places: where numbered batches are, by their content.
    """

    def __init__(self, key: PartitionKey) -> None:
        self.places: dict[int, int] = {}
        self.led = -1
        self.key = key
        self.batches: list[Seen] = []
        self.epoch = -1
        self.resets = 0

    @property
    def end(self) -> int:
        """Exclusive end of what is committed."""
        return self.batches[-1].next_offset if self.batches else 0

    def holding(self, offset: int) -> int:
        """The place of the batch that holds an offset; as many as there are: it is not committed."""
        return bisect_right(self.batches, offset, key=lambda seen: seen.next_offset)

    def first_difference(self, batches: list[Seen], below: int, above: int = 0) -> Seen | None:
        """The first batch, between two offsets, that is not what is committed; None: there is none."""
        at = bisect_right(batches, above, key=lambda seen: seen.next_offset)
        if at == len(batches):
            return None
        place = self.holding(batches[at].base_offset)
        for seen in batches[at:]:
            if seen.next_offset > min(below, self.end):
                break
            if place >= len(self.batches) or self.batches[place] != seen:
                return seen
            place += 1
        return None

    def extend(self, batches: list[Seen], end: int) -> list[Seen]:
        """A leader's high watermark tells that more is committed; what is new."""
        known = len(self.batches)
        at = bisect_right(batches, self.end, key=lambda seen: seen.next_offset)
        for seen in batches[at:]:
            if seen.next_offset > end:
                break
            self.batches.append(seen)
        return self.batches[known:]

    def cut(self, batches: list[Seen], epoch: int) -> None:
        """Records were lost, as the rules allow: what a leader's log has of the truth is all of it."""
        place = self.holding(batches[0].base_offset) if batches else 0
        for seen in batches:
            if place >= len(self.batches) or self.batches[place] != seen:
                break
            place += 1
        for seen in self.batches[place:]:
            self.places.pop(seen.crc, None)
        del self.batches[place:]
        self.epoch = epoch
        self.resets += 1
