"""A follower's rounds without a network: answers of one epoch are not applied in another; where they are handled."""

from __future__ import annotations

import random

import own_partitions
import pytest
import trio
import trio.testing

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import LOST_DIRECTORY, Uuid
from kraftcore.errors import RefusedError, StorageError
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.partition import Assignment, TopicPartition, View
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.quotas.rates import QuotaWindow
from kraftcore.plugins.broker.quotas.replication import ReplicationQuota
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.replication.fetch_tasks import Fetchers
from kraftcore.plugins.broker.replication.follower_fetch import (
    EXCLUSIVE,
    LOOK_MS,
    Ask,
    FetchSettings,
    Following,
    RoundEnd,
    Source,
    is_caught_up,
)
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.plugins.broker.work.disk_steps import failure_of, run_here
from kraftcore.plugins.broker.work.heavy_steps import LoopRoom
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

US, LEADER, OTHER = 1, 2, 3
MAGIC = 16  # place of a batch's magic byte
T = TopicPartition("t", 0)
TOPIC_ID, OTHER_ID = Uuid(b"5" * 16), Uuid(b"6" * 16)
_Data = FetchResponse.FetchableTopicResponse.PartitionData


class Rig:
    """Broker 1 follows broker 2 in epoch 3; it has the offsets 0 to 3 of epoch 2."""

    def __init__(self, **config):
        rng = random.Random(1)
        config = LogConfig(topic_id=None, producer_snapshots=False, **config)
        self.disk = SimulatedDisk(rng)
        dirs = LogDirs(self.disk, ["/d"], US, lambda topic: config, 0, 0, rng.randbytes)
        self.replicas = Replicas(US, dirs, RequestCache(), lambda topic: PartitionSettings())
        self.complaints = []
        self.now_ms = 0
        self.quota = ReplicationQuota(QuotaWindow(), lambda: self.now_ms)
        complain = lambda kind, text: self.complaints.append(text)  # noqa: E731
        self.following = Following(US, lambda: 7, self.replicas, FetchSettings(), complain, lambda: 0, self.quota)
        self.partition = own_partitions.add(self.replicas, T, TOPIC_ID).partition
        self.partition.become_leader(self.assignment(US, 2), 0)
        self.partition.append(build_batch([b"a", b"b"], timestamp_ms=1), 0)
        self.partition.append(build_batch([b"c", b"d"], timestamp_ms=1), 0)
        self.follow(LEADER, 3)

    def assignment(self, leader, epoch):
        return Assignment(leader, epoch, epoch, (US, LEADER, OTHER), (US, LEADER, OTHER))

    def follow(self, leader, epoch):
        self.partition.become_follower(self.assignment(leader, epoch))

    def begin(self):
        source = Source(LEADER, {T})
        assert self.following.look(source, 0)
        steps = self.following.round(source)
        wanted = next(steps)
        assert isinstance(wanted, Ask) and isinstance(wanted.request, FetchRequest)
        return steps

    @property
    def end(self):
        return self.partition.log.log_end_offset


def answer(**fields):
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[_Data(partition_index=0, **fields)])
    return FetchResponse(responses=[topic])


def records(base, epoch):
    batch = build_batch([b"x"], timestamp_ms=1)
    batch[0:8] = base.to_bytes(8)
    batch[12:16] = epoch.to_bytes(4)
    return bytes(batch)


DIVERGING = answer(high_watermark=0, diverging_epoch=_Data.EpochEndOffset(epoch=2, end_offset=2))


def ended(steps, value):
    """How a round ends that is sent this, when all it wants is done."""
    with pytest.raises(StopIteration) as end:
        wanted = steps.send(value)
        while wanted is EXCLUSIVE or callable(wanted):
            error = None if wanted is EXCLUSIVE else failure_of(wanted)
            wanted = steps.send(None) if error is None else steps.throw(error)
    return end.value.value


def test_records_are_appended():
    rig = Rig()
    assert ended(rig.begin(), answer(high_watermark=5, records=records(4, 3))) == RoundEnd()
    assert (rig.end, rig.partition.high_watermark) == (5, 5)


