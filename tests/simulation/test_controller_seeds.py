"""A cluster's controllers in the simulator: seeds that must pass, and mistakes that the rules must notice."""

from __future__ import annotations

import pytest
from fresh_seeds import check_it_can_be_had_again, first_fresh_seed
from suite_run import deep

from kraftcore import raft, simulation
from kraftcore.plugins import controller
from kraftcore.plugins.controller.simulated.planted import FAULTS
from kraftcore.plugins.controller.simulated.workload import Controllers
from kraftcore.simulation.runs import run_seed

FRESH = first_fresh_seed([raft, simulation, controller])
BLOCK = 8  # seeds in a test
TRIES = 12  # from the seed that caught a mistake once: other changes may move it
# A seed to begin with for each mistake, and the rule that it breaks.
CAUGHT = {
    "ineligible-accepted": (5, "KIP-841"),
    "leader-epoch-kept": (1, "epochs"),
    "answered-early": (1, "acknowledged"),
    "not-rolled-back": (1, "same state"),
    "ids-not-written": (4, "never again"),
    "broker-epoch-kept": (1, "never again"),
    "fenced-alone": (2, "KIP-841"),
    "shutting-down-leads": (5, "KIP-841"),
    "unclean-forgotten": (1, "epochs"),
    "isr-in-elr": (1, "KIP-841"),
    "applied-twice": (1, "invariant"),
    "half-applied": (1, "whole"),
    "transaction-ended": (27, "whole"),
    "stale-sender-accepted": (4, "stale"),
    "sessions-forgotten": (1, "progress"),
    "old-epoch-told": (1, "told"),
}


def run(seed, minutes=0.5, **options):
    return run_seed(seed, 3 + seed % 3, minutes, workload=Controllers, **options)


def check_block(first):
    answered = 0
    for seed in range(first, first + BLOCK):
        result = run(seed)
        command = f"kraftcore simulate --workload controller --seed {seed} --nodes {3 + seed % 3} --minutes 0.5"
        assert result.rule is None, f"{result.rule}: {result.detail}\n{command}"
        answered += result.commits
    assert answered > 10 * BLOCK


@pytest.mark.parametrize("first", [1, *deep(*range(1 + BLOCK, 25, BLOCK))])
def test_fixed_seeds(first):
    check_block(first)


@pytest.mark.parametrize("first", [FRESH, *deep(*range(FRESH + BLOCK, FRESH + 24, BLOCK))])
def test_fresh_seeds(first):
    """Other ones with every commit."""
    check_block(first)


def test_a_run_can_be_had_again():
    check_it_can_be_had_again(run)


def test_without_faults_everything_is_answered():
    result = run(3, faults=())
    assert (result.rule, result.epochs) == (None, 1)
    assert result.commits > 50


@pytest.mark.deep
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_mistake_is_caught(name):
    first, rule = CAUGHT[name]
    with FAULTS[name].planted():
        found = (run(seed, 1.0).rule for seed in range(first, first + TRIES))
        assert next(filter(None, found), None) == rule
