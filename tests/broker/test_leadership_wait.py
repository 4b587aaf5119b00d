"""Requests for partitions that the metadata names us the leader of while their logs are being made."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import asking
import pytest
import trio
from kraft_rig import open_kraft_rig

from kraftcore.errors import StorageError
from kraftcore.node.registry import Asker
from kraftcore.plugins.broker.api import leadership_wait
from kraftcore.plugins.broker.api.leadership_wait import LeadershipWait
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def list_request(*names):
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            kind(name=name.topic, partitions=[kind.ListOffsetsPartition(partition_index=name.partition, timestamp=-1)])
            for name in names
        ],
    )


def epoch_request():
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[kind(topic="t", partitions=[asked])])


def delete_request():
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    asked = kind(name="t", partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=0)])
    return DeleteRecordsRequest(topics=[asked], timeout_ms=30_000)


REQUESTS = {
    "produce": (asking.produce_request(b"v"), asking.PRODUCE_VERSION, lambda answer: asking.produced(answer)),
    "fetch": (asking.fetch_request(0), asking.FETCH_VERSION, lambda answer: asking.fetched(answer)),
    "offsets": (list_request(T), 7, lambda answer: answer.topics[0].partitions[0]),
    "epochs": (epoch_request(), 4, lambda answer: answer.topics[0].partitions[0]),
    "deleted": (delete_request(), 2, lambda answer: answer.topics[0].partitions[0]),
}


class Gate:
    """Logs are made when it is opened."""

    def __init__(self, monkeypatch):
        self.opened, self.error, make = threading.Event(), None, Directory.make

        def wait(directory, *arguments):
            assert self.opened.wait(60)
            if self.error is not None:
                raise self.error
            make(directory, *arguments)

        monkeypatch.setattr(Directory, "make", wait)


@pytest.mark.parametrize("error", [None, StorageError(5, "the disk fails", "/")])
def test_requests_wait_until_the_partition_is_led_or_cannot_be(tmp_path, monkeypatch, error):
    gate = Gate(monkeypatch)

    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.controller()
            await rig.broker(1)
            await rig.create([1])
            with trio.fail_after(30):
                while not rig.brokers[1].parts.cache.knows("t", 0):
                    await trio.sleep(0.001)
            answers = {}

            async def ask(name):
                request, version, part = REQUESTS[name]
                answers[name] = part(await rig.ask(1, request, version)).error_code

            async with trio.open_nursery() as nursery:
                for name in REQUESTS:
                    nursery.start_soon(ask, name)
                topic = MetadataRequest.MetadataRequestTopic(name="t")
                for _ in range(20):  # whoever does not wait was answered by now
                    (told,) = (await rig.ask(1, MetadataRequest(topics=[topic]), 12)).topics
                    assert told.partitions[0].leader_id == 1
                assert not answers
                gate.error = error
                gate.opened.set()
            code = ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR
            assert answers == dict.fromkeys(REQUESTS, code)

    trio.run(main)


def test_a_leader_that_came_while_logs_are_made_is_known_with_its_partitions(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)

    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.controller()
            first = await rig.broker(1)
            await rig.create([1])  # broker 1 makes its log, and has carried out nothing that was committed since
            try:
                await rig.broker(2)
                await rig.create([2], topic="u")
                with trio.fail_after(30):
                    while not first.parts.cache.knows("u", 0):
                        await trio.sleep(0.001)
                topic = MetadataRequest.MetadataRequestTopic(name="u")
                answer = await rig.ask(1, MetadataRequest(topics=[topic]), 12)
                (partition,) = answer.topics[0].partitions
                assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 2)
                assert {each.node_id for each in answer.brokers} == {1, 2}
                assert first.parts.cache.knows("t", 0)
                assert T not in first.parts.replicas.all
            finally:
                gate.opened.set()

    trio.run(main)


# --- how many, and for how long


class Rig:
    """Partitions that come when a test says so."""

    def __init__(self):
        self.now = 0.0
        self.deadlines = Deadlines(lambda: self.now)
        self.there = set()
        replicas = SimpleNamespace(is_coming=lambda name: name not in self.there)
        self.leadership_wait = LeadershipWait(replicas, SimpleNamespace(names={}), self.deadlines, lambda: True)
        self.answered = []
        self.waits = 0

    def ask(self, request, *, size=10):
        context = SimpleNamespace(
            version=7, size=size, wait=self.wait, answer=self.answered.append, asker=Asker("L", "p")
        )
        found = self.leadership_wait.held(type(request), lambda request, context: request)(request, context)
        if found is not None:
            self.answered.append(found)

    def wait(self):
        self.waits += 1

    def come(self, *names):
        self.there.update(names)
        for name in names:
            self.leadership_wait.led(name)


def test_a_request_for_several_partitions_waits_for_all_and_counts_no_more_then():
    rig = Rig()
    request = list_request(T, U)
    rig.ask(request)
    rig.come(T)
    assert (rig.answered, rig.waits) == ([], 1)
    rig.come(U)
    rig.come(T, U)
    assert rig.answered == [request]
    assert rig.deadlines.due == float("inf")
    rig.ask(list_request(T))
    assert (len(rig.answered), rig.waits) == (2, 1)


def test_what_was_deleted_meanwhile_is_waited_for_no_longer():
    rig = Rig()
    rig.ask(list_request(T, U))
    rig.there.update((T, U))
    rig.leadership_wait.settled()
    assert len(rig.answered) == 1


@pytest.mark.parametrize(
    ("request_", "seconds"),
    [
        (list_request(T), leadership_wait.WAIT_MS / 1000),
        (asking.fetch_request(0, wait_ms=0), leadership_wait.FETCH_MS / 1000),
        (asking.fetch_request(0, wait_ms=3000), 3),
        (asking.fetch_request(0, wait_ms=9000), leadership_wait.WAIT_MS / 1000),
        (ProduceRequest(timeout_ms=1500, topic_data=list(asking.produce_request(b"v").topic_data)), 1.5),
    ],
)
def test_nobody_waits_for_ever(request_, seconds):
    rig = Rig()
    rig.ask(request_)
    rig.now = seconds - 0.001
    rig.deadlines.run_due()
    assert not rig.answered
    rig.now = seconds + 0.001
    rig.deadlines.run_due()
    assert rig.answered == [request_]
    rig.come(T)
    assert len(rig.answered) == 1


def test_no_more_than_some_wait(monkeypatch):
    monkeypatch.setattr(leadership_wait, "WAITING_MAX", 3)
    monkeypatch.setattr(leadership_wait, "WAITING_BYTES_MAX", 100)
    rig = Rig()
    for size in (10, 60, 40, 20, 1):
        rig.ask(list_request(T), size=size)
    assert (rig.waits, len(rig.answered)) == (3, 2)
    rig.come(T)
    assert len(rig.answered) == 5
    rig.there.clear()
    rig.ask(list_request(T), size=100)
    assert rig.waits == 4


def test_an_error_hurts_the_asker_alone(caplog):
    rig, closed = Rig(), []

    def fail(request, context):
        raise ValueError("a mistake")

    context = SimpleNamespace(
        version=7, size=1, wait=rig.wait, close=lambda: closed.append(True), asker=Asker("L", "p")
    )
    rig.leadership_wait.held(ListOffsetsRequest, fail)(list_request(T), context)
    rig.ask(list_request(T))
    rig.come(T)
    assert (closed, len(rig.answered)) == ([True], 1)
    assert "a mistake" in caplog.text