def test_a_log_that_diverges_is_cut_while_nobody_flushes():
    rig = Rig()
    steps = rig.begin()
    assert steps.send(DIVERGING) is EXCLUSIVE
    assert rig.end == 4
    assert ended(steps, None) == RoundEnd()
    assert rig.end == 2


@pytest.mark.parametrize(
    "late", [answer(high_watermark=5, records=records(4, 3)), DIVERGING, answer(high_watermark=-1, error_code=1)]
)
def test_an_answer_that_comes_after_another_leader_does_nothing(late):
    rig = Rig()
    steps = rig.begin()
    before = rig.partition.high_watermark
    rig.follow(OTHER, 4)
    assert ended(steps, late) == RoundEnd()
    assert (rig.end, rig.partition.high_watermark) == (4, before)


def test_an_answer_to_what_was_asked_before_a_cut_does_nothing_when_the_log_has_grown_again():
    """Two requests for a partition may be on their way: ``Fetchers`` asks beside one that a leader holds."""
    rig = Rig()
    late = rig.begin()
    steps = rig.begin()
    assert steps.send(DIVERGING) is EXCLUSIVE
    ended(steps, None)
    for offset in (2, 3):
        ended(rig.begin(), answer(high_watermark=4, records=records(offset, 3)))
    assert (rig.end, rig.partition.high_watermark) == (4, 4)
    assert ended(late, DIVERGING) == RoundEnd()
    assert (rig.end, rig.partition.high_watermark) == (4, 4)


def test_a_cut_that_waits_for_a_flush_is_forgotten_when_the_leader_changes():
    rig = Rig()
    steps = rig.begin()
    assert steps.send(DIVERGING) is EXCLUSIVE
    rig.follow(OTHER, 4)
    assert ended(steps, None) == RoundEnd()
    assert rig.end == 4


def test_a_cut_is_forgotten_when_we_lead_meanwhile():
    rig = Rig()
    steps = rig.begin()
    assert steps.send(DIVERGING) is EXCLUSIVE
    rig.partition.become_leader(rig.assignment(US, 4), 0)
    assert ended(steps, None) == RoundEnd()
    assert rig.end == 4


def test_nobody_reads_or_appends_while_a_thread_cuts_the_log_and_what_is_durable_is_forgotten_first():
    rig = Rig()
    hosted = rig.replicas.all[T].hosted
    hosted.log.flush()
    hosted.directory.write_recovery_points()
    checkpoint = lambda: rig.disk.read_file("/d/recovery-point-offset-checkpoint").split(b"\n")[2:-1]  # noqa: E731
    assert checkpoint() == [b"t 0 4"]
    late, steps = rig.begin(), rig.begin()
    assert steps.send(DIVERGING) is EXCLUSIVE
    work = steps.send(None)
    for use in (
        lambda: rig.partition.read(0, 100, View.CONSUMER, at_least_one=True),
        check := lambda: rig.partition.check(-1, needs_leader=False),
        lambda: next(rig.partition.find_timestamp(0, View.CONSUMER, LoopRoom(), check)),
    ):
        with pytest.raises(RefusedError, match="is being removed"):
            use()
    assert ended(late, answer(high_watermark=5, records=records(4, 3))) == RoundEnd()
    assert rig.end == 4
    hosted.directory.write_recovery_points()
    begin_cut, seen = hosted.directory.begin_cut, []

    def note(each):
        begin_cut(each)
        hosted.directory.write_recovery_points()
        seen.append((checkpoint(), rig.end))

    hosted.directory.begin_cut = note
    work()
    assert seen == [([], 4)]
    assert ended(steps, None) == RoundEnd()
    assert rig.end == 2
    hosted.directory.write_recovery_points()
    assert checkpoint() == [b"t 0 2"]
    assert rig.partition.read(0, 100, View.REPLICA, at_least_one=True)


