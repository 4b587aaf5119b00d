"""Requests that name very many things: each is answered for, and others are served meanwhile."""

from __future__ import annotations

from functools import partialmethod
from itertools import groupby
from types import SimpleNamespace

import asking
import pytest
import trio
from broker_rig import open_rig

from kraftcore.core.uuid import Uuid
from kraftcore.node import registry
from kraftcore.node.registry import Asker
from kraftcore.plugins.broker.api import fetch_sessions
from kraftcore.plugins.broker.api.describe_log_dirs import DescribeLogDirs
from kraftcore.plugins.broker.api.fetch import Fetch
from kraftcore.plugins.broker.api.metadata import Metadata
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work import turns
from kraftcore.plugins.controller.describe_configs import REPEATS_MAX
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

ITEMS, TURN = 300, 20
NUMBERS = list(range(ITEMS))
NAMES = [f"u{number:03}" for number in NUMBERS]
BY_ID = 13  # version of Fetch


def of_topic(kind, part, named="partitions", number="partition", topic="topic", **more):
    """A topic that is not there, with many partitions."""
    return [kind(**{topic: "u", named: [part(**{number: each}, **more) for each in NUMBERS]})]


def partitions(found, named="partitions"):
    return [part for topic in found for part in getattr(topic, named)]


def added(found):
    return [SimpleNamespace(error_code=part.partition_error_code) for part in partitions(found, "results_by_partition")]


