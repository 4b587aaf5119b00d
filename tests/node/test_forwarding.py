"""What followers ask of the leader for their callers: never behind the consensus, and never for ever."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from machines import Values
from nodes import Lab, run
from noted_request import NotedRequest

from kraftcore.core.batch import build_batch
from kraftcore.core.batch.compression import Compression
from kraftcore.errors import NodeStoppedError
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.node.registry import RequestHandler
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.testing import Cluster


def test_a_follower_reads_at_once_while_nothing_happens(kraft_run):
    """The leader keeps the follower's Fetch until there is news."""

    async def main():
        async with Cluster(3, Values, fetch_max_wait_ms=500) as cluster:
            await (await cluster.wait_leader()).append(b"x")
            follower = cluster.followers[0]
            await follower.read_barrier()
            for pause_s in (0.0, 0.1, 0.7, 3.0):
                await trio.sleep(pause_s)
                began = trio.current_time()
                await follower.read_barrier()
                assert trio.current_time() - began < 0.05

    kraft_run(main)


def test_a_forwarded_record_does_not_wait_for_the_fetch_that_would_commit_it(kraft_run):
    async def main():
        async with Cluster(3, Values, request_timeout_ms=500, fetch_max_wait_ms=300) as cluster:
            leader = await cluster.wait_leader()
            epoch = leader.status().epoch
            follower, other = cluster.followers
            await follower.append(b"first", forward=True)
            await cluster.kill(other)
            cluster.partition(follower)
            pending = leader.append_nowait(b"in vain")  # its Fetch answer is lost: the next one is some time away
            await trio.sleep(0.01)
            cluster.heal()
            began = trio.current_time()
            assert (await follower.append(b"second", forward=True)).result == 3
            assert trio.current_time() - began < 1.0
            assert (await pending.wait()).result == 2
            assert leader.status().epoch == epoch

    kraft_run(main)


def test_whoever_asks_a_stopped_node_is_told(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            await cluster.wait_leader()
            follower = cluster.followers[0]
            told = []

            async def expect(ask):
                with pytest.raises(NodeStoppedError):
                    await ask()
                told.append(ask)

            async def append():
                await follower.append(b"x", forward=True)

            async with trio.open_nursery() as nursery:
                cluster.partition(follower)
                nursery.start_soon(expect, append)
                nursery.start_soon(expect, follower.read_barrier)
                await trio.sleep(1)  # asking the leader; later, waiting for one
                assert not told
                await cluster.kill(follower)
            assert len(told) == 2
            for ask in (append, follower.read_barrier):
                await expect(ask)

    kraft_run(main)


def test_answers_to_something_else_are_none(kraft_run):
    class Confused(Plugin):
        asked = 0

        async def produce(self, request, context):
            Confused.asked += 1
            return ProduceResponse()

        async def list_offsets(self, request, context):
            Confused.asked += 1
            return ListOffsetsResponse()

        @property
        def handlers(self):
            return (
                RequestHandler(ProduceRequest, self.produce),
                RequestHandler(ListOffsetsRequest, self.list_offsets),
            )

    async def main():
        async with Cluster(3, Values, plugins=lambda: [Confused()]) as cluster:
            await cluster.wait_leader()
            follower = cluster.followers[0]
            for ask in (partial(follower.append, b"x", forward=True), follower.read_barrier):
                Confused.asked = 0
                with trio.move_on_after(1) as waited:
                    await ask()
                assert waited.cancelled_caught
                assert 2 <= Confused.asked <= 50  # again, with a pause

    kraft_run(main)


def test_a_stopped_node_sends_producers_elsewhere(kraft_run):
    async def main():
        async with Cluster(1, Values) as cluster:
            leader = await cluster.wait_leader()
            await cluster.stop(leader)
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=0, records=bytes(build_batch([b"x"], timestamp_ms=1)))
        request = ProduceRequest(acks=-1, topic_data=[data(name=leader.config.topic, partition_data=[part])])
        context = NotedRequest(9)
        plugin_node(leader).serve(request, context)
        (answer,) = context.answers
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    kraft_run(main)


def test_a_compressed_batch_counts_as_what_it_holds(kraft_run):
    async def main():
        async with Cluster(1, Values, max_batch_bytes=100_000) as cluster:
            leader = await cluster.wait_leader()
            batch = bytes(build_batch([bytes(90_000)] * 10, timestamp_ms=1, compression=Compression.GZIP))
            assert len(batch) < 10_000
            data = ProduceRequest.TopicProduceData
            part = data.PartitionProduceData(index=0, records=batch)
            request = ProduceRequest(acks=-1, topic_data=[data(topic_id=leader.config.topic_id, partition_data=[part])])
            at = leader.endpoints[0]
            answer = await plugin_node(leader).ask(at.host, at.port, request, 5_000)
            told = answer.responses[0].partition_responses[0]
            assert told.error_code == ErrorCode.INVALID_RECORD
            assert "do not fit a batch of at most 100000" in told.error_message
            assert leader.status().bytes_in_flight == 0

    kraft_run(main)


def test_a_leader_with_too_much_in_flight_says_so_to_followers(kraft_run):
    async def main():
        async with Cluster(3, Values, max_bytes_in_flight=2_000) as cluster:
            leader = await cluster.wait_leader()
            follower = cluster.followers[0]
            cluster.network.delay_ms = 5
            most = 0

            async def append(number):
                assert (await follower.append(b"%d" % number * 100, forward=True)).result

            async def watch():
                nonlocal most
                while True:
                    most = max(most, leader.status().bytes_in_flight)
                    await trio.sleep(0.0005)

            async with trio.open_nursery() as outer:
                outer.start_soon(watch)
                async with trio.open_nursery() as nursery:
                    for number in range(200):
                        nursery.start_soon(append, number)
                outer.cancel_scope.cancel()
            assert 0 < most <= 2_000 + 400
            assert len(cluster.machine(leader).values) == 200

    kraft_run(main)


def test_the_leader_is_reached_by_its_listener_of_our_first_ones_name():
    """Listeners may speak different protocols; connections are made with that of the first one (KIP-853)."""

    async def main():
        lab = Lab(election_timeout_ms=100)
        both = {number: [f"A://n{number}:9093", f"B://n{number}:9095"] for number in (1, 2)}
        first = {"listeners": both[1], "advertised_listeners": both[1]}
        second = {"listeners": both[2][::-1], "advertised_listeners": both[2], "bootstrap_servers": ["n1:9095"]}
        async with lab.node(1, **first) as leader, lab.node(2, **second) as follower:
            with trio.fail_after(60):
                await leader.wait_leader()
                while len(leader.status().voters) < 2:
                    await trio.sleep(0.01)
                await leader.transfer_leadership(2)
                while not follower.is_leader:
                    await trio.sleep(0.01)
                await follower.transfer_leadership(1)
                while not leader.is_leader or follower.status().leader_id != 1:
                    await trio.sleep(0.01)
                while len(follower.status().leader_endpoints) < 2:
                    await trio.sleep(0.01)
                assert str(follower.leader_endpoint) == "B://n1:9095"
                assert (await follower.append(b"x", forward=True)).offset

    run(main)
