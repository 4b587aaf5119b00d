"""Power cuts at every point of recorded work: what was synced is there, nothing else is invalid, and work goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import pytest
from fresh_seeds import first_fresh_seed
from log_model import FOLDER, TINY, Model, Work, contents
from suite_run import deep

import kraftcore.core.log
from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.simulated import CRASH_MODES, SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig

QUICK = range(int(os.environ.get("KRAFTCORE_CRASH_SEEDS", "3")))
FOUND = (14, 17, 20, 21)  # once found a fault each
FRESH = [first_fresh_seed([kraftcore.core.log]) + number for number in range(4)]
SEEDS = [*QUICK, *deep(*(seed for seed in (*FOUND, *FRESH) if seed not in QUICK))]
STEPS = 45
CONFIGS = {"at once": TINY, "names wait": replace(TINY, allow_gaps=True, names_wait=True)}


class Moment(NamedTuple):
    """The state after a step: how long the trace was, what the log must hold, and the step that comes next."""

    trace: int
    model: Model
    next_step: str


def record(seed: int, config: LogConfig = TINY) -> tuple[list[tuple[Any, ...]], list[Moment]]:
    disk = SimulatedDisk(Random(seed), record=True)
    work = Work(seed, disk, replace(config, preallocate_bytes=4096 * (seed % 2)))
    moments = [Moment(0, Model(), "open")]
    for _ in range(STEPS):
        name = work.draw()
        moments.append(Moment(len(disk.trace or ()), work.model.copy(), name))
        work.step(name)
    moments.append(Moment(len(disk.trace or ()), work.model.copy(), "end"))
    assert disk.trace is not None
    return disk.trace, moments


def agrees(found: list[bytes], start: int, end: int, model: Model) -> bool:
    """Whether the batches found are a run of the model's, from ``start`` on."""
    expected = [batch for batch in model.batches if batch.next > start and batch.next <= end]
    if (expected[-1].next if expected else start) != end:
        return False
    return found == [batch.data for batch in expected]


def check_survivor(log: Log, before: Moment, after: Moment) -> None:
    log.check_invariants()
    found = contents(log)
    controls = [batch.base_offset for data in found for batch in iter_batches(data) if batch.is_control]
    assert log.control_offsets() == [offset for offset in controls if offset >= log.log_start_offset]
    start, end = log.log_start_offset, log.log_end_offset
    candidates = (before.model, after.model)
    assert any(agrees(found, start, end, model) for model in candidates), (before.next_step, start, end)
    assert start <= max(model.start for model in candidates)
    floors = {
        "truncate": min(before.model.flushed, after.model.end),
        "truncate_fully": 0,
        "end": before.model.flushed,
    }
    assert end >= floors.get(before.next_step, before.model.flushed), (before.next_step, start, end)
    assert log.flushed_offset == end
    known = [(batch.epoch, batch.base) for model in candidates for batch in model.batches if start <= batch.base < end]
    if found:
        assert log.last_epoch == max(epoch for epoch, _ in known if log.epoch_at(end - 1) == epoch)


def go_on(disk: SimulatedDisk, log: Log, config: LogConfig = TINY) -> None:
    """The log takes appends, keeps them, and the next start after a clean stop trusts it."""
    end = log.log_end_offset
    epoch = log.last_epoch or 0
    assert log.append_as_leader(build_batch([b"after", b"all"], timestamp_ms=5), epoch, 5) == end
    log.flush()
    log.check_invariants()
    log.close()
    again = Log.open(disk, FOLDER, config, now_ms=0)
    assert again.recovery_actions == []
    assert again.log_end_offset == end + 2
    again.check_invariants()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("mode", CRASH_MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_prefix_of_a_trace_reopens(seed: int, mode: str, config: LogConfig) -> None:
    trace, moments = record(seed, config)
    rng = Random(seed)
    for before, after in pairwise(moments):
        for count in range(before.trace, after.trace + 1):
            disk = SimulatedDisk.replay(trace, rng, count=count).crash(mode)  # type: ignore[arg-type]
            log = Log.open(disk, FOLDER, config, now_ms=0, is_ours=config.names_wait)
            check_survivor(log, before, after)
            go_on(disk, log, config)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_during_recovery_loses_nothing_either(seed: int) -> None:
    trace, moments = record(seed + 1000)
    rng = Random(seed)
    for before, after in pairwise(moments):
        count = rng.randint(before.trace, after.trace)
        disk = SimulatedDisk.replay(trace, rng, count=count).crash("mixed")
        copy = SimulatedDisk(rng, record=True)
        for name in ("", *disk.list_folder(FOLDER)) if disk.exists(FOLDER) else ():
            if not name:
                copy.make_folder(FOLDER)
                continue
            with copy.open(f"{FOLDER}/{name}", create=True) as file:
                file.write_at(0, disk.read_file(f"{FOLDER}/{name}"))
                file.sync(whole=True)
            copy.sync_folder(FOLDER)
        assert copy.trace is not None
        begun = len(copy.trace)
        Log.open(copy, FOLDER, TINY, now_ms=0)
        for cut in range(begun, len(copy.trace) + 1):
            again = SimulatedDisk.replay(copy.trace, rng, count=cut).crash("mixed")
            log = Log.open(again, FOLDER, TINY, now_ms=0)
            check_survivor(log, before, after)
            go_on(again, log)


def test_what_was_not_flushed_may_go_but_only_from_the_end() -> None:
    """The crash test can fail: without a flush the lost mode leaves nothing, with one it leaves all."""
    for flush in (False, True):
        disk = SimulatedDisk(Random(3))
        log = Log.open(disk, FOLDER, TINY, now_ms=0)
        for number in range(10):
            log.append_as_leader(build_batch([b"%d" % number], timestamp_ms=1), 1, 0)
        if flush:
            log.flush()
        again = Log.open(disk.crash("lost"), FOLDER, TINY, now_ms=0)
        assert again.log_end_offset == (10 if flush else 0)