Log = FetchRequest.FetchTopic
Offsets = ListOffsetsRequest.ListOffsetsTopic
Epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
Records = DeleteRecordsRequest.DeleteRecordsTopic
Data = ProduceRequest.TopicProduceData
Marker = WriteTxnMarkersRequest.WritableTxnMarker
Moves = AlterReplicaLogDirsRequest.AlterReplicaLogDir
REQUESTS = {
    "Produce": (
        lambda: ProduceRequest(
            acks=1,
            topic_data=of_topic(Data, Data.PartitionProduceData, "partition_data", "index", "name", records=b""),
        ),
        11,
        lambda told: partitions(told.responses, "partition_responses"),
    ),
    "Fetch": (
        lambda: FetchRequest(max_wait_ms=0, session_epoch=-1, topics=of_topic(Log, Log.FetchPartition)),
        12,
        lambda told: partitions(told.responses),
    ),
    "ListOffsets": (
        lambda: ListOffsetsRequest(
            topics=of_topic(Offsets, Offsets.ListOffsetsPartition, number="partition_index", topic="name", timestamp=-1)
        ),
        9,
        lambda told: partitions(told.topics),
    ),
    "Metadata": (
        lambda: MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
        ),
        12,
        lambda told: told.topics,
    ),
    "Metadata by id": (
        lambda: MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=None, topic_id=Uuid.random()) for _ in NUMBERS]
        ),
        12,
        lambda told: told.topics,
    ),
    "OffsetForLeaderEpoch": (
        lambda: OffsetForLeaderEpochRequest(topics=of_topic(Epochs, Epochs.OffsetForLeaderPartition)),
        4,
        lambda told: partitions(told.topics),
    ),
    "DeleteRecords": (
        lambda: DeleteRecordsRequest(
            topics=of_topic(Records, Records.DeleteRecordsPartition, number="partition_index", topic="name")
        ),
        2,
        lambda told: partitions(told.topics),
    ),
    "FindCoordinator": (
        lambda: FindCoordinatorRequest(coordinator_keys=NAMES, key_type=2),
        6,
        lambda told: told.coordinators,
    ),
    "DescribeGroups": (lambda: DescribeGroupsRequest(groups=NAMES), 5, lambda told: told.groups),
    "DeleteGroups": (lambda: DeleteGroupsRequest(groups_names=NAMES), 2, lambda told: told.results),
    "OffsetFetch": (
        lambda: OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES]
        ),
        8,
        lambda told: told.groups,
    ),
    "DescribeTopicPartitions": (
        lambda: DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in NAMES]
        ),
        0,
        lambda told: told.topics,
    ),
    "DescribeConfigs": (
        lambda: DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES
            ]
        ),
        4,
        lambda told: told.results,
    ),
    "DescribeProducers": (
        lambda: DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="u", partition_indexes=NUMBERS)]
        ),
        0,
        lambda told: partitions(told.topics),
    ),
    "DescribeUserScramCredentials": (
        lambda: DescribeUserScramCredentialsRequest(
            users=[DescribeUserScramCredentialsRequest.UserName(name=name) for name in NAMES]
        ),
        0,
        lambda told: told.results,
    ),
    "WriteTxnMarkers": (
        lambda: WriteTxnMarkersRequest(
            markers=[Marker(producer_id=1, topics=[Marker.WritableTxnMarkerTopic(name="u", partition_indexes=NUMBERS)])]
        ),
        1,
        lambda told: partitions(told.markers[0].topics),
    ),
    "AddPartitionsToTxn": (
        lambda: AddPartitionsToTxnRequest(
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="u", partitions=NUMBERS)], v3_and_below_producer_id=1
        ),
        3,
        lambda told: added(told.results_by_topic_v3_and_below),
    ),
    "AddPartitionsToTxn of brokers": (
        lambda: AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    topics=[AddPartitionsToTxnTopic(name="u", partitions=NUMBERS)]
                )
            ]
        ),
        5,
        lambda told: added(told.results_by_transaction[0].topic_results),
    ),
    "AlterReplicaLogDirs": (
        lambda: AlterReplicaLogDirsRequest(
            dirs=[Moves(path="/x", topics=[Moves.AlterReplicaLogDirTopic(name="u", partitions=NUMBERS)])]
        ),
        2,
        lambda told: partitions(told.results),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_others_are_served_while_one_request_names_very_many_things(play, monkeypatch, caplog, name):
    make, version, told_in = REQUESTS[name]
    ticks, looks = [0], []
    is_over, check_announced = turns.Turn.is_over, Replicas.check_announced

    def noting(turn, count=1):
        looks.extend([ticks[0]] * count)
        return is_over(turn, count)

    def noting_check(replicas, partition):
        looks.append(ticks[0])
        check_announced(replicas, partition)

    async def others():
        while True:
            ticks[0] += 1
            await trio.lowlevel.checkpoint()

    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        monkeypatch.setattr(turns, "ITEMS", TURN)
        monkeypatch.setattr(turns.Turn, "is_over", noting)
        if name == "Produce":  # asks this once for each partition, and counts whole turns
            monkeypatch.setattr(Replicas, "check_announced", noting_check)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            looks.clear()
            told = await rig.ask(1, make(), version)
            nursery.cancel_scope.cancel()
        answers = told_in(told)
        assert len(answers) == ITEMS
        assert all(each.error_code != ErrorCode.NONE for each in answers)

    play(main)
    assert len(looks) >= ITEMS
    # Each turn came in a later round of the loop; in two rounds that follow each other nobody else may be between.
    assert max(len(list(same)) for _, same in groupby(looks)) <= 2 * TURN
    said = [each.getMessage() for each in caplog.records if " does not move to /x: " in each.getMessage()]
    assert [text.endswith(f"(and {ITEMS - 1} others)") for text in said] == [True] * (name == "AlterReplicaLogDirs")


def test_a_resource_is_described_a_few_times_at_most_however_many_turns_there_are(play, monkeypatch):
    async def main(rig):
        await rig.controller()
        await rig.broker(1)
        monkeypatch.setattr(turns, "ITEMS", TURN)
        kind = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(resources=[kind(resource_type=4, resource_name="1")] * ITEMS)
        told = await rig.ask(1, request, 4)
        codes = [each.error_code for each in told.results]
        assert codes == [ErrorCode.NONE] * REPEATS_MAX + [ErrorCode.INVALID_REQUEST] * (ITEMS - REPEATS_MAX)

    play(main)


def test_topics_that_the_asker_may_not_see_take_turns_as_well(monkeypatch):
    monkeypatch.setattr(turns, "ITEMS", TURN)
    permits = SimpleNamespace(is_open=False, may=lambda *_, **__: False)
    cache = SimpleNamespace(topics=dict.fromkeys(NAMES), controller_id=None, brokers_on=lambda listener: ())
    context = SimpleNamespace(version=12, asker=Asker("L", "p"), client_id=None)

    def turns_of(handler, request):
        return len(list(type(handler).respond.__wrapped__(handler, request, context)))

    assert turns_of(Metadata(cache, "c", permits, None), MetadataRequest(topics=None)) == ITEMS // TURN
    replicas = SimpleNamespace(watch=lambda changed: None)
    fetch = Fetch(replicas, cache, None, None, permits, max_bytes=1, now_ms=lambda: 0, session_slots=0)
    topics = [Log(topic=name, partitions=[Log.FetchPartition(partition=0)]) for name in NAMES]
    # Named, asked about, and refused.
    assert turns_of(fetch, FetchRequest(session_epoch=-1, topics=topics)) == 3 * ITEMS // TURN


def test_nothing_is_made_for_each_number_that_log_directories_are_asked_about(monkeypatch):
    """They are looked at in one go."""
    made = []
    new = TopicPartition.__new__
    monkeypatch.setattr(TopicPartition, "__new__", lambda cls, *args: made.append(args) or new(cls, *args))
    handler = DescribeLogDirs(SimpleNamespace(directories=[]), SimpleNamespace(all={}), Permits())
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    handler.respond(DescribeLogDirsRequest(topics=[kind(topic="u", partitions=NUMBERS)]), None)
    assert made == []


def test_what_one_turn_takes_is_answered_in_the_callers():
    def steps(self, request, context):
        turn = turns.Turn()
        for _ in range(request):
            if turn.is_over():
                yield
        return request

    class Context:
        waits = 0

        def wait(self):
            self.waits += 1

    context = Context()
    respond = turns.in_turns(steps)
    assert (respond(None, turns.ITEMS - 1, context), context.waits) == (turns.ITEMS - 1, 0)

    async def main():
        coroutine = respond(None, turns.ITEMS, context)
        assert context.waits == 1
        assert await coroutine == turns.ITEMS

    trio.run(main)


def test_a_few_requests_alternate_and_no_connection_is_broken_for_others(play, monkeypatch):
    """Clients all come at once when leaders changed; what is made of their answers is in memory."""
    clients, at_a_time, suspended_max = 30, 3, 20
    held, begun, most_held, most = set(), set(), [], []

    def counted(respond):
        def run(self, request, context):
            number = len(most)
            most.append(0)
            steps = respond(self, request, context)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    held.discard(number)
                    begun.discard(number)
                    return end.value
                held.add(number)
                most_held.append(len(held))
                yield
                begun.add(number)
                most[number] = len(begun)

        return turns.in_turns(run)

    async def main(rig):
        await rig.controller()
        monkeypatch.setattr(Metadata, "respond", counted(Metadata.respond.__wrapped__))
        await rig.broker(1)
        for setting, value in (("ITEMS", TURN), ("AT_A_TIME", at_a_time), ("SUSPENDED_MAX", suspended_max)):
            monkeypatch.setattr(turns, setting, value)
        make, version, told_in = REQUESTS["Metadata"]
        answers = []

        async def ask():
            answers.append(len(told_in(await rig.ask(1, make(), version))))

        async with trio.open_nursery() as nursery:
            for _ in range(clients):
                nursery.start_soon(ask)
        assert answers == [ITEMS] * clients

    play(main)
    assert len(most) == clients
    # One more while it takes all of its turns at once.
    assert at_a_time <= max(most) <= at_a_time + 1
    assert max(most_held) <= suspended_max + 1


def test_control_requests_wait_for_no_request_in_turns(tmp_path, monkeypatch):
    waiting = registry.WaitingRequests
    monkeypatch.setattr(waiting, "__init__", partialmethod(waiting.__init__, tasks_max=1))

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            for topic in "tu":
                await rig.assign(1, 0, [1], topic=topic)
            held, goes_on = hold(monkeypatch, 1)
            answers = []

            async def ask():
                answers.append(await rig.ask(1, fetch_of_two(), asking.FETCH_VERSION))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await held.wait()
                with trio.fail_after(5):
                    await rig.assign(1, 1, [1])
                assert not answers
                goes_on.set()
            assert asking.fetched(answers[0]).error_code == ErrorCode.FENCED_LEADER_EPOCH

    trio.run(main)


def hold(monkeypatch, turns_before):
    """Have a request take a turn for each thing, and stop before one turn; events: it stopped, it may go on."""
    held, goes_on = trio.Event(), trio.Event()
    is_over = turns.Turn.is_over

    def each(turn, count=1):
        return is_over(turn, turns.ITEMS)

    async def finish(steps):
        for _ in range(turns_before - 1):
            next(steps)
        monkeypatch.setattr(turns.Turn, "is_over", is_over)
        held.set()
        await goes_on.wait()
        return turns.at_once(steps)

    monkeypatch.setattr(turns.Turn, "is_over", each)
    monkeypatch.setattr(turns, "finish", finish)
    return held, goes_on


# A turn for each of two names, and for each of two partitions before it is read, or noted for a follower.
BEFORE_READING_THE_SECOND, BEFORE_NOTING_THE_FIRST = 4, 5


def fetch_of_two(**more):
    kind = FetchRequest.FetchTopic
    asked = {"current_leader_epoch": 0, "partition_max_bytes": 1 << 20, **more.pop("asked", {})}
    topics = [kind(topic=topic, partitions=[kind.FetchPartition(**asked)]) for topic in "tu"]
    return FetchRequest(max_wait_ms=60_000, min_bytes=1 << 20, session_epoch=-1, topics=topics, **more)


def test_a_partition_that_is_deleted_between_two_turns_of_a_fetch_breaks_no_connection(tmp_path, monkeypatch):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            for topic in "tu":
                await rig.assign(1, 0, [1], topic=topic)
            await rig.produce(1, b"v")
            held, goes_on = hold(monkeypatch, BEFORE_READING_THE_SECOND)

            async def ask():
                told = await rig.ask(1, fetch_of_two(), asking.FETCH_VERSION)
                assert asking.values_in(told.responses[0].partitions[0]) == [b"v"]

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await held.wait()
                assert await rig.delete(1) == 0
                goes_on.set()

    trio.run(main)


@pytest.mark.parametrize("place", [BEFORE_READING_THE_SECOND, BEFORE_NOTING_THE_FIRST])
def test_what_a_follower_asked_in_an_earlier_epoch_is_not_noted_in_a_later_turn(tmp_path, monkeypatch, place):
    """It may have cut its log meanwhile: what it had then is not committed."""

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            for topic in "tu":
                await rig.assign(1, 0, [1, 2], topic=topic)
            await rig.produce(1, b"v", acks=1)
            partition = rig.brokers[1].replicas.all[TopicPartition("t", 0)].partition
            held, goes_on = hold(monkeypatch, place)

            async def ask():
                request = fetch_of_two(replica_id=2, asked={"fetch_offset": 1})
                told = await rig.ask(1, request, asking.FETCH_VERSION)
                assert asking.fetched(told).error_code == ErrorCode.FENCED_LEADER_EPOCH

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await held.wait()
                await rig.assign(2, 1, [1, 2])
                await rig.assign(1, 2, [1, 2])
                goes_on.set()
            assert (partition.high_watermark, partition.log.log_end_offset) == (0, 1)

    trio.run(main)


@pytest.mark.parametrize(("topic", "waits"), [("t", False), ("w", True)])
def test_a_fetch_is_told_what_changed_between_its_turns_and_waits_where_others_did(tmp_path, monkeypatch, topic, waits):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            for each in "tuw":
                await rig.assign(1, 0, [1], topic=each)
            held, goes_on = hold(monkeypatch, BEFORE_READING_THE_SECOND)
            over = trio.Event()

            async def ask():
                await rig.ask(1, fetch_of_two(), asking.FETCH_VERSION)
                over.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await held.wait()
                await rig.produce(1, b"v", topic=topic)
                goes_on.set()
                if waits:
                    for _ in range(5):  # others are answered, and this one is not
                        await rig.fetch(1, topic="w")
                    assert not over.is_set()
                    await rig.delete(1, "u")
                with trio.fail_after(5):
                    await over.wait()

    trio.run(main)


async def begin_session(rig, *topics, version=asking.FETCH_VERSION, **more):
    """About partition 0 of these topics from an offset on, until nothing is new."""
    kind = FetchRequest.FetchTopic
    asked = {"partition_max_bytes": 1 << 20, **more.pop("asked", {})}
    named = [kind(topic=topic, partitions=[kind.FetchPartition(**asked)]) for topic in topics]
    session_id = (await rig.ask(1, FetchRequest(session_epoch=0, topics=named, **more), version)).session_id
    for epoch in (1, 2):
        told = await rig.ask(1, FetchRequest(session_id=session_id, session_epoch=epoch, **more), version)
    assert told.responses == []
    return session_id


def test_a_high_watermark_that_rises_between_two_turns_is_told_next(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_sessions, "REST_MS", 1 << 60)

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, replica_lag_time_max_ms=3_600_000)
            await rig.assign(1, 0, [1, 2, 3])
            await rig.produce(1, b"v", acks=1)
            follower = {"replica_id": 2, "max_wait_ms": 0}
            session_id = await begin_session(rig, "t", asked={"fetch_offset": 1}, **follower)
            held, goes_on = hold(monkeypatch, 2)  # before the partition is noted

            async def ask(epoch):
                request = FetchRequest(session_id=session_id, session_epoch=epoch, **follower)
                return [
                    partition.high_watermark
                    for topic in (await rig.ask(1, request, asking.FETCH_VERSION)).responses
                    for partition in topic.partitions
                ]

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, 3)
                await held.wait()
                await rig.fetch(1, 1, replica_id=3)
                goes_on.set()
            assert [await ask(epoch) for epoch in (4, 5)] == [[1], []]

    trio.run(main)


