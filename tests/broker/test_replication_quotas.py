"""Throttled replicas copy no more than their brokers' rates allow, unless they are in sync (KIP-73)."""

import asking
import pytest
import trio
from broker_rig import until

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image
from kraftcore.plugins.broker.metadata.local_changes import LocalChanges
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.quotas.rates import UNLIMITED, LimitedRate, QuotaWindow, SimpleRate
from kraftcore.plugins.broker.quotas.replication import ReplicationQuotas
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.records.config_record import ConfigRecord

US = 1
TOPIC, BROKER = 2, 4
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
MOVES = "replica.alter.log.dirs.io.max.bytes.per.second"
FOR_LONG = {"replication_quota_samples": 2, "replication_quota_sample_s": 1000}
VALUES = [b"%d" % number * 1000 for number in range(10)]


def test_a_simple_rate_begins_with_its_oldest_sample():
    rate = SimpleRate(QuotaWindow(3, 1000))
    rate.record(6000, 0)
    assert rate.per_second(0) == rate.per_second(1000) == 6000  # a whole sample at least
    assert rate.per_second(2000) == 3000
    rate.record(1000, 2000)
    assert rate.per_second(2999) == 7000 / 2.999
    assert rate.per_second(3000) == 1000  # of the last second: the first sample has gone
    assert rate.per_second(5000) == 0


class Limited:
    """A `LimitedRate` of 1000 bytes a second, and its clock."""

    def __init__(self):
        self.now_ms = 0
        self.rate = LimitedRate(QuotaWindow(11, 1000), lambda: self.now_ms)
        self.rate.limit = 1000


def test_a_limit_is_exceeded_until_time_has_made_up_for_it():
    on = Limited()
    on.rate.record(1000)
    assert not on.rate.is_exceeded
    on.rate.record(200)
    assert on.rate.is_exceeded
    assert on.rate.wait_ms == 200
    on.now_ms = 1199
    assert (on.rate.is_exceeded, on.rate.wait_ms) == (True, 1)
    on.now_ms = 1200
    assert not on.rate.is_exceeded
    on.rate.record(10_000)
    assert on.rate.wait_ms == 1000  # looked at once in a sample


def test_another_limit_holds_at_once():
    on = Limited()
    on.rate.record(2500)
    on.rate.limit = 2500
    assert not on.rate.is_exceeded
    on.rate.limit = 2499
    assert on.rate.is_exceeded
    on.rate.limit = UNLIMITED
    assert not on.rate.is_exceeded


def test_a_limit_of_zero_lets_nothing_follow():
    on = Limited()
    on.rate.limit = 0
    assert not on.rate.is_exceeded
    on.rate.record(1)
    assert (on.rate.is_exceeded, on.rate.wait_ms) == (True, 1000)
    on.now_ms = 10_999
    assert on.rate.is_exceeded
    on.now_ms = 11_000
    assert not on.rate.is_exceeded


class Stage:
    """The quotas of broker 1, and what it is told."""

    def __init__(self):
        self.image = Image()
        self.quotas = ReplicationQuotas(US, QuotaWindow(), QuotaWindow(), lambda: 0)

    def set_topic(self, topic, **configs):
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.show(topic_configs={topic: named})

    def set_broker(self, name, key, value):
        self.image.apply(ConfigRecord(resource_type=BROKER, resource_name=name, name=key, value=value))
        self.show(broker_configs=True)

    def show(self, held=(), **changes):
        self.quotas.show(self.image, LocalChanges(**changes), held)

    def throttled(self, topic="t"):
        """The partitions of which the leader is, and the follower."""
        sides = self.quotas.leader, self.quotas.follower
        return [[number for number in range(4) if side.throttles(TopicPartition(topic, number))] for side in sides]

    @property
    def is_set(self):
        return self.quotas.leader.is_set, self.quotas.follower.is_set


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*", [0, 1, 2, 3]),
        (" * ", [0, 1, 2, 3]),
        ("0:1,1:2,2:1", [0, 2]),
        (" 0:1 , 3:1", [0, 3]),
        ("0:11,1:2", []),
        ("0:1,", [0]),
        ("", []),
        ("01:1,2:01", [1, 2]),
        (f"{'9' * 5000}:1,1:1", [1]),  # the controller takes any number
        (f"1:{'9' * 5000},2:1", [2]),
    ],
)
def test_a_topic_names_its_throttled_replicas(text, found):
    stage = Stage()
    assert stage.is_set == (False, False)
    stage.set_topic("t", **{LEADERS: text})
    assert stage.throttled() == [found, []]
    assert stage.throttled("u") == [[], []]
    assert stage.is_set == (bool(found), False)
    stage.set_topic("t", **{FOLLOWERS: text})  # the other list is gone
    assert stage.throttled() == [[], found]
    stage.set_topic("t")
    assert stage.throttled() == [[], []]
    assert stage.is_set == (False, False)