@pytest.mark.parametrize("interval", [1, 4096], ids=["cut", "not even cut"])
def test_a_damaged_log_that_is_to_be_cut_is_offline_and_nobody_blames_the_leader(interval, caplog):
    rig = Rig(tail_bytes=0, index_interval_bytes=interval)
    for offset in (4, 5):
        ended(rig.begin(), answer(high_watermark=6, records=records(offset, 3)))
    with rig.disk.open(f"/d/t-0/{0:020d}.log") as file:
        file.write_at(MAGIC, b"\xff")
    steps = rig.begin()
    assert steps.send(answer(diverging_epoch=_Data.EpochEndOffset(epoch=2, end_offset=4))) is EXCLUSIVE
    assert ended(steps, None) == RoundEnd()
    assert rig.end == (4 if interval == 1 else 6)
    rig.partition.check_invariants()
    assert not rig.following.wanted() and not rig.complaints
    assert "t-0 is offline, its log in /d is damaged" in caplog.text
    with pytest.raises(RefusedError, match="KAFKA_STORAGE_ERROR"):
        rig.replicas.find(T)
    assert rig.replicas.directory_id(T) == LOST_DIRECTORY
    # It goes with its topic.
    run_here(rig.replicas.delete([T], lambda: 0))
    assert not rig.replicas.is_broken(T)
    assert own_partitions.add(rig.replicas, T, TOPIC_ID).partition.log.log_end_offset == 0


def test_a_leader_s_damaged_bytes_are_asked_for_again():
    rig = Rig()
    damaged = bytearray(records(4, 3))
    damaged[-1] ^= 1
    assert ended(rig.begin(), answer(high_watermark=5, records=bytes(damaged))) == RoundEnd(pausing=(T,))
    assert (rig.end, rig.following.wanted()) == (4, {LEADER: {T}})
    assert "what its leader sent is refused" in rig.complaints[0]


def test_a_log_that_cannot_be_cut_takes_its_directory_offline():
    rig = Rig()
    steps = rig.begin()
    assert steps.send(DIVERGING) is EXCLUSIVE
    work = steps.send(None)
    rig.disk.inject("sync", times=-1)
    with pytest.raises(StorageError) as failed:
        work()
    with pytest.raises(StopIteration):
        steps.throw(failed.value)
    assert rig.replicas.is_broken(T)
    assert not rig.partition.is_changing


@pytest.mark.parametrize("has_records", [False, True])
def test_a_log_that_starts_inside_the_leaders_batch_begins_with_that_batch(has_records):
    """Records were deleted up to there: the leader sends the whole batch, and a follower that refused it would wait for
    ever."""
    rig = Rig()
    if not has_records:
        steps = rig.begin()
        wanted = steps.send(answer(error_code=1, high_watermark=-1))
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        for offset in (12, 11):
            told = kind.ListOffsetsPartitionResponse(partition_index=0, offset=offset, leader_epoch=3)
            wanted = steps.send(ListOffsetsResponse(topics=[kind(name="t", partitions=[told])]))
        assert wanted is EXCLUSIVE
        assert ended(steps, None) == RoundEnd()
        assert (rig.partition.log.log_start_offset, rig.end) == (11, 11)
    batch = build_batch([b"a", b"b", b"c"], timestamp_ms=1, base_offset=10 if not has_records else 3, leader_epoch=3)
    found = answer(high_watermark=13, log_start_offset=11, records=bytes(batch))
    assert ended(rig.begin(), found).pausing == ((T,) if has_records else ())
    log = rig.partition.log
    if has_records:  # what is there is not given up
        assert (log.log_start_offset, rig.end) == (0, 4)
        return
    assert (log.log_start_offset, rig.end, rig.partition.high_watermark) == (11, 13, 13)
    assert log.read(11, 1000) == bytes(batch)
    rig.partition.check_invariants()
    log.check_invariants()


@pytest.mark.parametrize(
    ("told", "start"),
    [
        (answer(high_watermark=5, log_start_offset=4, records=records(4, 3)), 4),
        (answer(high_watermark=5, log_start_offset=3, diverging_epoch=_Data.EpochEndOffset(epoch=2, end_offset=3)), 3),
        (answer(high_watermark=9, log_start_offset=8, diverging_epoch=_Data.EpochEndOffset(epoch=2, end_offset=8)), 8),
    ],
    ids=["ends there", "cut there", "all is gone"],
)
def test_a_log_of_which_nothing_is_in_the_leaders_log_begins_anew(told, start):
    """Leaders tell no epochs below their log start: what is there need not be what was committed."""
    rig = Rig()
    partition = rig.partition
    partition.producers.replicated(
        memoryview(build_batch([b"z"], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0))
    )
    steps = rig.begin()
    assert steps.send(told) is EXCLUSIVE
    assert ended(steps, None) == RoundEnd()
    assert (partition.log.log_start_offset, partition.high_watermark, rig.end) == (start, start, start)
    assert not partition.producers.all
    ended(rig.begin(), answer(high_watermark=start + 1, log_start_offset=start, records=records(start, 3)))
    assert (partition.log.log_start_offset, partition.high_watermark, rig.end) == (start, start + 1, start + 1)


