"""Requests whose answers would be longer than a frame cost their asker its connection at most, and no node anything."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from nodes import run

from kraftcore import NodeConfig, StateMachine, open_node
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.metadata import MetadataMachine
from kraftcore.plugins.controller import Controller
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from kraftcore.protocol.registry import api_of

FRAME = 64 * 1024
BATCH = 16 * 1024
MOST = 2**31 - 1


class Sums(StateMachine):
    def apply(self, batch):
        return None

    def snapshot(self, sink):
        sink.append([bytes(BATCH // 2)] * 20)

    def restore(self, values):
        list(values)


@asynccontextmanager
async def alone(folder, machine, plugins=()):
    config = NodeConfig(
        node_id=1,
        directory=folder,
        listeners=["CONTROLLER://127.0.0.1:0"],
        create="standalone",
        max_frame_bytes=FRAME,
        max_batch_bytes=BATCH,
        fetch_max_bytes=BATCH,
        fetch_snapshot_max_bytes=BATCH,
    )
    async with open_node(config, machine, plugins=plugins) as node:
        await node.wait_leader()
        yield node


async def ask(node, request):
    """The answer, and its length; None if the connection ends instead."""
    key, _, version = api_of(type(request))
    frame = encode_request(request, version, 7)
    assert len(frame) < FRAME
    async with await trio.open_tcp_stream("127.0.0.1", node.endpoints[0].port) as stream:
        await stream.send_all(len(frame).to_bytes(4) + frame)
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
            try:
                more = await stream.receive_some()
            except trio.BrokenResourceError:
                more = b""
            if not more:
                return None
            data += more
    return decode_response(data[4:], key, version)[1], len(data) - 4


def test_log_and_snapshot_go_out_in_frames(tmp_path):
    async def main():
        async with alone(tmp_path, Sums()) as node:
            for _ in range(20):
                await node.append(bytes(BATCH // 2))
            epoch = node.status().epoch
            topic = FetchRequest.FetchTopic
            part = topic.FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=0, last_fetched_epoch=0)
            fetch = FetchRequest(
                cluster_id=node.cluster_id,
                replica_state=FetchRequest.ReplicaState(replica_id=-1),
                max_wait_ms=0,
                max_bytes=MOST,
                topics=[topic(topic_id=METADATA_TOPIC_ID, partitions=[part])],
            )
            answer, length = await ask(node, fetch)
            assert len(answer.responses[0].partitions[0].records) > 2 * BATCH
            assert length <= FRAME
            end_offset, snapshot_epoch = await node.snapshot_now()
            kind = FetchSnapshotRequest.TopicSnapshot
            chosen = kind.PartitionSnapshot.SnapshotId(end_offset=end_offset, epoch=snapshot_epoch)
            part = kind.PartitionSnapshot(partition=0, current_leader_epoch=epoch, snapshot_id=chosen)
            chunk = FetchSnapshotRequest(
                cluster_id=node.cluster_id,
                replica_id=-1,
                max_bytes=MOST,
                topics=[kind(name="__cluster_metadata", partitions=[part])],
            )
            answer, length = await ask(node, chunk)
            assert 2 * BATCH < len(answer.topics[0].partitions[0].unaligned_records) < length <= FRAME
            await node.append(b"it goes on")

    run(main, limit_s=60)


_Quorum = DescribeQuorumRequest.TopicData
LONG = {
    "consensus": DescribeQuorumRequest(
        topics=[_Quorum(topic_name="x", partitions=[_Quorum.PartitionData(partition_index=0)] * 10_000)]
    ),
    "controller": ElectLeadersRequest(
        timeout_ms=1000,
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="x", partitions=[0] * 15_000)],
    ),
}


@pytest.mark.parametrize("of", LONG)
def test_a_longer_answer_ends_its_connection_alone(tmp_path, of):
    async def main():
        async with alone(tmp_path, MetadataMachine(), [Controller()]) as node:
            while not node.state_machine.levels:
                await trio.sleep(0.01)
            for _ in range(2):
                assert await ask(node, LONG[of]) is None
            few = ElectLeadersRequest(
                timeout_ms=1000, topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="x", partitions=[0])]
            )
            answer, _ = await ask(node, few)
            results = answer.replica_election_results[0].partition_result
            assert results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(main, limit_s=60)


def test_a_refusal_that_is_too_long_to_write_ends_its_connection_alone(tmp_path):
    """It repeats what it was asked for, and a text of the protocol has 32,767 bytes at most."""
    long = AddRaftVoterRequest(cluster_id="x" * 32_760, voter_id=9, voter_directory_id=Uuid(b"d" * 16), timeout_ms=1000)

    async def main():
        async with alone(tmp_path, Sums()) as node:
            assert await ask(node, long) is None
            answer, _ = await ask(node, long.replace(cluster_id="x"))
            assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    run(main, limit_s=60)
