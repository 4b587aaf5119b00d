"""Decisions that were made and are not appended: nothing stays of them, neither in image nor in brokers' sessions."""

from __future__ import annotations

import random

import pytest
from controller_stage import FEATURES_OF_BROKERS, directory, incarnation

from kraftcore.errors import LocalError, NotLeaderError
from kraftcore.executor.decisions import DecisionQueue
from kraftcore.metadata import MetadataMachine
from kraftcore.plugins.controller import brokers, topics
from kraftcore.plugins.controller.decision import ControllerSettings
from kraftcore.plugins.controller.life import Life, Step
from kraftcore.plugins.controller.settings import Periods
from kraftcore.protocol.features import METADATA_VERSION, MetadataVersion
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord

CLUSTER = "c"
FAR = 10**6


class RefusableStep(Step):
    def __init__(self, life, api, request, version):
        super().__init__(life)
        self.error = None
        self._ask = lambda context: api(context, request, version)

    def make(self, context):
        return self._ask(context)

    def failed(self, error):
        super().failed(error)
        self.error = error


class Leading:
    """An active controller whose log takes what it is given, or refuses it."""

    def __init__(self, max_batch_bytes=10**6):
        level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=int(MetadataVersion.V4_3_IV0))
        bootstrap = [encode_metadata_record(level, 0)]
        self.machine = MetadataMachine()
        draw = random.Random(1)
        settings = ControllerSettings(CLUSTER)
        self.life = Life(self.machine, settings, Periods(), draw, lambda: bootstrap, lambda: 1, max_batch_bytes)
        self.queue = DecisionQueue(max_batch_bytes)
        self.end = 0
        self.run(self.life.lead(1, 0))

    @property
    def brokers(self):
        return self.machine.image.brokers

    @property
    def sessions(self):
        return self.life.soft.sessions

    def run(self, *steps, takes=True):
        self.queue.pending.extend(steps)
        decided = self.queue.decide(self.end, 1, self.life.now_ms)
        if takes:
            self.end = decided.end
            self.queue.took(decided)
        else:
            self.queue.refused(decided, lambda: NotLeaderError(None, None, "leadership is being handed over"))

    def pass_time(self, now_ms, *, takes=True):
        for step in self.life.due(now_ms):
            self.run(step, takes=takes)

    def register(self, number, process=1, more_features=0):
        kind = BrokerRegistrationRequest
        ranges = FEATURES_OF_BROKERS | {f"more-{each}": (0, 1) for each in range(more_features)}
        request = kind(
            broker_id=number,
            cluster_id=CLUSTER,
            incarnation_id=incarnation(number, process),
            listeners=[kind.Listener(name="PLAINTEXT", host="h", port=1)],
            features=[
                kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in ranges.items()
            ],
            log_dirs=[directory(number, process)],
        )
        return RefusableStep(self.life, brokers.register, request, 4)

    def beat(self, number, *, leaves=False):
        request = BrokerHeartbeatRequest(
            broker_id=number,
            broker_epoch=self.brokers[number].epoch,
            current_metadata_offset=FAR,
            want_shut_down=leaves,
        )
        return RefusableStep(self.life, brokers.heartbeat, request, 1)

    def up(self, *numbers):
        for number in numbers:
            self.run(self.register(number))
            self.run(self.beat(number))
            assert not self.brokers[number].is_fenced


def test_a_dead_broker_is_fenced_after_its_fencing_was_refused():
    leading = Leading()
    leading.up(1)
    leading.pass_time(20_000, takes=False)
    assert not leading.brokers[1].is_fenced
    assert list(leading.sessions) == [1]
    assert leading.life.due_ms > 20_000, "tried again at once it would be refused again, without end"
    while not leading.brokers[1].is_fenced and leading.life.now_ms < 25_000:
        leading.pass_time(leading.life.due_ms)
    assert leading.brokers[1].is_fenced
    assert not leading.sessions


def test_a_shutdown_whose_beginning_was_refused_begins():
    leading = Leading()
    leading.up(1, 2)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=2)
    leading.run(RefusableStep(leading.life, topics.create, CreateTopicsRequest(timeout_ms=1000, topics=[topic]), 7))
    count = leading.machine.image.partitions.leadership_count
    assert count(1)
    leading.run(leading.beat(1, leaves=True), takes=False)
    assert not leading.sessions[1].is_shutting_down
    leading.run(leading.beat(1, leaves=True))
    assert leading.brokers[1].is_shutting_down
    assert not count(1)
    leading.run(leading.beat(2))
    last = leading.beat(1, leaves=True)
    leading.run(last)
    assert last.made.answer.should_shut_down


def test_a_registration_that_fits_no_batch_leaves_the_earlier_process_as_it_was():
    leading = Leading(max_batch_bytes=4_000)
    leading.up(1)
    leading.life.now_ms = 9_500  # its session is over, and the timer has not looked yet
    step = leading.register(1, process=2, more_features=400)
    leading.run(step)
    assert isinstance(step.error, LocalError)
    assert list(leading.sessions) == [1]
    while not leading.brokers[1].is_fenced and leading.life.now_ms < 15_000:
        leading.pass_time(leading.life.due_ms)
    assert leading.brokers[1].is_fenced


@pytest.mark.parametrize("first", ["registration", "heartbeat"])
def test_all_that_was_decided_together_goes_back(first):
    leading = Leading()
    leading.up(1, 2)
    before = dict(leading.sessions)
    leading.life.now_ms = 1_000
    steps = [leading.register(3), leading.beat(1), leading.beat(2, leaves=True)]
    leading.run(*(steps if first == "registration" else steps[::-1]), takes=False)
    assert leading.sessions == before
    assert set(leading.brokers) == {1, 2}
    leading.run(*steps[1:2], leading.register(3), leading.beat(2))
    assert leading.sessions[1].contact_ms == leading.sessions[2].contact_ms == 1_000
    assert set(leading.brokers) == {1, 2, 3}
