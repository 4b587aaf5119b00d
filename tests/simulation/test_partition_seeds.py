"""Partitions of brokers in the simulator: seeds that must pass, and mistakes that the rules must notice."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from fresh_seeds import check_it_can_be_had_again, first_fresh_seed
from suite_run import deep

from kraftcore import raft, simulation
from kraftcore.core.batch import RecordBatch
from kraftcore.core.uuid import Uuid
from kraftcore.plugins import broker, controller
from kraftcore.plugins.broker.api import produce
from kraftcore.plugins.broker.simulated.clients import IdempotentProducer, TransactionalProducer
from kraftcore.plugins.broker.simulated.planted import FAULTS
from kraftcore.plugins.broker.simulated.truth import ABORTED, COMMITTED
from kraftcore.plugins.broker.simulated.workload import Partitions
from kraftcore.protocol.frames import decode_request
from kraftcore.simulation.runs import run_seed

FRESH = first_fresh_seed([raft, simulation, controller, broker])
BLOCK = 6  # seeds in a test
TRIES = 12  # from the seed that caught a mistake once: other changes may move it
# A seed to begin with for each mistake, and the rules that it may break.
CAUGHT = {
    "shrunk-at-once": (12, {"in sync"}),
    "cut-at-high-watermark": (1, {"in sync", "committed stays", "producers"}),
    "start-kept": (105, {"in sync"}),
    "expanded-early": (5, {"in sync"}),
    "fenced-proposed": (1, {"proposed"}),
    "old-log-kept": (28, {"high watermark", "own records", "logs agree", "progress", "committed stays", "consumers"}),
    "told-when-appended": (1, {"acknowledged"}),
    "too-few-acknowledged": (1, {"acknowledged"}),
    "divergence-not-told": (77, {"logs agree", "in sync", "committed stays"}),
    "leader-alone": (1, {"in sync"}),
    "sent-counts": (1, {"in sync"}),
    "sequence-not-checked": (1, {"once", "sequences"}),
    "fenced-epoch-taken": (5, {"once", "sequences"}),
    "producers-not-cut": (5, {"producers"}),
    "gap-is-cut": (17, {"disk", "in sync"}),
    "open-transaction-read": (5, {"transactions"}),
    "aborted-not-told": (5, {"transactions"}),
    "late-answer-taken": (317, {"in sync", "logs agree", "committed stays"}),
    "directory-not-told": (2, {"progress"}),
    "failed-directory-serves": (12, {"error", "progress", "epochs", "in sync"}),
    "heavy-appended-late": (51, {"acknowledged", "logs agree", "in sync", "committed stays"}),
    "heavy-overtaken": (5, {"order"}),
    "heavy-told-when-appended": (5, {"acknowledged"}),
    "heavy-not-searched": (5, {"times"}),
    "uncommitted-read": (1, {"consumers"}),
}
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


@pytest.mark.parametrize("first", [1, *deep(*range(1 + BLOCK, 19, BLOCK))])
def test_fixed_seeds(first):
    check_block(first)


@pytest.mark.deep
def test_seeds_reach_what_is_rare():
    """Brokers found dead, power cuts, records lost by the rules, failed log directories, requests beside held ones,
    batches cleaned away, transactions committed and aborted, batches checked aside, some of them while their leader
    changed, requests that waited behind those, and such that waited for a partition to be led."""
    reached = [0] * 12
    for seed in range(19, 120):
        assert run(seed).rule is None
        reached[0] += seen[0].found_dead
        reached[1] += sum(broker.lost_power for broker in seen[0].brokers)
        reached[2] += seen[0].partitions.losses
        reached[3] += sum(broker.lost_directories for broker in seen[0].brokers)
        reached[4] += sum(broker.asked_beside for broker in seen[0].brokers)
        reached[5] += sum(broker.cleaned for broker in seen[0].brokers)
        outcomes = Counter(each for truth in seen[0].partitions.truths.values() for each in truth.outcomes.values())
        reached[6] += outcomes[COMMITTED]
        reached[7] += outcomes[ABORTED]
        reached[8] += sum(broker.done_aside for broker in seen[0].brokers)
        reached[9] += sum(broker.moved_aside for broker in seen[0].brokers)
        reached[10] += sum(broker.held for broker in seen[0].brokers)
        reached[11] += sum(broker.held_for_making for broker in seen[0].brokers)
        if all(reached):
            break
    assert all(reached)


@pytest.mark.parametrize("first", [FRESH, *deep(*range(FRESH + BLOCK, FRESH + 12, BLOCK))])
def test_fresh_seeds(first):
    """Other ones with every commit."""
    check_block(first)


def test_a_run_can_be_had_again():
    check_it_can_be_had_again(run)


def test_what_production_logs_and_survives_ends_a_run(monkeypatch):
    def fail(*_):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(produce, "prepare_aside", fail)
    with pytest.raises(ValueError, match="a mistake of ours"):
        run(5)


def test_numbers_are_those_of_another_producer_when_a_topic_is_made_anew():
    frames = []
    world = SimpleNamespace(
        seed=1,
        agenda=SimpleNamespace(now=0),
        network=SimpleNamespace(request=lambda *request: frames.append(decode_request(request[-1])[1])),
    )
    topic = SimpleNamespace(name="t", id=Uuid(b"of the first one"))
    rules = SimpleNamespace(reference=SimpleNamespace(topics=SimpleNamespace(by_name=lambda name: topic)))
    producer = IdempotentProducer(world, -202, rules, lambda batch: None)
    producer.produce(("t", 0), 101)
    producer.produce(("t", 0), 101)
    topic.id = Uuid(b"of the other one")
    producer.produce(("t", 0), 101)
    sent = [RecordBatch(frame.topic_data[0].partition_data[0].records) for frame in frames]
    assert [(batch.producer_id, batch.base_sequence) for batch in sent] == [(202_000, 0), (202_000, 0), (202_001, 0)]
    assert sent[0].crc == sent[1].crc


def test_a_transaction_ends_when_its_topic_is_made_anew():
    frames, decided = [], []
    world = SimpleNamespace(
        seed=1,
        calm=False,
        agenda=SimpleNamespace(now=0),
        network=SimpleNamespace(request=lambda *request: frames.append(decode_request(request[-1])[1])),
    )
    topic = SimpleNamespace(name="t", id=Uuid(b"of the first one"))
    topics = SimpleNamespace(by_name=lambda name: topic, values=lambda: [topic])
    partitions = SimpleNamespace(of_topic=lambda topic_id: [(0, SimpleNamespace(leader=101))])
    rules = SimpleNamespace(reference=SimpleNamespace(topics=topics, partitions=partitions))
    watch = SimpleNamespace(
        numbered=lambda batch: None, decided=lambda *told, is_commit: decided.append((*told, is_commit))
    )
    producer = TransactionalProducer(world, -204, rules, watch, {101})
    while not frames:
        producer.act()
    topic.id = Uuid(b"of the other one")
    while not decided or len(frames) < 12:
        producer.act()
    sent = [RecordBatch(frame.topic_data[0].partition_data[0].records) for frame in frames]
    assert decided[0] == (204_000, 1, False)
    numbers = {(batch.producer_epoch, batch.base_sequence): batch.crc for batch in sent}
    assert len({batch.crc for batch in sent}) == len(numbers) > 1


@pytest.mark.deep
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_mistake_is_caught(name):
    first, rules = CAUGHT[name]
    with FAULTS[name].planted():
        found = (run(seed).rule for seed in range(first, first + TRIES))
        assert next(filter(None, found), None) in rules
