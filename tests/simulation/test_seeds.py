"""Whole quorums in the simulator: seeds that must pass, that once failed, and that the caller names."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from fresh_seeds import first_fresh_seed
from suite_run import deep

from kraftcore import raft, simulation
from kraftcore.simulation.checks import Violation
from kraftcore.simulation.counters import Counters
from kraftcore.simulation.options import FAULTS, LATER, Options, draw_options
from kraftcore.simulation.planted import FAULTS as PLANTED
from kraftcore.simulation.runs import run_seed, shortest_failure
from kraftcore.simulation.timeline import Timeline
from kraftcore.simulation.world import World

KEPT_FAULTS = tuple(fault for fault in FAULTS if fault not in LATER)  # what seeds drew when those below were found
# Each once broke a rule: a bug of the replica, or a check that was too strict.
ONCE_FAILED = [
    (157, 4, "a log cleaned up to its snapshot was thrown away at the next start"),
    (1013, 5, "the same, found by another road"),
    (4919, 5, "snapshots older than the log's start vouched for what stood before it"),
    (20880, 3, "an answer to an older Fetch at the same offset cut off what was acknowledged"),
    (3425, 5, "votes for an earlier epoch arrived late, after a later leader had committed"),
    (3628, 4, "an uncommitted removal of a needed voter beside a dead one"),
    (4145, 5, "a voter set of records that a snapshot had replaced"),
]


BLOCK = 20  # seeds in a test: small enough to share between workers
FRESH = first_fresh_seed([raft, simulation])


def check(seed, nodes, minutes=0.5, **options):
    result = run_seed(seed, nodes, minutes, **options)
    assert result.rule is None, (
        f"{result.rule}: {result.detail}\n"
        f"kraftcore simulate --seed {seed} --nodes {nodes} --minutes {minutes} {options or ''}"
    )
    return result


def check_block(first, count):
    """Seeds of 3, 4 and 5 nodes in turn; what fails says how to have it again."""
    commits = sum(check(seed, 3 + seed % 3, 1.0).commits for seed in range(first, first + count))
    assert commits > 20 * count


@pytest.mark.parametrize("first", [*range(1, 21, BLOCK), *deep(*range(21, 121, BLOCK))])
def test_fixed_seeds(first):
    check_block(first, BLOCK)


@pytest.mark.parametrize("first", [FRESH, *deep(*range(FRESH + BLOCK, FRESH + 240, BLOCK))])
def test_fresh_seeds(first):
    """Other ones with every commit."""
    check_block(first, BLOCK)


@pytest.mark.parametrize(("seed", "nodes", "why"), ONCE_FAILED, ids=lambda value: str(value)[:5])
def test_seed_that_once_failed(seed, nodes, why):
    check(seed, nodes, 1.0, faults=KEPT_FAULTS)


def test_seeds_from_the_environment():
    """``KRAFTCORE_SEEDS=A..B`` runs those instead of one."""
    first, last = (int(part) for part in os.environ.get("KRAFTCORE_SEEDS", "7..7").split(".."))
    for seed in range(first, last + 1):
        check(seed, 3 + seed % 3)


def test_a_run_can_be_had_again():
    first, second = (Timeline(), Timeline())
    one = run_seed(11, 4, 0.3, timeline=first)
    two = run_seed(11, 4, 0.3, timeline=second)
    assert first.lines == second.lines
    assert (one.events, one.commits, one.simulated_s) == (two.events, two.commits, two.simulated_s)


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_other_sizes(nodes):
    for seed in range(1, 9):
        check(seed, nodes)


def test_without_faults_there_is_one_leader_and_everything_is_committed():
    result = check(3, 3, faults=())
    assert result.epochs == 1
    assert result.commits > 50


def test_a_host_that_begins_alone_at_the_end_does_not_hide_what_was_before():
    seed = next(seed for seed in range(100) if draw_options(seed, 3, 0.5, FAULTS).comes_alone)
    result = check(seed, 3, 0.5)
    assert result.epochs > 0
    assert result.commits > 10


def test_the_power_goes_between_any_two_steps_of_a_snapshots_way_into_the_logs_place(monkeypatch):
    """Here oftener than usual, so that a few seeds see all of them."""
    monkeypatch.setattr(
        World, "cuts_power_while_installing", lambda world, host: not world.calm and host.rng.random() < 0.4
    )
    seen = set()
    for seed in range(1, 101):
        timeline = Timeline()
        assert run_seed(seed, 3, 0.3, faults=("crash", "replace", "partition"), timeline=timeline).rule is None
        seen |= {step for line in timeline.lines for step in re.findall(r"a snapshot is (\w+), and the", str(line))}
        if seen == {"verified", "synced", "renamed", "cut"}:
            return
    raise AssertionError(f"only {seen}")


def test_options_only_draw_allowed_faults():
    for seed in range(50):
        options = draw_options(seed, 5, 1, ("crash",))
        assert options.loss == options.partition_every == options.members_every == options.disk_every == 0
        assert options.high_watermark_linger_ms == options.observer_linger_ms == options.reluctant_hosts == 0
    drawn = [draw_options(seed, 5, 1, FAULTS) for seed in range(50)]
    assert {options.kraft_version for options in drawn} == {0, 1}
    assert {options.high_watermark_linger_ms for options in drawn} > {0, 1}
    assert {options.observer_linger_ms for options in drawn} > {0, 1}
    assert {options.reluctant_hosts for options in drawn} == {0, 1, 2}
    assert {options.gathers for options in drawn} == {False, True}
    assert min(options.apply_bytes for options in drawn) == 1
    assert {options.retries > 0 for options in drawn} == {options.decisions > 0 for options in drawn} == {False, True}


def test_a_kept_seed_draws_what_it_did_before_more_was_drawn():
    for seed in range(50):
        drawn = draw_options(seed, 5, 1, FAULTS)
        later = {
            "high_watermark_linger_ms": 0,
            "reluctant_hosts": 0,
            "gathers": False,
            "max_batch_bytes": 1 << 20,
            "apply_bytes": 1 << 20,
            "retries": 0.0,
            "decisions": 0.0,
            "lost_every": 0,
            "comes_alone": False,
            "observer_linger_ms": 0,
            "leader_lease_ms": 0,
            "lease_of_some_ms": 0,
            "lease_cuts_every": 0,
            "lease_reads_every": 0,
        }
        assert draw_options(seed, 5, 1, KEPT_FAULTS) == replace(drawn, **later)


@pytest.mark.parametrize(
    ("name", "seed", "lease_ms", "of_some_ms"),
    [
        ("promise-broken", 1, 1300, 0),
        ("lease-from-arrival", 1, 800, 800),
        ("promise-forgotten", 1, 3000, 0),
        ("drift-ignored", 3, 1300, 0),
    ],
)
def test_a_wrong_lease_is_noticed(name, seed, lease_ms, of_some_ms):
    """Leaders are cut off when they have asked for a lease; nothing else happens."""
    options = Options(
        nodes=3,
        spares=0,
        minutes=0.4,
        kraft_version=1,
        delay_ms=3.0,
        asymmetric=0.4,
        append_every=100,
        election_timeout_ms=300,
        fetch_timeout_ms=1000,
        fast_failover=False,
        leader_lease_ms=lease_ms,
        lease_of_some_ms=of_some_ms,
        lease_cuts_every=4000,
        lease_reads_every=50,
    )
    World(seed, options, Counters).run()
    with PLANTED[name].planted(), pytest.raises(Violation) as caught:
        World(seed, options, Counters).run()
    assert caught.value.rule == "linearizable reads"


@pytest.mark.parametrize("name", ["votes-twice", "stale-log-elected", "majority-off-by-one", "appended-twice"])
def test_planted_fault_is_caught_and_taken_out_again(name):
    fault = PLANTED[name]
    before = fault.owner.__dict__[fault.attribute]
    with fault.planted():
        result = run_seed(1, 4, 1.0)
        assert result.rule is not None
        events = shortest_failure(result, 4, 1.0, FAULTS, tries=3)
        assert 0 < events <= result.events
        assert run_seed(1, 4, 1.0, event_limit=events).rule is not None
    assert fault.owner.__dict__[fault.attribute] is before
    assert run_seed(1, 4, 0.2).rule is None


def test_the_picture_shows_every_host():
    timeline = Timeline(messages=False)
    result = run_seed(5, 3, 0.3, timeline=timeline)
    picture = timeline.svg(5, 3, int(result.simulated_s * 1e6))
    assert picture.startswith("<svg") and picture.endswith("</svg>\n")
    assert all(f"host {number}" in picture for number in (1, 2, 3))