def test_topics_that_are_no_longer_here_are_not_throttled():
    stage = Stage()
    for topic in "tuv":
        stage.set_topic(topic, **{LEADERS: "*"})
    stage.show(gone={Uuid(b"t" * 16): "t"})
    assert stage.throttled("t")[0] == []
    of_u = {TopicPartition("u", number): Uuid.random() for number in range(2)}
    stage.show(held=list(of_u)[1:], deletes={TopicPartition("u", 0): Uuid.random()})
    assert stage.throttled("u")[0] == [0, 1, 2, 3]
    stage.show(held=[TopicPartition("v", 0)], deletes=of_u)
    assert stage.throttled("u")[0] == []
    assert stage.is_set == (True, False)
    # Made anew under its name, all within one delta.
    stage.show(gone={Uuid(b"v" * 16): "v"}, topic_configs={"v": {FOLLOWERS: "0:1"}})
    assert stage.throttled("v") == [[], [0]]


def test_a_broker_s_own_rate_goes_before_that_of_all():
    stage = Stage()
    limited = {LEADER_RATE: stage.quotas.leader, FOLLOWER_RATE: stage.quotas.follower, MOVES: stage.quotas.moves}
    for key, rate in limited.items():
        assert rate.limit == UNLIMITED
        stage.set_broker("", key, "100")
        stage.set_broker("1", key, "7")
        stage.set_broker("2", key, "1")
        assert [rate.limit if each is rate else None for each in limited.values()].count(7) == 1
        stage.set_broker("1", key, None)
        assert rate.limit == 100
        stage.set_broker("", key, None)
        assert rate.limit == UNLIMITED


# --- brokers ----------------------------------------------------------------------------------------------------------


async def set_configs(rig, type_, name, **values):
    """Set them, or take those that are None away."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = [
        kind.AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
        for key, value in values.items()
    ]
    change = kind(resource_type=type_, resource_name=name, configs=entries)
    answer = await rig.ask_controller(IncrementalAlterConfigsRequest(resources=[change]), 1)
    assert answer.responses[0].error_code == 0, answer


async def limit(rig, broker, side, rate):
    """Set a broker's rate, and wait until it knows."""
    key = f"{side}.replication.throttled.rate"
    await set_configs(rig, BROKER, str(broker), **{key: None if rate == UNLIMITED else str(rate)})
    await until(lambda: getattr(rig.brokers[broker].parts.replication, side).limit == rate)


async def throttle(rig, broker, key, topic, replicas):
    """Throttle replicas of a topic, and wait until a broker knows."""
    await set_configs(rig, TOPIC, topic, **{key: replicas})
    quotas = rig.brokers[broker].parts.replication
    side = quotas.leader if key == LEADERS else quotas.follower
    await until(lambda: side.throttles(TopicPartition(topic, 0)))


async def reassign(rig, topic, replicas):
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    move = kind(name=topic, partitions=[kind.ReassignablePartition(partition_index=0, replicas=replicas)])
    answer = await rig.ask_controller(AlterPartitionReassignmentsRequest(topics=[move], timeout_ms=30_000), 0)
    assert answer.error_code == 0