def test_a_request_whose_session_ends_before_it_reads_waits_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Permits, "is_open", False)
    monkeypatch.setattr(Permits, "may", lambda *_: True)

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            for topic in "tu":
                await rig.assign(1, 0, [1], topic=topic)
            session_id = await begin_session(rig, "t", "u")
            held, goes_on = hold(monkeypatch, 1)

            async def ask():
                request = FetchRequest(session_id=session_id, session_epoch=3, max_wait_ms=3_600_000, min_bytes=1)
                assert (await rig.ask(1, request, asking.FETCH_VERSION)).error_code == 0

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await held.wait()
                await rig.ask(1, FetchRequest(session_id=session_id, session_epoch=-1), asking.FETCH_VERSION)
                goes_on.set()

    trio.run(main)


def test_a_fetch_in_turns_may_name_a_partition_by_two_ids(tmp_path, monkeypatch):
    """A topic is made anew while the request is read."""
    monkeypatch.setattr(turns, "ITEMS", 1)

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            ids = rig.topic_ids["t"], Uuid.random()
            rig.brokers[1].cache.names[ids[1]] = "t"
            kind = FetchRequest.FetchTopic
            topics = [kind(topic_id=each, partitions=[kind.FetchPartition(partition=0)]) for each in ids]
            told = await rig.ask(1, FetchRequest(session_epoch=-1, topics=topics), BY_ID)
            assert [topic.partitions[0].error_code for topic in told.responses] == [
                ErrorCode.NONE,
                ErrorCode.INCONSISTENT_TOPIC_ID,
            ]

    trio.run(main)
