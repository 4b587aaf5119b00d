"""A naive log in plain Python, and random work for it and the real one, step by step the same."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, NamedTuple

from kraftcore.core.batch import build_batch, build_records_batch, iter_batches
from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig

FOLDER = "/disk/topic-0"
TINY = LogConfig(
    segment_bytes=900,
    index_interval_bytes=150,
    index_bytes_max=96,
    segment_ms=500,
    tail_bytes=1500,
    file_delete_delay_ms=1000,
)


class Stored(NamedTuple):
    base: int
    next: int
    epoch: int
    timestamp: int
    data: bytes

    @property
    def is_control(self) -> bool:
        return bool(self.data[22] & 0x20)


@dataclass
class Model:
    """What the log must hold. Batches below the start are kept: a restart may bring some of them back."""

    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    flushed: int = 0
    empty_end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].next if self.batches else self.empty_end

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else 0

    def append(self, stored: Stored) -> None:
        if not self.epochs or stored.epoch > self.epochs[-1][0]:
            self.begin_epoch(stored.epoch)
        self.batches.append(stored)

    def begin_epoch(self, epoch: int) -> None:
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        self.epochs.append((epoch, self.end))

    def truncate(self, offset: int) -> None:
        if offset < self.end:
            first = self.batches[0].base if self.batches else self.end
            self.batches = [batch for batch in self.batches if batch.next <= offset]
            if not self.batches:
                self.empty_end = first
            self.flushed = min(self.flushed, self.end)
        if self.epochs:
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
            if not self.epochs and self.end > self.start:
                self.epochs = [(self.batches[-1].epoch, self.start)]

    def truncate_fully(self, offset: int) -> None:
        self.batches, self.epochs = [], []
        self.start = self.flushed = self.empty_end = offset

    def delete_below(self, offset: int) -> None:
        if offset <= self.start:
            return
        self.start = offset
        below = [entry for entry in self.epochs if entry[1] <= offset]
        if below:
            self.epochs = [(below[-1][0], offset), *(entry for entry in self.epochs if entry[1] > offset)]

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        if epoch >= self.epoch:
            return self.end, self.epoch
        lower = [known for known, _ in self.epochs if known <= epoch]
        higher = [start for known, start in self.epochs if known > epoch]
        return higher[0], lower[-1] if lower else epoch

    def read(self, offset: int, up_to: int | None, limit: int, at_least_one: bool) -> bytes:
        result = b""
        for batch in self.batches:
            if batch.next <= offset:
                continue
            if up_to is not None and batch.next > up_to:
                break
            if len(result) + len(batch.data) > limit and not (at_least_one and not result):
                break
            result += batch.data
        return result

    def control_offsets(self) -> list[int]:
        return [batch.base for batch in self.batches if batch.is_control and batch.base >= self.start]

    def copy(self) -> Model:
        return copy.deepcopy(self)


def contents(log: Log) -> list[bytes]:
    """Every batch, read in small steps."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        batches = list(iter_batches(log.read(offset, 300)))
        assert batches, offset
        found += [batch.to_bytes() for batch in batches]
        offset = batches[-1].next_offset
    return found


