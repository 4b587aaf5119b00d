"""What is asked of the controller: the incarnations that were seen to be in sync, whoever fetches since."""

from __future__ import annotations

import random

import own_partitions

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.metadata.cache import LiveBroker, RequestCache
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.replication.isr_requests import IsrRequests
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.alter_partition import AlterPartitionResponse

US, FOLLOWER = 1, 2
LAG_MS = PartitionSettings().lag_time_max_ms
T = TopicPartition("t", 0)
TOPIC_ID = Uuid(b"5" * 16)


class Rig:
    """Broker 1 leads alone, unless the ISR is another; broker 2 is a replica that is alive."""

    def __init__(self, topic_id=TOPIC_ID, isr=(US,)):
        rng = random.Random(1)
        config = LogConfig(topic_id=None, producer_snapshots=False)
        dirs = LogDirs(SimulatedDisk(rng), ["/d"], US, lambda topic: config, 0, 0, rng.randbytes)
        cache = RequestCache()
        cache.brokers = {each: LiveBroker(each, None, {}) for each in (US, FOLLOWER)}
        self.proposals = proposals = KeyedQueue()
        self.replicas = Replicas(US, dirs, cache, lambda topic: PartitionSettings(), proposals=proposals)
        self.requests = IsrRequests(US, lambda: 70, self.replicas, proposals, lambda kind, text: None, lambda: 0)
        self.partition = own_partitions.add(self.replicas, T, topic_id).partition
        self.partition.become_leader(Assignment(US, 3, 3, (US, FOLLOWER), isr), 0)
        self.partition.append(build_batch([b"a", b"b"], timestamp_ms=1), 0)

    def fetched(self, offset, epoch):
        self.replicas.carry_out(T, self.partition.fetched(FOLLOWER, offset, 0, epoch))

    def members(self, request):
        (asked,) = request.message.topics[0].partitions
        return {each.broker_id: each.broker_epoch for each in asked.new_isr_with_epochs}


def test_the_incarnation_that_was_in_sync_is_proposed_though_another_fetches_since():
    rig = Rig()
    rig.fetched(2, 80)
    rig.fetched(0, 90)  # it was started again, and has lost what was not on its disk
    request = rig.requests.take()
    assert rig.members(request) == {US: 70, FOLLOWER: 80}
    rig.requests.answered(request, Failure.TIMED_OUT)
    assert rig.members(rig.requests.take()) == {US: 70, FOLLOWER: 80}


def test_a_refusal_goes_back_to_what_was_committed():
    rig = Rig()
    rig.fetched(2, 80)
    request = rig.requests.take()
    topic = AlterPartitionResponse.TopicData
    refused = topic.PartitionData(partition_index=0, error_code=ErrorCode.INELIGIBLE_REPLICA)
    answer = AlterPartitionResponse(topics=[topic(topic_id=TOPIC_ID, partitions=[refused])])
    rig.requests.answered(request, answer)
    isr = rig.partition.leading.isr
    assert (isr.committed, isr.maximal, isr.is_settled) == ((US,), frozenset({US}), True)
    assert not rig.proposals
    rig.fetched(2, 80)
    assert rig.members(rig.requests.take()) == {US: 70, FOLLOWER: 80}


def test_what_another_epoch_made_of_it_is_not_sent():
    rig = Rig()
    rig.fetched(2, 80)
    rig.replicas.carry_out(T, rig.partition.become_follower(Assignment(FOLLOWER, 4, 4, (US, FOLLOWER), (US,))))
    assert rig.requests.take() is None


def test_a_topic_without_an_id_keeps_its_isr_and_goes_on_without_a_follower_that_dies():
    """AlterPartition names topics by id: nothing is proposed, and nothing waits for what was not."""
    rig = Rig(topic_id=None)
    rig.fetched(2, 80)
    assert rig.partition.high_watermark == 2
    assert rig.requests.take() is None
    rig.partition.append(build_batch([b"c"], timestamp_ms=1), 1)
    assert rig.partition.high_watermark == 2  # it keeps up, so it is waited for
    rig.replicas.carry_out(T, rig.partition.check_lag(LAG_MS + 1))
    assert rig.partition.high_watermark == 3
    assert rig.partition.leading.isr.committed == (US,)


def test_changes_of_the_isr_begin_with_the_topics_id():
    rig = Rig(topic_id=None, isr=(US, FOLLOWER))
    rig.replicas.carry_out(T, rig.partition.check_lag(LAG_MS + 1))
    assert (rig.requests.take(), rig.partition.leading.isr.is_settled) == (None, True)
    run_here(rig.replicas.assign_topic_id(rig.replicas.all[T], TOPIC_ID))
    rig.replicas.carry_out(T, rig.partition.check_lag(LAG_MS + 1))
    assert rig.members(rig.requests.take()) == {US: 70}
