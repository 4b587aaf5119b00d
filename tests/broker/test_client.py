"""What one broker answers: to an unmodified client, and to bad input of all kinds."""

from __future__ import annotations

import struct
import time
from collections import Counter
from inspect import ismethod, unwrap

import own_partitions
import pytest
import trio
from broker_rig import open_rig, until
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Assigned

from kraftcore.core.batch import build_batch, iter_batches, set_max_timestamp
from kraftcore.core.crc32c import crc32c
from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker import BrokerConfig, open_broker
from kraftcore.plugins.broker.metadata.cache import LiveBroker
from kraftcore.plugins.broker.partition import Assignment, Partition, TopicPartition
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState
from kraftcore.raft.quorum import Endpoint


def with_crc(batch, change):
    """A batch with header bytes changed, its checksum in order."""
    data = bytearray(batch)
    change(data)
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


def flag(number):
    def change(data):
        data[22] |= number

    return change


def producer_id(data):
    data[43:51] = (7).to_bytes(8)


T = TopicPartition("t", 0)
GOOD = bytes(build_batch([b"v"], timestamp_ms=1))
BAD = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "without a header": (bytes(8) + (20).to_bytes(4) + bytes(4) + b"\2" + bytes(15), ErrorCode.CORRUPT_MESSAGE),
    "half": (GOOD[:40], ErrorCode.INVALID_RECORD),
    "checksum": (GOOD[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
    "two": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "control": (with_crc(GOOD, flag(0x20)), ErrorCode.INVALID_RECORD),
    "producer id": (with_crc(GOOD, producer_id), ErrorCode.INVALID_RECORD),
    "too large": (bytes(build_batch([b"v" * 3000], timestamp_ms=1)), ErrorCode.MESSAGE_TOO_LARGE),
}


def test_bad_batches_are_refused_and_the_next_good_one_is_taken(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, message_max_bytes=2000)
            await rig.assign(1, 0, [1])
            for what, (records, error) in BAD.items():
                answer = await rig.produce(1, records=records)
                assert (answer.error_code, answer.base_offset) == (error, -1), what
            assert (await rig.produce(1, b"a", acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
            answer = await rig.produce(1, b"good")
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert await rig.values(1) == [b"good"]

    trio.run(main)


def test_a_fetch_waits_and_ends_with_its_partition(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            found = []

            async def fetch():
                found.append(await rig.fetch(1, wait_ms=60_000))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fetch)
                respond = rig.brokers[1]._registry.find(FetchRequest, "BROKER").respond
                waiting = unwrap(respond, stop=ismethod).__self__._waiting
                await until(lambda: waiting)
                assert not found
                assert await rig.delete(1) == 0
            assert found[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not waiting
            answer = await rig.fetch(1, session_id=5, session_epoch=1)
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    trio.run(main)


def test_offsets_out_of_range_and_many_partitions_within_bounds(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            for number in range(4):
                await rig.produce(1, b"%d" % number * 500)
            assert (await rig.fetch(1, 5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await rig.fetch(1, -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            whole = await rig.fetch(1, max_bytes=1)
            assert [batch.base_offset for batch in iter_batches(bytes(whole.records))] == [0]

    trio.run(main)


def test_what_a_directory_holds_is_there_after_a_stop_and_a_wrong_owner_is_refused(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 3, [1])
            assert (await rig.produce(1, b"a", b"b")).error_code == 0
            folder = tmp_path / "d1"
            assert not (folder / ".kafka_cleanshutdown").exists()
            await rig.stop(1)
            assert (folder / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
            assert (folder / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
            assert (folder / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
            assert [file.name for file in (folder / "t-0").glob("*.snapshot")] == [f"{2:020d}.snapshot"]
            await rig.start(1)
            await rig.assign(1, 4, [1])
            assert await rig.values(1) == [b"a", b"b"]

    trio.run(main)


def test_a_log_that_cannot_be_opened_is_left_alone_and_the_others_are_served(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            await rig.assign(1, 0, [1], topic="u")
            for topic in ("t", "u"):
                assert (await rig.produce(1, b"a", topic=topic)).error_code == 0
            await rig.stop(1)
            (tmp_path / "d1" / "kraftcore-topic-ids").unlink()
            (tmp_path / "d1" / "u-0" / "partition.metadata").write_text("rubbish")
            await rig.start(1)
            assert (await rig.produce(1, b"a", topic="u")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (tmp_path / "d1" / "u-0" / "partition.metadata").read_text() == "rubbish"
            await rig.assign(1, 1, [1])
            assert await rig.values(1) == [b"a"]

    trio.run(main)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_kafka_python_produces_and_consumes(tmp_path, compression):
    """Over TCP, unmodified; keys, headers and times come back."""
    config = BrokerConfig(
        node_id=1, listeners=(Endpoint("PLAINTEXT", "127.0.0.1", 0),), directories=(str(tmp_path / "d"),)
    )

    def use(port):
        servers = f"127.0.0.1:{port}"
        producer = KafkaProducer(
            bootstrap_servers=servers, acks="all", enable_idempotence=False, compression_type=compression, linger_ms=5
        )
        sent = [
            producer.send("t", b"value %d" % n, key=b"key", headers=[("h", b"x")], timestamp_ms=1000 + n)
            for n in range(500)
        ]
        assert [future.get(60).offset for future in sent] == list(range(500))
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        part = Assigned("t", 0)
        consumer.assign([part])
        found = []
        while len(found) < 500:
            for records in consumer.poll(1000).values():
                found += records
        assert [(each.offset, each.value, each.timestamp) for each in found] == [
            (n, b"value %d" % n, 1000 + n) for n in range(500)
        ]
        assert (found[7].key, found[7].headers) == (b"key", [("h", b"x")])
        assert consumer.offsets_for_times({part: 1250})[part].offset == 250
        assert (consumer.beginning_offsets([part])[part], consumer.end_offsets([part])[part]) == (0, 500)
        consumer.close()

    async def main():
        async with open_broker(config) as broker:
            name, port = TopicPartition("t", 0), broker.endpoints[0].port
            assignment = Assignment(1, 0, 0, (1,), (1,))
            replica = own_partitions.add(broker.replicas, name, Uuid.random())
            replica.partition.become_leader(assignment, 0)
            state = UpdateMetadataPartitionState(partition_index=0, leader=1, leader_epoch=0, isr=[1], replicas=[1])
            broker.cache.topics["t"] = {0: state}
            broker.cache.brokers = {1: LiveBroker(1, None, {"PLAINTEXT": Address("127.0.0.1", port)})}
            await trio.to_thread.run_sync(use, port)

    trio.run(main)


def test_a_header_that_lies_about_times_is_put_right(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            now = int(time.time() * 1000)
            future = build_batch([b"f"], timestamp_ms=now + 10**10)
            set_max_timestamp(future, now)
            assert (await rig.produce(1, records=future)).error_code == ErrorCode.INVALID_TIMESTAMP
            for lie in (2**62, 7, -1):
                batch = build_batch([b"v"], timestamp_ms=now)
                set_max_timestamp(batch, lie)
                assert (await rig.produce(1, records=batch)).error_code == 0
            found = list(iter_batches(bytes((await rig.fetch(1)).records)))
            assert [(each.max_timestamp_ms, each.is_valid) for each in found] == [(now, True)] * 3
            assert rig.brokers[1].replicas.find(T).log.segment_list()[0].max_timestamp == now

    trio.run(main)


def test_records_are_deleted_here_and_at_the_followers(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id)
            await rig.assign(1, 0, [1, 2])
            for number in range(4):
                assert (await rig.produce(1, b"%d" % number)).error_code == 0

            async def delete(offset, topic="t", broker_id=1, timeout_ms=60_000):
                kind = DeleteRecordsRequest.DeleteRecordsTopic
                asked = kind(name=topic, partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=offset)])
                request = DeleteRecordsRequest(topics=[asked], timeout_ms=timeout_ms)
                answer = await rig.ask(broker_id, request, 2)
                told = answer.topics[0].partitions[0]
                return ErrorCode.of(told.error_code), told.low_watermark

            assert await delete(2) == (ErrorCode.NONE, 2)
            assert [rig.brokers[each].replicas.find(T).log.log_start_offset for each in (1, 2)] == [2, 2]
            assert await rig.values(1, 2) == [b"2", b"3"]
            assert (await rig.fetch(1, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await delete(1) == (ErrorCode.NONE, 2)
            assert await delete(5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            assert await delete(-7) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            assert await delete(3, broker_id=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert await delete(3, topic="nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            assert await delete(-1) == (ErrorCode.NONE, 4)
            # A follower that is announced as alive, and does not come, is waited for.
            rig.brokers[2].replicas.find(T).pause()
            assert (await rig.produce(1, b"x", acks=1)).error_code == 0
            await until(lambda: rig.brokers[1].replicas.find(T).high_watermark == 5)
            assert await delete(5, timeout_ms=50) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    trio.run(main)


def test_partitions_to_delete_from_count_once_and_wait_in_turn(tmp_path, monkeypatch):
    async def main():
        async with open_rig(tmp_path) as rig:
            broker = await rig.start(1)
            broker.cache.is_alive = lambda broker_id: True  # 2 never comes
            names = ["t", "u", "v"]
            for name in names:
                await rig.assign(1, 0, [1] if name == "v" else [1, 2], isr=[1], topic=name)
                assert (await rig.produce(1, b"a", b"b", acks=1, topic=name)).error_code == 0
                await until(lambda name=name: broker.replicas.find(TopicPartition(name, 0)).high_watermark == 2)
            asked = Counter()
            low_watermark = Partition.low_watermark

            def watched(partition, is_alive):
                asked[partition.name.topic] += 1
                return low_watermark(partition, is_alive)

            monkeypatch.setattr(Partition, "low_watermark", watched)
            kind = DeleteRecordsRequest.DeleteRecordsTopic
            parts = [kind.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (2, 1)]
            topics = [kind(name=name, partitions=parts * 2) for name in (*names, *names)]
            told = []

            async def delete(timeout_ms):
                answer = await rig.ask(1, DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), 2)
                told[:] = [
                    (each.name, part.error_code, part.low_watermark)
                    for each in answer.topics
                    for part in each.partitions
                ]

            await delete(50)
            late = ErrorCode.REQUEST_TIMED_OUT
            assert told == [("t", late, -1), ("u", late, -1), ("v", ErrorCode.NONE, 1)]
            assert asked["u"] == asked["v"] == 1
            asked.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(delete, 60_000)
                await until(lambda: asked["t"] == 5)
                assert asked["u"] == asked["v"] == 0
                broker.cache.is_alive = lambda broker_id: broker_id == 1
            assert told == [(name, ErrorCode.NONE, 1) for name in names]
            assert asked["u"] == asked["v"] == 1

    trio.run(main)


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id, is_rack_aware=True)
            rig.racks = {1: "here", 2: "there"}
            await rig.assign(1, 0, [1, 2])
            assert (await rig.produce(1, b"a")).error_code == 0
            for rack, found in (("", -1), ("here", -1), ("nowhere", -1), ("there", 2)):
                answer = await rig.fetch(1, rack_id=rack)
                assert (answer.preferred_read_replica, bool(answer.records)) == (found, found < 0), rack
            assert (await rig.fetch(2, rack_id="there")).preferred_read_replica == -1
            await until(lambda: rig.brokers[2].replicas.find(T).high_watermark == 1)
            assert await rig.values(2, rack_id="there") == [b"a"]

    trio.run(main)


def test_what_is_in_the_directories_and_who_the_brokers_are(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            rig.racks = {1: "here"}
            await rig.assign(1, 0, [1])
            await rig.assign(1, 0, [1], topic="u")
            assert (await rig.produce(1, b"a")).error_code == 0
            answer = await rig.ask(1, DescribeLogDirsRequest(topics=None), 4)
            (told,) = answer.results
            assert (told.log_dir, told.error_code) == (str(tmp_path / "d1"), 0)
            assert 0 < told.usable_bytes <= told.total_bytes
            sizes = {topic.name: [each.partition_size for each in topic.partitions] for topic in told.topics}
            assert sizes == {"t": [len(rig.log_bytes(1))], "u": [0]}
            kind = DescribeLogDirsRequest.DescribableLogDirTopic
            asked = [
                kind(topic="u", partitions=[0, 1]),
                kind(topic="t", partitions=[1]),
                kind(topic="u", partitions=[]),
            ]
            answer = await rig.ask(1, DescribeLogDirsRequest(topics=asked), 1)
            assert [topic.name for topic in answer.results[0].topics] == ["u"]
            request = DescribeClusterRequest(include_cluster_authorized_operations=True)
            answer = await rig.ask(1, request, 1)
            brokers = {each.broker_id: (each.host, each.port, each.rack) for each in answer.brokers}
            assert brokers[1] == ("broker1", 9092, "here")
            assert answer.cluster_id == rig.brokers[1].cluster_id
            operations = {number for number in range(32) if answer.cluster_authorized_operations >> number & 1}
            assert operations == {5, 7, 8, 9, 10, 11, 12}
            answer = await rig.ask(1, DescribeClusterRequest(endpoint_type=2), 1)
            assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            answer = await rig.ask(1, DescribeClusterRequest(endpoint_type=3), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    trio.run(main)
