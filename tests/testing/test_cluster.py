"""``kraftcore.testing.Cluster``: real nodes, killed and cut apart, in virtual and in real time."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
import trio
from machines import Faulty, Values

from kraftcore.errors import KraftError, LocalError, NodeStoppedError, NotLeaderError, OutcomeUnknownError
from kraftcore.node.plugin import Plugin
from kraftcore.testing import Cluster
from kraftcore.testing.comparison import differing_logs
from kraftcore.transports.memory.network import MemoryTransport


def test_followers_apply_what_the_leader_appended(kraft_run, kraft_cluster):
    async def main():
        async with kraft_cluster(3, Values) as cluster:
            leader = await cluster.wait_leader()
            assert [(await leader.append(b"%d" % n)).result for n in range(20)] == list(range(1, 21))
            await cluster.assert_all_equal()
            assert len(cluster.followers) == 2 and leader not in cluster.followers
            assert [cluster.machine(node_id).values for node_id in (1, 2, 3)] == [[b"%d" % n for n in range(20)]] * 3

    kraft_run(main)


def test_virtual_time_is_free(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            await cluster.wait_leader()
            epoch = cluster.leader.status().epoch
            await trio.sleep(600)
            assert cluster.leader.status().epoch == epoch
        return trio.current_time()

    assert kraft_run(main, timeout_s=1000) >= 600


def test_a_killed_leader_is_replaced_and_catches_up(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            leader = await cluster.wait_leader()
            await leader.append_many([b"a", b"b"])
            await cluster.kill(leader)
            assert leader.key.id not in cluster.nodes
            with pytest.raises(NodeStoppedError):
                await leader.append(b"x")
            heir = await cluster.wait_leader()
            await heir.append(b"c")
            again = await cluster.start(leader.key.id)
            assert again is not leader
            await cluster.assert_all_equal()
            assert cluster.machine(again).values == [b"a", b"b", b"c"]
            with pytest.raises(LocalError, match="runs"):
                await cluster.start(again)

    kraft_run(main)


@pytest.mark.parametrize("disk", ["lost", "torn", "mixed"])
def test_a_power_cut_of_all_loses_nothing_acknowledged(kraft_run, disk):
    async def main():
        async with Cluster(3, Values, seed=7) as cluster:
            for round_ in range(4):
                leader = await cluster.wait_leader()
                for n in range(5):
                    await leader.append(b"%d-%d" % (round_, n))
                for node_id in list(cluster.nodes):
                    await cluster.kill(node_id, disk)
                for node_id in (1, 2, 3):
                    await cluster.start(node_id)
            await cluster.assert_all_equal()
            assert cluster.machine(1).values == [b"%d-%d" % (round_, n) for round_ in range(4) for n in range(5)]

    kraft_run(main)


def test_a_leader_cut_off_gives_up_and_its_record_is_lost(kraft_run):
    async def main():
        async with Cluster(5, Values) as cluster:
            old = await cluster.wait_leader()
            await old.append(b"kept")
            cluster.partition(old)
            with pytest.raises((OutcomeUnknownError, NotLeaderError)):
                await old.append(b"lost")
            new = await cluster.wait_leader()
            assert new is not old
            await new.append(b"next")
            cluster.heal()
            await cluster.assert_all_equal()
            assert cluster.machine(old).values == [b"kept", b"next"]

    kraft_run(main)


def test_a_paused_leader_is_replaced_and_follows_when_it_goes_on(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            leader = await cluster.wait_leader()
            cluster.pause(leader)
            with trio.fail_after(60):
                while (heir := await cluster.wait_leader()) is leader:
                    await trio.sleep(0.1)
            assert (await heir.append(b"a")).result == 1
            assert cluster.machine(leader).values == []
            cluster.resume(leader)
            await cluster.assert_all_equal()
            assert not leader.is_leader
            cluster.pause(heir)
            await cluster.restart(heir)  # it is killed as it is
            await cluster.wait_leader()
            await cluster.assert_all_equal()

    kraft_run(main)


def test_halves_without_a_majority_have_no_leader(kraft_run):
    async def main():
        async with Cluster(4, Values) as cluster:
            await cluster.wait_leader()
            cluster.partition([1, 2], [3, 4])
            with pytest.raises(AssertionError, match="no leader after 20 s: node 1 .* epoch .*; node 2"):
                await cluster.wait_leader(timeout_s=20)
            cluster.heal()
            await cluster.wait_leader()
            await cluster.assert_all_equal()

    kraft_run(main)


def test_voters_come_and_go(kraft_run):
    async def main():
        async with Cluster(1, Values) as cluster:
            await (await cluster.wait_leader()).append(b"first")
            for _ in range(2):
                await cluster.add()
            assert cluster.leader.status().voters.ids == {1, 2, 3}
            observer = await cluster.add(voter=False)
            await cluster.assert_all_equal()
            assert observer.status().voters.ids == {1, 2, 3}
            await cluster.leader.transfer_leadership(2)
            leader = await cluster.wait_leader()
            assert leader.key.id == 2
            await leader.remove_voter(1, cluster.nodes[1].key.directory_id)
            assert leader.status().voters.ids == {2, 3}
            await cluster.stop(1)
            await leader.append(b"second")
            await cluster.assert_all_equal()

    kraft_run(main)


def test_a_failing_state_machine_fails_the_test(kraft_run):
    async def main():
        async with Cluster(3, Faulty) as cluster:
            leader = await cluster.wait_leader()
            with pytest.raises(NodeStoppedError):
                await leader.append(b"boom")
            while not cluster.failures:  # the append knows before the cluster does
                await trio.sleep(0.01)

    with pytest.raises(NodeStoppedError) as caught:
        kraft_run(main)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_a_plugin_raises_and_no_node_survives_comes_out_as_it_is(kraft_run, raised):
    class Raising(Plugin):
        name = "raising"

        async def run(self, node):
            await node.wait_leader()
            if node.key.id == 2:
                raise raised("mine")

    async def main():
        async with Cluster(3, Values, plugins=lambda: [Raising()]):
            await trio.sleep_forever()

    with pytest.raises(raised, match="mine"):
        kraft_run(main)


def test_what_a_network_raises_comes_out_as_it_is(kraft_run):
    class Raising(MemoryTransport):
        async def __aexit__(self, *raised):
            try:
                await super().__aexit__(*raised)
            finally:
                raise ZeroDivisionError("mine")

    async def main():
        cluster = Cluster(3, Values)
        cluster.network.transport = lambda name: Raising(cluster.network, name)
        async with cluster:
            await cluster.stop(await cluster.wait_leader())
            await trio.sleep_forever()

    with pytest.raises(ZeroDivisionError, match="mine"):
        kraft_run(main)


def test_an_expected_failure_is_forgotten(kraft_run):
    async def main():
        async with Cluster(1, Faulty) as cluster:
            leader = await cluster.wait_leader()
            with pytest.raises(NodeStoppedError):
                await leader.append(b"boom")
            await trio.testing.wait_all_tasks_blocked()
            assert isinstance(cluster.failures.pop(1).__cause__.__cause__, ZeroDivisionError)

    kraft_run(main)


def test_different_states_are_found(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            leader = await cluster.wait_leader()
            await leader.append(b"same")
            await cluster.assert_all_equal()
            cluster.machine(cluster.followers[0]).values.append(b"mine")
            with pytest.raises(AssertionError, match="are in different states"):
                await cluster.assert_all_equal()
            await cluster.assert_all_equal(state=lambda machine: machine.values[0])

    kraft_run(main)


def test_different_logs_are_found(kraft_run):
    async def main():
        async with Cluster(1, Values) as left, Cluster(1, Values) as right:
            for cluster, value in ((left, b"left"), (right, b"right")):
                node = await cluster.wait_leader()
                offset = (await node.append(value)).offset
            one, other = left.nodes[1], right.nodes[1]
            assert differing_logs(one, one, offset + 1) is None
            found = differing_logs(one, other, offset + 1)
            assert found is not None and found.startswith("the logs differ: node 1 has at offset ")

    kraft_run(main)


def test_a_node_that_cannot_catch_up_is_named(kraft_run):
    async def main():
        async with Cluster(3, Values) as cluster:
            leader = await cluster.wait_leader()
            cut = cluster.followers[0]
            cluster.partition([cut])
            await leader.append(b"x")
            with pytest.raises(AssertionError, match="did not catch up in 15 s: node 1"):
                await cluster.assert_all_equal(timeout_s=15)

    kraft_run(main)


def test_what_the_body_raises_comes_out_bare(kraft_run):
    async def main():
        async with Cluster(3, Values):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        kraft_run(main)


def test_real_time_and_real_files(tmp_path):
    async def first():
        async with Cluster(3, Values, directory=tmp_path, fetch_timeout_ms=1000) as cluster:
            leader = await cluster.wait_leader()
            for n in range(50):
                await leader.append(b"%d" % n)
            await cluster.restart(leader)
            await (await cluster.wait_leader()).append(b"end")
            await cluster.assert_all_equal()

    async def second():
        async with Cluster(3, Values, directory=tmp_path) as cluster:
            await cluster.wait_leader()
            await cluster.assert_all_equal()
            assert cluster.machine(3).values == [*(b"%d" % n for n in range(50)), b"end"]

    trio.run(first)
    assert (tmp_path / "node-2" / "meta.properties").exists()
    trio.run(second)


def test_random_kills_under_load(kraft_run):
    """Whatever is killed when: acknowledged records are there, once, in order of acknowledgement for each writer."""

    async def main(seed):
        draw = random.Random(seed)
        acknowledged = []

        async def write(cluster, stop):
            n = 0
            while not stop.is_set():
                if cluster.leader is None:
                    await trio.sleep(0.05)
                    continue
                try:
                    await cluster.leader.append(b"%d" % n)
                    acknowledged.append(b"%d" % n)
                except KraftError:
                    await trio.sleep(0.05)
                n += 1
                await trio.sleep(0.01)

        async with Cluster(3, Values, seed=seed) as cluster:
            await cluster.wait_leader()
            stop = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, cluster, stop)
                for _ in range(6):
                    await trio.sleep(draw.uniform(0.1, 2))
                    victim = draw.choice([1, 2, 3])
                    await cluster.kill(victim)
                    await trio.sleep(draw.uniform(0.1, 2))
                    await cluster.start(victim)
                stop.set()
            await cluster.assert_all_equal()
            values = cluster.machine(1).values
            assert len(set(values)) == len(values)
            assert len(acknowledged) > 50
            assert [value for value in values if value in set(acknowledged)] == acknowledged

    for seed in range(2):
        kraft_run(main, seed)


def test_pytest_starts_without_loading_us():
    code = (
        "import sys, pytest, kraftcore.testing.pytest_plugin\n"
        "print(sorted(name for name in sys.modules if name.startswith(('kraftcore', 'trio'))))"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    light = ["kraftcore", "kraftcore.errors", "kraftcore.namespace"]
    assert run.stdout.strip() == str([*light, "kraftcore.testing", "kraftcore.testing.pytest_plugin"])


def test_an_application_finds_the_fixtures(run_pytest, tmp_path):
    (tmp_path / "test_app.py").write_text(
        "from kraftcore.state_machine import StateMachine\n"
        "class Count(StateMachine):\n"
        "    count = 0\n"
        "    def apply(self, batch):\n"
        "        self.count += batch.count\n"
        "    def snapshot(self, sink):\n"
        "        sink.append([b'%d' % self.count])\n"
        "    def restore(self, values):\n"
        "        self.count = sum(map(int, values))\n"
        "def test_it(kraft_run, kraft_cluster):\n"
        "    async def main():\n"
        "        async with kraft_cluster(3, Count) as cluster:\n"
        "            await (await cluster.wait_leader()).append(b'x')\n"
        "            await cluster.assert_all_equal()\n"
        "            assert cluster.machine(1).count == 1\n"
        "    kraft_run(main)\n"
    )
    assert run_pytest(tmp_path) == 0


@pytest.fixture
def run_pytest():
    def run(folder):
        return subprocess.run(
            [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder
        ).returncode

    return run
