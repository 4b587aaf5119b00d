"""Partitions of brokers in the simulator: seeds that must pass, and mistakes that the rules must notice."""

from __future__ import annotations

import pytest
from fresh_seeds import first_fresh_seed

from kraftcore import raft, simulation
from kraftcore.plugins import broker, controller
from kraftcore.plugins.broker.simulated.faults import FAULTS
from kraftcore.plugins.broker.simulated.workload import Partitions
from kraftcore.simulation.runs import run_seed
from kraftcore.simulation.timeline import Timeline

FRESH = first_fresh_seed([raft, simulation, controller, broker])
BLOCK = 6  # seeds in a test
TRIES = 8  # from the seed that caught a mistake once: other changes may move it
# A seed to begin with for each mistake, and the rules that it may break.
CAUGHT = {
    "proposal-not-counted": (7, {"in sync"}),
    "shrunk-at-once": (7, {"in sync"}),
    "cut-at-high-watermark": (4, {"in sync", "committed stays"}),
    "expanded-early": (5, {"in sync"}),
    "fenced-proposed": (3, {"proposed"}),
    "old-log-kept": (10, {"high watermark", "own records", "logs agree"}),
    "told-when-appended": (1, {"acknowledged"}),
    "divergence-not-told": (7, {"logs agree", "in sync"}),
    "leader-alone": (1, {"in sync"}),
    "sent-counts": (1, {"in sync"}),
    "uncommitted-read": (1, {"consumers"}),
    "sequence-not-checked": (1, {"once"}),
}
RARE = (7, 13)
seen: list[Partitions] = []


class Watched(Partitions):
    """Remembers what happened."""

    def __init__(self, world):
        super().__init__(world)
        seen.append(self)


def run(seed, minutes=0.4, **options):
    seen.clear()
    return run_seed(seed, 3, minutes, workload=Watched, **options)


def check_block(first):
    acknowledged = 0
    for seed in range(first, first + BLOCK):
        result = run(seed)
        command = f"kraftcore simulate --workload partitions --seed {seed} --nodes 3 --minutes 0.4"
        assert result.rule is None, f"{result.rule}: {result.detail}\n{command}"
        acknowledged += sum(seen[0].partitions.acknowledged.values())
    assert acknowledged > 100 * BLOCK


@pytest.mark.parametrize("first", range(1, 19, BLOCK))
def test_fixed_seeds(first):
    check_block(first)


def test_seeds_reach_what_is_rare():
    """Brokers found dead by fast fencing, power cuts; records lost by the rules, and only then."""
    dead = power = losses = 0
    for seed in RARE:
        assert run(seed).rule is None
        dead += seen[0].found_dead
        power += sum(broker.lost_power for broker in seen[0].brokers)
        losses += seen[0].partitions.losses
    assert min(dead, power, losses) > 0


@pytest.mark.parametrize("first", range(FRESH, FRESH + 12, BLOCK))
def test_fresh_seeds(first):
    """Other ones with every commit."""
    check_block(first)


def test_a_run_can_be_had_again():
    first, second = (Timeline(), Timeline())
    one, two = run(5, timeline=first), run(5, timeline=second)
    assert first.lines == second.lines
    assert (one.events, one.commits, one.simulated_s) == (two.events, two.commits, two.simulated_s)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_planted_mistake_is_caught(name):
    first, rules = CAUGHT[name]
    with FAULTS[name].planted():
        found = (run(seed).rule for seed in range(first, first + TRIES))
        assert next(filter(None, found), None) in rules
