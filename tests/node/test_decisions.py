"""Decisions on a real node: at their offset, across changes of leader; see tests/executor for the rules one by one."""

from __future__ import annotations

import pytest
import trio
from machines import Values

from kraftcore.errors import NodeStoppedError, NotLeaderError
from kraftcore.executor.decisions import Decision
from kraftcore.node.events import LeadershipEnded, LeadershipReady
from kraftcore.node.plugin_node import plugin_node
from kraftcore.testing import Cluster


class Numbered(Decision):
    """A record that is its own offset."""

    def __init__(self):
        self.ended = trio.Event()
        self.offset = -1
        self.error = None

    def decide(self, next_offset, leader_epoch):
        self.offset = next_offset
        return [b"%d" % next_offset]

    def committed(self):
        self.ended.set()

    def failed(self, error):
        self.error = error
        self.ended.set()


def test_decisions_stand_where_they_were_decided_for(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            ready = {number: node.events(LeadershipReady, LeadershipEnded) for number, node in cluster.nodes.items()}
            leader = await cluster.wait_leader()
            assert await anext(ready[leader.key.id]) == LeadershipReady(leader.status().epoch)
            with pytest.raises(NotLeaderError):
                plugin_node(cluster.followers[0]).decide(Numbered())
            made = [Numbered() for _ in range(500)]
            for number, decision in enumerate(made):
                plugin_node(leader).decide(decision)
                if number % 50 == 0:
                    await leader.append(b"between")
            for decision in made:
                await decision.ended.wait()
            assert all(decision.error is None for decision in made)
            await cluster.assert_all_equal()
            log = cluster.machine(leader).values
            assert len(log) == 510
            offsets = [int(value) for value in log if value != b"between"]
            assert offsets == [decision.offset for decision in made] == sorted(set(offsets))
            cluster.partition(leader)
            lost = Numbered()
            plugin_node(leader).decide(lost)
            await lost.ended.wait()
            assert lost.error is not None
            assert isinstance(await anext(ready[leader.key.id]), LeadershipEnded)
            cluster.heal()
            await cluster.wait_leader()
            await cluster.assert_all_equal()

    kraft_run(main)


def test_the_end_of_a_node_ends_its_decisions(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            leader = await cluster.wait_leader()
            cluster.partition(leader)
            decision = Numbered()
            plugin_node(leader).decide(decision)
            await cluster.kill(leader)
            await decision.ended.wait()
            assert isinstance(decision.error, NodeStoppedError)
            with pytest.raises(NodeStoppedError):
                plugin_node(leader).decide(Numbered())

    kraft_run(main)