@pytest.mark.parametrize("known", ["committed", "of this leader"])
def test_what_is_known_to_be_as_the_leaders_log_was_goes_with_its_log_start(known):
    rig = Rig()
    partition, end = rig.partition, 4
    if known == "committed":
        ended(rig.begin(), answer(high_watermark=4))
    else:
        ended(rig.begin(), answer(high_watermark=0, records=records(4, 3)))
        end = 5
    batch = build_batch([b"z"], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0)
    partition.producers.replicated(memoryview(batch))
    ended(rig.begin(), answer(high_watermark=end, log_start_offset=end))
    assert (partition.log.log_start_offset, partition.high_watermark, rig.end) == (end, end, end)
    assert list(partition.producers.all) == [7]


def test_an_empty_log_that_starts_above_its_leaders_begins_anew_where_that_does():
    """The leader was elected without what was committed before: what our log was to start behind is no more."""
    rig = Rig()
    rig.partition.restart_at(7)
    steps = rig.begin()
    assert steps.send(answer(high_watermark=9, log_start_offset=2, records=records(7, 3))) is EXCLUSIVE
    assert ended(steps, None) == RoundEnd()
    assert (rig.partition.log.log_start_offset, rig.end) == (2, 2)
    ended(rig.begin(), answer(high_watermark=9, log_start_offset=2, records=records(2, 3)))
    assert (rig.partition.log.log_start_offset, rig.end) == (2, 3)


def test_a_log_that_ends_inside_the_leaders_first_batch_begins_with_that_batch():
    rig = Rig()
    batch = build_batch([b"a", b"b", b"c"], timestamp_ms=1, base_offset=3, leader_epoch=3)
    for _ in range(2):
        found = answer(high_watermark=6, log_start_offset=4, records=bytes(batch))
        assert ended(rig.begin(), found) == RoundEnd()
    assert (rig.partition.log.log_start_offset, rig.partition.high_watermark, rig.end) == (4, 6, 6)


def test_the_place_in_a_leaders_log_is_not_taken_in_another_epoch():
    rig = Rig()
    steps = rig.begin()
    wanted = steps.send(answer(error_code=1, high_watermark=-1))
    assert isinstance(wanted.request, ListOffsetsRequest)
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    told = kind.ListOffsetsPartitionResponse(partition_index=0, offset=1, leader_epoch=3)
    assert steps.send(ListOffsetsResponse(topics=[kind(name="t", partitions=[told])])) is EXCLUSIVE
    rig.follow(OTHER, 4)
    assert ended(steps, None) == RoundEnd()
    assert rig.end == 4


def test_no_answer_pauses_all_and_an_error_its_partition():
    rig = Rig()
    assert ended(rig.begin(), Failure.TIMED_OUT) == RoundEnd(wait_ms=1000)
    assert ended(rig.begin(), answer(error_code=56, high_watermark=-1)) == RoundEnd((T,))
    assert len(rig.complaints) == 2
    source = Source(LEADER, {T})
    source.ended(RoundEnd((T,)), 0, 100)
    assert (due(source, 99), source.due_ms) == ([], 100)
    assert (due(source, 100), source.due_ms) == ([T], float("inf"))


def test_a_leader_that_has_not_heard_yet_is_told_of_when_it_goes_on():
    rig, source, now_ms, told = Rig(), Source(LEADER, {T}), 0, {}
    while now_ms < 2000:
        assert rig.following.look(source, now_ms)
        steps = rig.following.round(source)
        next(steps)
        source.ended(ended(steps, answer(error_code=6, high_watermark=-1)), now_ms, 1000)
        told[now_ms] = list(rig.complaints)
        now_ms = int(source.due_ms)
    assert all(not lines for when, lines in told.items() if when < 500)
    assert told.popitem()[1][0] == "t-0: its leader answers NOT_LEADER_OR_FOLLOWER"


