"""What is committed of a partition, and what each replica's log holds, as seen from outside."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.log import Log
from kraftcore.metadata import PartitionKey
from kraftcore.plugins.broker.simulated.cleaning import Cleaned

_READ_BYTES = 1 << 20
PLAIN, TRANSACTIONAL, ABORTED, COMMITTED = range(4)
"""What a batch is: of no transaction, of one, or the marker that ends one."""


class Seen(NamedTuple):
    """A batch in a log.

    Attributes:
        base_offset: of its first record.
        next_offset: one past its last.
        epoch: its leader epoch.
        crc: of its content.
        producer_id: of the producer that numbered it; -1: none did.
        producer_epoch: of that producer.
        first: sequence of its first record.
        last: of its last.
        kind: ``PLAIN``, part of a transaction, or what ended one.
    """

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    producer_id: int = -1
    producer_epoch: int = -1
    first: int = -1
    last: int = -1
    kind: int = PLAIN


def seen_of(batch: RecordBatch) -> Seen:
    """What is remembered of a batch."""
    producer_id = batch.producer_id
    kind = PLAIN
    if batch.is_control:
        (record,) = batch
        kind = COMMITTED if (record.key or b"")[-1:] == b"\1" else ABORTED
    elif batch.is_transactional:
        kind = TRANSACTIONAL
    if producer_id < 0:
        return Seen(batch.base_offset, batch.next_offset, batch.leader_epoch, batch.crc)
    return Seen(
        batch.base_offset,
        batch.next_offset,
        batch.leader_epoch,
        batch.crc,
        producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.last_sequence,
        kind,
    )


def open_transactions(batches: Iterable[Seen]) -> dict[int, int]:
    """Where the transactions begin that have no marker, by producer id."""
    found: dict[int, int] = {}
    for seen in batches:
        if seen.kind == TRANSACTIONAL:
            found.setdefault(seen.producer_id, seen.base_offset)
        elif seen.kind != PLAIN:
            found.pop(seen.producer_id, None)
    return found


class Shadow:
    """What was last seen of one broker's log of a partition; it outlives the broker's processes.

    Attributes:
        batches: in the log.
        start: where the log starts.
        end: where it ends.
        compared: everything below was found equal to the truth.
        is_damaged: it lost records of its own in a power cut, which others may have.
        resets: those of the truth when it was last found equal to it.
        numbered: the last batch in the log of each producer that numbers its batches.
        open: where the transactions begin that have no marker in it, by producer id.
    """

    __slots__ = ("batches", "compared", "end", "is_damaged", "numbered", "open", "resets", "start")

    def __init__(self, resets: int) -> None:
        self.batches: list[Seen] = []
        self.numbered: dict[int, Seen] = {}
        self.open: dict[int, int] = {}
        self.start = self.end = self.compared = 0
        self.is_damaged = False
        self.resets = resets

    def follow(self, log: Log) -> list[Seen]:
        """Read the new batches of the log, and return them."""
        start, end = log.log_start_offset, log.log_end_offset
        batches = self.batches
        if start < self.start:  # a process began that did not know yet how far it had been raised
            self.forget()
        has_lost = start > self.start
        if has_lost:
            del batches[: next((at for at, seen in enumerate(batches) if seen.next_offset > start), len(batches))]
        while batches and batches[-1].next_offset > end:
            batches.pop()
            has_lost = True
        if has_lost:
            self.numbered = {seen.producer_id: seen for seen in batches if seen.producer_id >= 0}
            self.open = open_transactions(batches)
        self.compared = min(self.compared, end)
        offset = batches[-1].next_offset if batches else start
        known = len(batches)
        while offset < end:
            data = log.read(offset, _READ_BYTES)
            if not data:
                break  # the last offsets are missing
            for batch in iter_batches(data, verify=False):
                seen = seen_of(batch)
                batches.append(seen)
                if seen.producer_id >= 0:
                    self.numbered[seen.producer_id] = seen
                if seen.kind == TRANSACTIONAL:
                    self.open.setdefault(seen.producer_id, seen.base_offset)
                elif seen.kind != PLAIN:
                    self.open.pop(seen.producer_id, None)
                offset = batch.next_offset
        self.start, self.end = start, end
        return batches[known:]

    def forget(self) -> None:
        """The log was cleaned, or begins earlier: look at all of it again."""
        self.batches.clear()
        self.numbered.clear()
        self.open.clear()
        self.compared = 0


class Truth:
    """What is committed of a partition.

    Args:
        key: topic id and number.

    Attributes:
        key: as given.
        batches: committed, in order: the longest that any leader's high watermark ever told.
        start: an offset; records below it may have been deleted.
        epoch: leaders of older epochs may not know that records were lost since.
        led: the newest epoch in which a replica began to lead.
        resets: how often records were lost as the rules allow, or may have been: by an unclean election.
        places: where numbered batches are, by their content.
        numbered: the last committed batch of each producer that numbers its batches.
        outcomes: of the batches of transactions that have ended, by their first offset: ``ABORTED`` or ``COMMITTED``.
        cleaned: first offsets of batches that a cleaner removed, or some of their records.
    """

    def __init__(self, key: PartitionKey) -> None:
        self.places: dict[int, int] = {}
        self.numbered: dict[int, Seen] = {}
        self.outcomes: dict[int, int] = {}
        self._open: dict[int, list[int]] = {}
        self.cleaned: set[int] = set()
        self._written: dict[tuple[int, int], int] = {}  # what was left of batches, by offset: as they were written
        self._gone: set[tuple[int, int]] = set()  # those of which nothing is left, as they were written
        self.led = -1
        self.key = key
        self.batches: list[Seen] = []
        self.start = 0
        self.epoch = -1
        self.resets = 0

    @property
    def end(self) -> int:
        """Offset after the last committed record."""
        return self.batches[-1].next_offset if self.batches else 0

    def holding(self, offset: int) -> int:
        """The place of the batch that holds an offset; as many as there are: it is not committed."""
        return bisect_right(self.batches, offset, key=lambda seen: seen.next_offset)

    def first_difference(self, batches: list[Seen], below: int, above: int = 0) -> Seen | None:
        """The first batch that has offsets between two and is not what is committed; None: there is none."""
        at = bisect_right(batches, above, key=lambda seen: seen.next_offset)
        if at == len(batches):
            return None
        place = self.holding(batches[at].base_offset)
        end = min(below, self.end)
        for seen in batches[at:]:
            if seen.base_offset >= end:
                break
            place = self._next(place, seen)
            if self._is_away(place, seen):
                continue
            if not self._agrees(place, seen):
                return seen
            place += 1
        return None

    def _next(self, place: int, seen: Seen) -> int:
        """The place of a batch, behind those that were cleaned away."""
        batches = self.batches
        while (
            place < len(batches)
            and batches[place].base_offset < seen.base_offset
            and self._as_written(batches[place]) in self._gone
        ):
            place += 1
        return place

    def _is_away(self, place: int, seen: Seen) -> bool:
        """Whether the log that the truth was read from was cleaned of a batch that another log has."""
        is_here = place < len(self.batches) and self.batches[place].base_offset < seen.next_offset
        return not is_here and self._as_written(seen) in self._gone

    def _as_written(self, seen: Seen) -> tuple[int, int]:
        """First offset and content of a batch, before any cleaner came."""
        return seen.base_offset, self._written.get((seen.base_offset, seen.crc), seen.crc)

    def _agrees(self, place: int, seen: Seen) -> bool:
        """Whether a batch is the one at a place, but for what cleaners left of either."""
        if place >= len(self.batches):
            return False
        here = self.batches[place]
        return here == seen or (
            here._replace(crc=seen.crc) == seen and self._as_written(here) == self._as_written(seen)
        )

    def clean(self, left: Mapping[int, Cleaned]) -> None:
        """A cleaner rewrote batches, by their first offsets."""
        for base_offset, (before, after) in left.items():
            self.cleaned.add(base_offset)
            written = self._written.get((base_offset, before), before)
            if after is None:
                self._gone.add((base_offset, written))
            else:
                self._written[base_offset, after] = written

    def is_cleaned(self, above: int, below: int) -> bool:
        """Whether a batch between two others, by their first offsets, was changed by a cleaner, or is gone."""
        return any(above < offset < below for offset in self.cleaned)

    def extend(self, batches: list[Seen], end: int) -> list[Seen]:
        """A leader's high watermark tells that more is committed; what is new."""
        known = len(self.batches)
        at = bisect_right(batches, self.end, key=lambda seen: seen.next_offset)
        for seen in batches[at:]:
            if seen.next_offset > end:
                break
            self.batches.append(seen)
            self._note(seen)
        return self.batches[known:]

    def _note(self, seen: Seen) -> None:
        """Follow transactions to their ends."""
        if seen.kind == TRANSACTIONAL:
            self._open.setdefault(seen.producer_id, []).append(seen.base_offset)
        elif seen.kind != PLAIN:
            self.outcomes.update(dict.fromkeys(self._open.pop(seen.producer_id, ()), seen.kind))

    def cut(self, shadow: Shadow, epoch: int) -> None:
        """Records were lost, as the rules allow: what a leader's log has of the truth is all of it."""
        batches = shadow.batches
        place = self.holding(batches[0].base_offset if batches else shadow.start)
        for seen in batches:
            found = self._next(place, seen)
            if self._is_away(found, seen):
                continue
            if not self._agrees(found, seen):
                break
            place = found + 1
        for seen in self.batches[place:]:
            self.places.pop(seen.crc, None)
        del self.batches[place:]
        self.start = min(self.start, self.end)  # what comes to the places of those that were deleted stays
        self.numbered = {seen.producer_id: seen for seen in self.batches if seen.producer_id >= 0}
        self.outcomes.clear()
        self._open.clear()
        for seen in self.batches:
            self._note(seen)
        self.outvoted(shadow, epoch)

    def outvoted(self, shadow: Shadow, epoch: int) -> None:
        """A leader was elected uncleanly: what others hold for committed, and it never had, counts no more."""
        self.start = max(self.start, shadow.start)
        self.epoch = epoch
        self.resets += 1
