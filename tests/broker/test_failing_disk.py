"""A disk that fails: its partitions go offline, the others are served, and without any directory the broker stops."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import own_partitions
import pytest
import trio
from broker_rig import until

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.errors import NodeStoppedError, StorageError
from kraftcore.plugins.broker import BrokerConfig, open_broker
from kraftcore.plugins.broker.api.fetch import Fetch
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.produce import Produce
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState
from kraftcore.raft.quorum import Endpoint
from kraftcore.transports.memory import MemoryNetwork

T, U = TopicPartition("t", 0), TopicPartition("u", 0)
QUICK = {"high_watermark_checkpoint_ms": 20, "initial_task_delay_ms": 0}


def config(*directories):
    return BrokerConfig(node_id=1, listeners=(Endpoint("BROKER", "b", 9092),), directories=directories, **QUICK)


def lead(broker, name):
    broker.cache.topics[name.topic] = {0: UpdateMetadataPartitionState(partition_index=0, leader=1)}
    replica = own_partitions.add(broker.replicas, name, None)
    replica.partition.become_leader(Assignment(1, 0, 0, (1,), (1,)), 0)
    return replica


def produce(broker, name):
    """The error code of an append, as a handler of the broker's kind answers it."""
    answers = []

    class Context:
        version, listener = 9, "BROKER"
        answer = staticmethod(answers.append)

    kind = ProduceRequest.TopicProduceData
    part = kind.PartitionProduceData(index=0, records=bytes(build_batch([b"v"], timestamp_ms=1)))
    request = ProduceRequest(acks=1, topic_data=[kind(name=name.topic, partition_data=[part])])
    replicas = broker.replicas
    leaders = Leaders(replicas, broker.cache)
    handler = Produce(replicas, broker.cache, leaders, Deadlines(), lambda topic: 10_000, lambda: 0)
    handler.respond(request, Context)
    return ErrorCode(answers[0].responses[0].partition_responses[0].error_code)


def test_the_other_directory_goes_on(caplog):
    async def main():
        disk = SimulatedDisk(Random(1))
        async with (
            MemoryNetwork().transport("1") as transport,
            open_broker(config("/d1", "/d2"), transport=transport, files=disk) as broker,
        ):
            first, second = lead(broker, T), lead(broker, U)
            assert first.hosted.directory is not second.hosted.directory
            assert produce(broker, T) is ErrorCode.NONE
            disk.inject("write", times=1, path=f"{first.hosted.directory.path}/t-0")
            assert produce(broker, T) is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(broker, T) is ErrorCode.KAFKA_STORAGE_ERROR
            assert first.hosted.directory.failure is not None
            assert produce(broker, U) is ErrorCode.NONE

    trio.run(main)
    assert "its partitions are offline" in caplog.text


def test_a_directory_that_failed_is_touched_no_more_by_retention_nor_as_the_broker_stops():
    async def main():
        disk = SimulatedDisk(Random(1))
        settings = replace(config("/d1", "/d2"), retention_ms=1000, retention_check_ms=50)
        async with (
            MemoryNetwork().transport("1") as transport,
            open_broker(settings, transport=transport, files=disk) as broker,
        ):
            first, second = lead(broker, T), lead(broker, U)
            assert produce(broker, T) is produce(broker, U) is ErrorCode.NONE
            touched = disk.inject("any", times=-1, path=f"{first.hosted.directory.path}/t-0")
            broker.replicas.directory_failed(first.hosted.directory, StorageError(5, "the disk", "/d1"))
            await until(lambda: second.partition.log.log_start_offset == 1)
            await trio.sleep(0.2)
        assert first.partition.log.log_start_offset == 0
        assert not touched.hits

    trio.run(main)


def test_without_any_directory_it_stops(caplog):
    async def main():
        disk = SimulatedDisk(Random(1))
        async with (
            MemoryNetwork().transport("1") as transport,
            open_broker(config("/d1"), transport=transport, files=disk) as broker,
        ):
            lead(broker, T)
            disk.inject("write", times=1, path="/d1/t-0")
            assert produce(broker, T) is ErrorCode.KAFKA_STORAGE_ERROR
            with trio.fail_after(60):
                await broker.wait_failed()

    with pytest.raises(NodeStoppedError, match="all log directories failed"):
        trio.run(main)


def test_a_long_poll_that_cannot_be_read_is_answered_once_and_the_broker_goes_on():
    async def main():
        disk = SimulatedDisk(Random(1))
        async with (
            MemoryNetwork().transport("1") as transport,
            open_broker(config("/d1", "/d2"), transport=transport, files=disk) as broker,
        ):
            first = lead(broker, T)
            lead(broker, U)
            answers = []

            class Context:
                version, listener, client_id = 11, "BROKER", "c"
                answer = staticmethod(answers.append)

            asked = FetchRequest.FetchTopic.FetchPartition(partition=0, partition_max_bytes=1 << 20)
            topics = [FetchRequest.FetchTopic(topic="t", partitions=[asked])]
            request = FetchRequest(max_wait_ms=600_000, min_bytes=2, topics=topics, session_id=0, session_epoch=-1)
            replicas, cache = broker.replicas, broker.cache
            leaders = Leaders(replicas, cache)
            fetch = Fetch(replicas, cache, leaders, Deadlines(), Permits(), 1 << 20, lambda: 0, session_slots=1)
            fetch.respond(request, Context)
            assert not answers

            def read(*args, **more):
                raise StorageError(5, "the disk", "/d1/t-0")

            first.partition.read = read
            assert produce(broker, T) is ErrorCode.NONE
            assert [answer.responses[0].partitions[0].error_code for answer in answers] == [
                ErrorCode.KAFKA_STORAGE_ERROR
            ]
            assert produce(broker, U) is ErrorCode.NONE

    trio.run(main)


def test_a_disk_that_takes_no_new_partition_is_used_no_more():
    async def main():
        disk = SimulatedDisk(Random(1))
        async with (
            MemoryNetwork().transport("1") as transport,
            open_broker(config("/d1", "/d2"), transport=transport, files=disk) as broker,
        ):
            replicas = broker.replicas
            error = StorageError(28, "no space", "/d2/t-0/partition.metadata")
            assert replicas.failed(T, error) is ErrorCode.KAFKA_STORAGE_ERROR
            assert lead(broker, T).hosted.directory.path == "/d1"
            assert lead(broker, U).hosted.directory.path == "/d1"

    trio.run(main)