def due(source, now_ms):
    """Those that the next request asks for."""
    source.to_look_at(now_ms)
    return sorted(source.names - source.not_before.keys())


def test_only_what_an_answer_touched_is_looked_at_before_the_next_request():
    rig, other = Rig(), TopicPartition("u", 0)
    own_partitions.add(rig.replicas, other, OTHER_ID).partition.become_follower(rig.assignment(LEADER, 3))
    source = Source(LEADER, {T, other})

    def asked(steps):
        """What a request names."""
        return [topic.topic for topic in next(steps).request.topics]

    def looked(now_ms):
        assert rig.following.look(source, now_ms)
        return source.fresh

    assert looked(0) == [T, other]
    steps = rig.following.round(source)
    assert asked(steps) == ["t", "u"]
    found = answer(high_watermark=5, records=records(4, 3))
    found.session_id = 9
    assert ended(steps, found) == RoundEnd()
    assert looked(1) == [T]
    steps = rig.following.round(source)
    assert asked(steps) == ["t"]
    assert ended(steps, FetchResponse(session_id=9)) == RoundEnd()
    assert looked(2) == []
    assert asked(rig.following.round(source)) == []
    source.take({other})
    assert looked(3) == [other]
    source.ended(RoundEnd((other,)), 3, 100)
    assert not rig.following.look(source, 4)
    assert looked(103) == [other]
    assert looked(3 + LOOK_MS) == [other]


def test_partitions_of_a_topic_and_of_a_deleted_one_of_its_name_are_asked_for_by_their_ids():
    rig, other = Rig(), TopicPartition("t", 1)
    own_partitions.add(rig.replicas, other, OTHER_ID).partition.become_follower(rig.assignment(LEADER, 3))
    source = Source(LEADER, {T, other})
    assert rig.following.look(source, 0)
    topics = next(rig.following.round(source)).request.topics
    assert [(topic.topic_id, [each.partition for each in topic.partitions]) for topic in topics] == [
        (TOPIC_ID, [0]),
        (OTHER_ID, [1]),
    ]


def test_a_leader_that_is_in_a_newer_epoch_is_asked_again_only_when_we_are_told_of_one():
    """Kafka's AbstractFetcherThread: a partition that was fenced waits for its new state."""
    rig, source = Rig(), Source(LEADER, {T})

    def fenced(epoch=None):
        assert rig.following.look(source, 0)
        steps = rig.following.round(source)
        next(steps)
        if epoch is not None:
            rig.follow(LEADER, epoch)
        end = RoundEnd() if epoch is not None else RoundEnd(not_in_step=(T,))
        assert ended(steps, answer(error_code=74, high_watermark=-1)) == end

    fenced()
    assert not rig.following.look(source, LOOK_MS)
    rig.follow(LEADER, 3)  # an assignment of the epoch that was refused
    source.take({T})
    assert not rig.following.look(source, 2 * LOOK_MS)
    rig.follow(LEADER, 4)
    assert rig.following.look(source, 3 * LOOK_MS)
    fenced(5)  # while the answer was on its way
    assert rig.following.look(source, 4 * LOOK_MS)


@pytest.mark.parametrize("code", [3, 6, 74, 75, 100])
def test_a_leader_that_has_not_heard_of_it_yet_is_asked_again_soon(code):
    rig = Rig()
    assert ended(rig.begin(), answer(error_code=code, high_watermark=-1)) == RoundEnd(not_in_step=(T,))


def test_pauses_of_those_not_in_step_grow_until_an_answer_or_an_assignment():
    other = TopicPartition("t", 1)
    source, end = Source(LEADER, {T, other}), RoundEnd(not_in_step=(T,))

    def ended(name, end, now_ms):
        source.asked = {name: None}
        source.ended(end, now_ms, 50)

    def wait(now_ms):
        """How long the partition pauses when it was not in step at this time."""
        ended(T, end, now_ms)
        assert due(source, now_ms) == [other]
        return source.due_ms - now_ms

    assert [wait(now_ms) for now_ms in (0, 10, 30, 70)] == [10, 20, 40, 50]
    ended(other, RoundEnd(), 75)  # says nothing of it
    assert wait(120) == 50
    ended(T, RoundEnd(), 170)
    assert wait(200) == 10
    assert wait(210) == 20
    source.take({T})
    assert due(source, 211) == [T]
    source.take({T, other})
    assert wait(220) == 10