class Work:
    """Applies random steps to a log and its model."""

    def __init__(self, seed: int, files: Files, config: LogConfig = TINY) -> None:
        self.rng = Random(seed)
        self.files = files
        self.config = config
        self.now = 1000
        self.model = Model()
        self.log = Log.open(files, FOLDER, config, now_ms=self.now)

    def values(self) -> list[bytes]:
        count = self.rng.choice((1, 1, 1, 2, 5))
        return [self.rng.randbytes(self.rng.choice((0, 1, 20, 60))) for _ in range(count)]

    def build(self, values: list[bytes], **fields: int) -> bytearray:
        if self.rng.random() < 0.15:
            return build_records_batch([(b"\0\0\0\2", value) for value in values], control=True, **fields)
        return build_batch(values, **fields)

    def append_as_leader(self) -> None:
        batch = self.build(self.values(), timestamp_ms=self.now - self.rng.randint(0, 30))
        epoch = self.model.epoch + (self.rng.random() < 0.1)
        base = self.log.append_as_leader(batch, epoch, self.now)
        assert base == self.model.end
        (found,) = iter_batches(batch)
        self.model.append(Stored(base, found.next_offset, epoch, found.max_timestamp_ms, bytes(batch)))

    def append_as_follower(self) -> None:
        stored = []
        offset, epoch = self.model.end, self.model.epoch
        for _ in range(self.rng.randint(1, 6)):
            epoch += self.rng.random() < 0.1
            values = self.values()
            timestamp = self.now - self.rng.randint(0, 30)
            data = self.build(values, timestamp_ms=timestamp, base_offset=offset, leader_epoch=epoch)
            stored.append(Stored(offset, offset + len(values), epoch, timestamp, bytes(data)))
            offset += len(values)
        data = b"".join(batch.data for batch in stored)
        partial = stored[0].data[: self.rng.randint(0, len(stored[0].data) - 1)]
        info = self.log.append_as_follower(data + partial, self.now)
        assert info == (stored[0].base, stored[-1].next - 1, len(stored), len(data))
        for batch in stored:
            self.model.append(batch)

    def flush(self) -> None:
        assert self.log.flush() == self.model.end
        self.model.flushed = self.model.end

    def write_out(self) -> None:
        flushed = self.log.flushed_offset
        self.log.write_out()
        assert self.log.flushed_offset == flushed

    def truncate(self) -> None:
        # Never the batch at a start that was raised: what lies below a snapshot is committed.
        floor = min((batch.next for batch in self.model.batches if batch.next > self.model.start), default=0)
        low = max(self.model.start, floor if self.model.start else 0, self.model.end - self.rng.choice((1, 5, 40)))
        offset = self.rng.randint(low, self.model.end + 1)
        self.model.truncate(offset)
        assert self.log.truncate_to(offset) == self.model.end

    def truncate_fully(self) -> None:
        below_start = self.rng.random() < 0.3
        offset = self.rng.randint(0 if below_start else self.model.start, self.model.end + 20)
        self.log.truncate_fully_to(offset, below_start=below_start)
        self.model.truncate_fully(offset)

    def delete(self) -> None:
        offset = self.rng.randint(self.model.start, self.log.flushed_offset)
        if self.rng.random() < 0.8 and self.model.batches:
            offset = max((batch.base for batch in self.model.batches if batch.base <= offset), default=offset)
        remove = self.log.begin_delete_below(offset, self.now)
        self.model.delete_below(offset)
        if self.config.names_wait:
            # A thread removes files, and others append meanwhile.
            for _ in range(self.rng.randrange(3)):
                self.append_as_leader()
        if remove is not None:
            remove()

    def begin_epoch(self) -> None:
        epoch = self.model.epoch + 1
        self.log.assign_epoch_start_offset(epoch, self.model.end)
        self.model.begin_epoch(epoch)

    def roll(self) -> None:
        self.log.roll(self.now)

    def expire(self) -> None:
        self.log.delete_expired(self.now)

    def reopen(self) -> None:
        self.log.close()
        self.log = Log.open(self.files, FOLDER, self.config, now_ms=self.now)
        assert self.log.recovery_actions == []
        self.reopened()

    def reopened(self) -> None:
        """After a restart the log starts at its first segment again, and epochs without records are gone."""
        assert self.log.log_start_offset <= self.model.start
        self.model.start = self.log.log_start_offset
        self.model.flushed = self.model.end
        self.model.epochs = [entry for entry in self.model.epochs if entry[1] < self.model.end]

    STEPS: ClassVar[dict[str, float]] = {
        "append_as_leader": 12,
        "append_as_follower": 6,
        "flush": 6,
        "write_out": 3,
        "truncate": 2,
        "truncate_fully": 0.15,
        "delete": 0.7,
        "begin_epoch": 0.5,
        "roll": 0.7,
        "expire": 1,
        "reopen": 1,
    }

    def draw(self) -> str:
        return self.rng.choices(list(self.STEPS), list(self.STEPS.values()))[0]

    def step(self, name: str | None = None) -> str:
        name = name or self.draw()
        self.now += self.rng.choice((0, 1, 10, 100))
        getattr(self, name)()
        return name

    def check(self) -> None:
        log, model = self.log, self.model
        log.check_invariants()
        assert (log.log_start_offset, log.log_end_offset, log.flushed_offset >= model.flushed) == (
            model.start,
            model.end,
            True,
        )
        assert [tuple(entry) for entry in log.epoch_entries()] == model.epochs
        assert log.control_offsets() == model.control_offsets()
        visible = [batch.data for batch in model.batches if batch.next > model.start]
        assert contents(log) == visible