async def fetch_as(rig, replica_id, *topics, wait_ms=0, min_bytes=1):
    """What a follower with an empty log gets of partition 0 of each: all values."""
    kind = FetchRequest.FetchTopic
    asked = [
        kind(topic=topic, partitions=[kind.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
        for topic in topics
    ]
    request = FetchRequest(replica_id=replica_id, max_wait_ms=wait_ms, min_bytes=min_bytes, topics=asked)
    answer = await rig.ask(1, request, asking.FETCH_VERSION)
    assert [topic.topic for topic in answer.responses] == list(topics)
    return [asking.values_in(topic.partitions[0]) for topic in answer.responses]


def test_windows_are_those_of_the_brokers_properties(play):
    @play
    async def main(rig):
        await rig.controller()
        parts = (await rig.broker(1, replication_quota_sample_s=5, moving_quota_sample_s=7)).parts
        quotas = parts.replication
        for rate, seconds in ((quotas.leader, 5), (quotas.follower, 5), (quotas.moves, 7)):
            rate.limit = 0
            assert rate.wait_ms == 1000 * seconds


async def leave_two_behind(rig, *topics):
    """Topics that broker 1 leads; broker 2 is down and not in sync."""
    await rig.controller()
    await rig.broker(1, **FOR_LONG)
    await rig.broker(2)
    for topic in topics:
        await rig.create([1, 2], topic=topic)
    await rig.kill(2)
    for topic in topics:
        await until(lambda topic=topic: rig.row(topic).isr == (1,))
        await rig.led_by(1, topic)
        for value in VALUES:
            assert (await rig.produce(1, value, topic=topic)).error_code == 0


def count_reads(rig, topic):
    """The reads of a partition at broker 1 from now on."""
    partition, reads = rig.partition(1, topic), []
    read = partition.read

    def count(*arguments, **more):
        reads.append(arguments)
        return read(*arguments, **more)

    partition.read = count
    return reads


def test_a_leader_sends_a_throttled_follower_nothing_while_its_rate_is_exceeded(play):
    @play
    async def main(rig):
        await leave_two_behind(rig, "t", "u")
        await limit(rig, 1, "leader", 1)
        await throttle(rig, 1, LEADERS, "t", "0:1")
        assert await fetch_as(rig, 2, "t", "u") == [VALUES, VALUES]  # nothing was sent before
        assert await fetch_as(rig, 2, "t", "u") == [[], VALUES]
        assert await fetch_as(rig, -1, "t", "u") == [VALUES, VALUES]  # a consumer
        await limit(rig, 1, "leader", 10**9)
        assert await fetch_as(rig, 2, "t") == [VALUES]
        await limit(rig, 1, "leader", 1)
        assert await fetch_as(rig, 2, "t") == [[]]
        await set_configs(rig, TOPIC, "t", **{LEADERS: None})
        await until(lambda: not rig.brokers[1].parts.replication.leader.is_set)
        assert await fetch_as(rig, 2, "t") == [VALUES]


def test_what_a_leader_holds_back_ends_no_waiting(play):
    @play
    async def main(rig):
        await leave_two_behind(rig, "t", "u")
        await limit(rig, 1, "leader", 1)
        await throttle(rig, 1, LEADERS, "t", "*")
        assert await fetch_as(rig, 2, "t") == [VALUES]
        reads = count_reads(rig, "u")
        size = len(rig.log_bytes(1, "u-0"))
        for min_bytes in (size + 1, size + 10_000):
            found = []

            async def poll(found=found, min_bytes=min_bytes):
                found.extend(await fetch_as(rig, 2, "t", "u", wait_ms=60_000, min_bytes=min_bytes))

            reads.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                await until(lambda: reads)
                before = len(reads)
                for _ in range(3):
                    assert (await rig.produce(1, b"more" * 1000)).error_code == 0
                assert (found, len(reads)) == ([], before)  # nothing was looked at for it
                while len(rig.log_bytes(1, "u-0")) < min_bytes:
                    assert not found
                    assert (await rig.produce(1, b"more" * 1000, topic="u")).error_code == 0
            assert found[0] == []
            assert found[1][: len(VALUES)] == VALUES
            size = len(rig.log_bytes(1, "u-0"))


def test_what_was_held_back_counts_when_the_rate_allows_it(play):
    @play
    async def main(rig):
        await leave_two_behind(rig, "t")
        await limit(rig, 1, "leader", 1)
        await throttle(rig, 1, LEADERS, "t", "*")
        assert await fetch_as(rig, 2, "t") == [VALUES]
        min_bytes, reads, found = len(rig.log_bytes(1, "t-0")) + 1, count_reads(rig, "t"), []

        async def poll():
            found.extend(await fetch_as(rig, 2, "t", wait_ms=3_600_000, min_bytes=min_bytes))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await until(lambda: reads)
            await limit(rig, 1, "leader", 10**9)
            assert found == []
            assert (await rig.produce(1, b"more")).error_code == 0
        assert found == [[*VALUES, b"more"]]


def test_who_is_in_sync_is_not_held_back(play):
    @play
    async def main(rig):
        await rig.controller()
        for each in (1, 2):
            await rig.broker(each, **FOR_LONG)
        await rig.create([1, 2])
        await rig.led_by(1)
        await limit(rig, 1, "leader", 1)
        await limit(rig, 2, "follower", 1)
        await throttle(rig, 1, LEADERS, "t", "*")
        await throttle(rig, 2, FOLLOWERS, "t", "*")
        for value in VALUES:
            assert (await rig.produce(1, value)).error_code == 0  # acks=all
        sides = rig.brokers[1].parts.replication.leader, rig.brokers[2].parts.replication.follower
        assert [side.is_exceeded for side in sides] == [True, True]  # what they copy counts
        assert rig.row().isr == (1, 2)
        assert rig.log_bytes(1) == rig.log_bytes(2)


@pytest.mark.parametrize("ends_by", ["rate", "list"])
def test_a_follower_fetches_no_more_than_its_rate_allows(play, ends_by):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        await rig.broker(2, **FOR_LONG, replica_fetch_max_bytes=2000)
        for topic, replicas in (("t", [1]), ("u", [1, 2])):
            await rig.create(replicas, topic=topic)
            await rig.led_by(1, topic)
        for value in VALUES:
            assert (await rig.produce(1, value)).error_code == 0
        await limit(rig, 2, "follower", 1)
        await set_configs(rig, TOPIC, "t", **{FOLLOWERS: "0:2"})
        await reassign(rig, "t", [1, 2])
        quota = rig.brokers[2].parts.replication.follower
        await until(lambda: quota.is_set and quota.is_exceeded)
        end = rig.partition(2).log.log_end_offset
        assert 0 < end < len(VALUES)
        for value in VALUES:  # a request for what is not throttled each
            assert (await rig.produce(1, value, topic="u")).error_code == 0
        assert rig.partition(2).log.log_end_offset == end
        assert rig.row().isr == (1,)
        if ends_by == "rate":
            await limit(rig, 2, "follower", UNLIMITED)
        else:
            await set_configs(rig, TOPIC, "t", **{FOLLOWERS: None})
        await until(lambda: set(rig.row().isr) == {1, 2})
        assert rig.log_bytes(1) == rig.log_bytes(2)


def test_a_follower_goes_on_by_itself_when_its_rate_allows(play):
    @play
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        await rig.broker(2, replication_quota_samples=2, replica_fetch_max_bytes=2000)
        await rig.create([1])
        await rig.led_by(1)
        for value in VALUES:
            assert (await rig.produce(1, value)).error_code == 0
        await limit(rig, 2, "follower", len(VALUES[0]) * len(VALUES) // 2)
        await set_configs(rig, TOPIC, "t", **{FOLLOWERS: "0:2"})
        await reassign(rig, "t", [1, 2])
        quota = rig.brokers[2].parts.replication.follower
        await until(lambda: quota.is_exceeded)
        assert rig.row().isr == (1,)
        await until(lambda: set(rig.row().isr) == {1, 2})
        assert rig.log_bytes(1) == rig.log_bytes(2)