# --- on trio ----------------------------------------------------------------------------------------------------------


class FakeLeader:
    """What is sent to it, and the callbacks that wait for its answers; it stands for the cache of addresses, too."""

    def __init__(self):
        self.asked = []

    def address(self, broker_id, listener):
        return Address("leader", 9092)

    def send(self, host, port, message, timeout_ms, done, **more):
        self.asked.append((message, done))

    async def answer(self, found):
        """Answer the request that is on its way."""
        with trio.fail_after(60):
            while not self.asked:
                await trio.lowlevel.checkpoint()
        _, done = self.asked.pop(0)
        done(found)


def fetching(rig, leader, nursery, disk=None, **settings):
    fetchers = Fetchers(
        1,
        lambda: 7,
        rig.replicas,
        leader,
        "PLAINTEXT",
        leader,
        FetchSettings(**settings),
        trio.Lock() if disk is None else disk,
        lambda: 0,
        rig.quota,
        nursery.start_soon,
    )
    fetchers.refresh()
    return fetchers


def test_the_next_request_leaves_before_the_answer_s_reader_goes_on():
    async def main():
        rig, leader = Rig(), FakeLeader()
        async with trio.open_nursery() as nursery:
            fetching(rig, leader, nursery)
            for offset in (4, 5, 6):
                await leader.answer(answer(high_watermark=offset, records=records(offset, 3)))
                assert len(leader.asked) == 1  # at once, no other task ran
                (topic,) = leader.asked[0][0].topics
                assert (topic.topic_id, topic.partitions[0].fetch_offset) == (TOPIC_ID, offset + 1)
            nursery.cancel_scope.cancel()
        assert rig.end == 7

    trio.run(main)


def test_an_answer_after_the_end_does_nothing():
    async def main():
        rig, leader = Rig(), FakeLeader()
        async with trio.open_nursery() as nursery:
            fetching(rig, leader, nursery)
            await leader.answer(FetchResponse())
            nursery.cancel_scope.cancel()
        await leader.answer(answer(high_watermark=5, records=records(4, 3)))
        assert (rig.end, leader.asked) == (4, [])

    trio.run(main)


def test_a_leader_that_gives_no_answer_is_asked_again_when_assignments_change():
    async def main():
        rig, leader = Rig(), FakeLeader()
        async with trio.open_nursery() as nursery:
            fetchers = fetching(rig, leader, nursery, backoff_ms=600_000)
            await leader.answer(Failure.RESET)
            await trio.testing.wait_all_tasks_blocked()
            assert leader.asked == []
            rig.follow(LEADER, 4)
            fetchers.refresh()
            await leader.answer(answer(high_watermark=4, records=records(4, 4)))
            nursery.cancel_scope.cancel()
        assert rig.end == 5

    trio.run(main)


def test_what_a_round_raises_ends_its_task_and_not_the_reader():
    async def main():
        rig, leader = Rig(), FakeLeader()

        def carry_out(name, effects):
            raise RuntimeError("a fault of ours")

        rig.replicas.carry_out = carry_out
        with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="a fault of ours")):
            async with trio.open_nursery() as nursery:
                fetching(rig, leader, nursery)
                await leader.answer(answer(high_watermark=5, records=records(4, 3)))
                await trio.sleep_forever()

    trio.run(main)


def test_a_log_is_cut_only_while_nobody_flushes():
    async def main():
        rig, leader, disk = Rig(), FakeLeader(), trio.Lock()
        data = FetchResponse.FetchableTopicResponse.PartitionData
        diverging = answer(high_watermark=0, diverging_epoch=data.EpochEndOffset(epoch=2, end_offset=2))
        async with trio.open_nursery() as nursery:
            fetching(rig, leader, nursery, disk)
            async with disk:
                await leader.answer(diverging)
                await trio.testing.wait_all_tasks_blocked()
                assert (rig.end, leader.asked) == (4, [])
            with trio.fail_after(60):
                while not leader.asked:
                    await trio.lowlevel.checkpoint()
            assert rig.end == 2
            assert leader.asked[0][0].topics[0].partitions[0].fetch_offset == 2
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_partition_that_comes_while_the_leader_holds_a_request_is_asked_for_beside_it():
    async def main():
        rig, leader = Rig(), FakeLeader()
        other = TopicPartition("t", 1)
        async with trio.open_nursery() as nursery:
            fetchers = fetching(rig, leader, nursery)
            await trio.testing.wait_all_tasks_blocked()
            held = leader.asked.pop()
            partition = own_partitions.add(rig.replicas, other, TOPIC_ID).partition
            partition.become_follower(rig.assignment(LEADER, 3))
            fetchers.refresh()
            for offset in (0, 1):
                await trio.testing.wait_all_tasks_blocked()
                ((request, _),) = leader.asked
                assert (request.session_id, request.session_epoch, request.max_wait_ms) == (0, -1, 20)
                (asked,) = request.topics[0].partitions
                assert (asked.partition, asked.fetch_offset) == (1, offset)
                fetchers.refresh()  # nor is it asked for twice
                found = answer(high_watermark=offset, records=records(offset, 3))
                found.responses[0].partitions[0].partition_index = 1
                await leader.answer(found)
            await trio.testing.wait_all_tasks_blocked()
            (beside,) = leader.asked
            held[1](FetchResponse())
            assert {each.partition for each in leader.asked[-1][0].topics[0].partitions} == {0, 1}
            await leader.answer(FetchResponse())
            await trio.testing.wait_all_tasks_blocked()
            assert len(leader.asked) == 1 and beside not in leader.asked  # the next request asks for all: it ended
            nursery.cancel_scope.cancel()
        assert (rig.end, partition.log.log_end_offset) == (4, 2)

    trio.run(main)


def test_nobody_wakes_for_deadlines_that_were_cancelled():
    now = [0.0]
    came = []
    deadlines = Deadlines(lambda: now[0])
    early, later = (deadlines.after(ms, lambda ms=ms: came.append(ms)) for ms in (100, 300))
    deadlines.after(200, lambda: came.append(200))
    assert deadlines.due == 0.1
    early.cancel()
    assert deadlines.due == 0.2
    later.cancel()
    now[0] = 0.5
    deadlines.run_due()
    assert (came, deadlines.due) == ([200], float("inf"))


def test_a_follower_is_caught_up_when_it_has_what_its_leader_said_is_committed():
    rig = Rig()
    assert not is_caught_up(rig.partition)  # nobody said
    assert ended(rig.begin(), answer(high_watermark=5, records=records(4, 3))) == RoundEnd()
    assert is_caught_up(rig.partition)
    rig.follow(LEADER, 3)  # in the same epoch
    assert is_caught_up(rig.partition)
    assert ended(rig.begin(), answer(high_watermark=6)) == RoundEnd()
    assert not is_caught_up(rig.partition)
    assert ended(rig.begin(), answer(high_watermark=6, records=records(5, 3))) == RoundEnd()
    assert is_caught_up(rig.partition)
    rig.follow(OTHER, 4)
    assert not is_caught_up(rig.partition)


def test_what_is_throttled_and_not_caught_up_is_held_back_while_too_much_was_fetched():
    rig = Rig()
    rig.quota.show("t", frozenset({0}))
    rig.quota.limit = len(records(4, 3))
    assert ended(rig.begin(), answer(high_watermark=9, records=records(4, 3))) == RoundEnd()
    assert rig.following.held_back([T]) == []
    assert ended(rig.begin(), answer(high_watermark=9, records=records(5, 3))) == RoundEnd()
    assert rig.following.held_back([T]) == [T]
    rig.quota.show("t", frozenset({1}))
    assert rig.following.held_back([T]) == []
    rig.quota.show("t", frozenset({0}))
    rig.now_ms = 2000
    assert rig.following.held_back([T]) == []
    steps = rig.begin()
    rig.now_ms = 1999
    assert rig.following.held_back([T]) == [T]
    assert ended(steps, answer(high_watermark=6)) == RoundEnd()
    assert rig.following.held_back([T]) == []


def test_what_is_held_back_pauses_until_something_is_set_anew():
    source = Source(LEADER, {T})
    source.hold_back([T], 100)
    assert (due(source, 99), source.due_ms) == ([], 100)
    source.take({T})
    assert due(source, 99) == [T]
    source.hold_back([T], 100)
    assert due(source, 100) == [T]
    source.ended(RoundEnd((T,)), 100, 1000)  # an error since
    source.take({T})
    assert due(source, 101) == []


def test_what_is_held_back_is_not_asked_for():
    rig, other = Rig(), TopicPartition("u", 0)
    own_partitions.add(rig.replicas, other, OTHER_ID).partition.become_follower(rig.assignment(LEADER, 3))
    source = Source(LEADER, {T, other})
    rig.quota.show("t", frozenset({0}))
    rig.quota.limit = 1
    assert ended(rig.begin(), answer(high_watermark=9, records=records(4, 3))) == RoundEnd()
    assert rig.following.look(source, 0)
    assert list(source.asked) == [other]
    assert [topic.topic for topic in next(rig.following.round(source)).request.topics] == ["u"]
    rig.now_ms = 60_000
    assert rig.following.look(source, source.due_ms)
    assert sorted(source.asked) == [T, other]


def test_what_an_answer_told_that_came_too_late_is_told_again():
    """A request beside it had brought the records; in its session the leader tells a high watermark once."""
    rig = Rig()
    source = Source(LEADER, {T})
    for base in (4, 5):
        assert rig.following.look(source, 0)
        steps = rig.following.round(source)
        asked = next(steps).request
        assert asked.session_epoch == base - 4
        late = answer(high_watermark=base, records=records(base, 3))
        late.session_id = 9
        if base == 5:
            rig.partition.replicate(records(5, 3), 4, 0)
        assert ended(steps, late) == RoundEnd()
    assert (rig.end, rig.partition.high_watermark) == (6, 4)
    assert rig.following.look(source, 0)
    anew = next(rig.following.round(source)).request
    assert (anew.session_id, anew.session_epoch) == (9, 0)


def test_what_is_told_to_have_is_synced_though_it_came_while_the_disk_was_waited_for():
    rig = Rig()
    rig.partition.settings = PartitionSettings(flush_messages=1)
    source = Source(LEADER, {T})
    assert rig.following.look(source, 0)
    steps = rig.following.round(source)
    assert next(steps) is EXCLUSIVE
    flush = next(steps)
    rig.partition.replicate(records(4, 3), 4, 0)  # by a request beside
    assert failure_of(flush) is None
    rig.partition.replicate(records(5, 3), 4, 0)
    wanted = next(steps)
    while callable(wanted):
        assert failure_of(wanted) is None
        wanted = next(steps)
    [[asked]] = [topic.partitions for topic in wanted.request.topics]
    assert asked.fetch_offset == rig.partition.log.flushed_offset == 6


def test_a_directory_that_fails_while_a_sync_waits_for_its_turn_is_not_touched():
    """Its disk may hang by now, and others wait for their turn."""
    rig = Rig()
    rig.partition.settings = PartitionSettings(flush_messages=1)
    source = Source(LEADER, {T})
    assert rig.following.look(source, 0)
    steps = rig.following.round(source)
    assert next(steps) is EXCLUSIVE
    directory = rig.replicas.all[T].hosted.directory
    rig.replicas.directory_failed(directory, StorageError(5, "another log could not be written", directory.path))
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == RoundEnd(pausing=(T,))
    assert not rig.following.look(source, 0)


def test_a_directory_that_fails_while_a_log_is_made_in_it_does_not_have_the_partition():
    rig = Rig()
    other = TopicPartition("t", 1)
    steps = rig.replicas.make({other: own_partitions.NOBODYS._replace(topic_id=TOPIC_ID)}, lambda: 0)
    [work] = next(steps)
    assert failure_of(work) is None
    [directory] = {replica.hosted.directory for replica in rig.replicas.all.values()}
    rig.replicas.directory_failed(directory, StorageError(5, "another log could not be written", directory.path))
    with pytest.raises(StopIteration) as end:
        steps.send([None])
    assert "failed while a log was made in it" in str(end.value.value[other])
    assert other not in rig.replicas.all
