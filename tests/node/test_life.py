"""Opening, restarting, failing and leaving."""

from __future__ import annotations

import errno
import threading

import pytest
import trio
from nodes import Lab, Values, run

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, LockedError, NodeStoppedError, RefusedError, StateMachineError, StorageError
from kraftcore.node import open_node
from kraftcore.node.event_hub import EventHub
from kraftcore.node.events import (
    Committed,
    LeaderChanged,
    Measured,
    Missed,
    RoleChanged,
    SnapshotRestored,
    SnapshotTaken,
    Stopped,
    VotersChanged,
)
from kraftcore.node.plugin import Plugin
from kraftcore.node.subscription import Subscription
from kraftcore.raft.roles import Role


def test_a_restarted_node_has_everything():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            for number in range(10):
                await node.append(b"%d" % number)
        async with lab.node(1) as node:
            await node.wait_leader()
            assert (await node.append(b"10")).result == 11
            assert node.status().snapshots == ((0, 0),)

    run(main)


def test_a_directory_that_is_made_names_the_port_it_got():
    """A node alone in its quorum has nobody who would bring its entry among the voters up to date."""

    async def main():
        lab = Lab()
        async with lab.node(1, listeners=["CONTROLLER://n1:0"]) as node:
            await node.wait_leader()
            (voter,) = node.status().voters
            assert voter.endpoints == node.endpoints
            assert node.endpoints[0].port > 0
        assert lab.disks[1].exists("/data/bootstrap.checkpoint")  # what Kafka starts from here

    run(main)


def test_acknowledged_records_survive_power_loss_of_all():
    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError, match="has crashed"):
            async with lab.quorum() as (leader, *_):
                for number in range(10):
                    await leader.append(b"%d" % number)
                disks = {number: disk.crash("lost") for number, disk in lab.disks.items()}
        lab.disks = disks
        async with lab.node(1) as first, lab.node(2) as second, lab.node(3):
            await first.read_barrier()
            await second.read_barrier()
            assert lab.machines[1].values == lab.machines[2].values == [b"%d" % number for number in range(10)]

    run(main)


def test_snapshots_bring_a_newcomer_up_to_date():
    async def main():
        lab = Lab(retention_bytes=1000, cleaning_period_ms=1000, snapshot_bytes=500, segment_bytes=2000)
        async with lab.node(1) as node:
            await node.wait_leader()
            for number in range(300):
                await node.append(b"value %d" % number)
            while node.status().log_start_offset == 0:
                await trio.sleep(0.05)
            async with lab.node(2) as newcomer:
                events = newcomer.events(SnapshotRestored)
                while len(node.status().voters) < 2:
                    await trio.sleep(0.01)
                await newcomer.wait_applied(node.high_watermark)
                events.close()
                restored = [event async for event in events]
                assert [event.end_offset > 0 for event in restored] == [True]
                assert lab.machines[2].values == lab.machines[1].values

    run(main)


def test_a_snapshot_that_is_due_when_another_is_written_follows_it():
    """Nothing is applied any more that would have reminded the node of it."""

    async def main():
        lab = Lab(snapshot_bytes=1)
        async with lab.node(1) as node:
            await node.wait_leader()
            for number in range(50):
                await node.append(b"value %d" % number)
            end = node.status().applied_offset
            with trio.fail_after(60):
                while node.status().snapshots[-1][0] < end:
                    await trio.sleep(0.01)

    run(main)


def test_a_machine_that_raises_stops_the_node_and_nothing_is_lost():
    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError) as caught:
            async with lab.node(1) as node:
                await node.wait_leader()
                await node.append(b"good")
                waiting = node.append_nowait(b"raise")
                await trio.sleep_forever()
        assert isinstance(caught.value.__cause__, StateMachineError)
        with pytest.raises(NodeStoppedError):
            waiting.result()

        class Milder(Values):
            def apply(self, batch):
                self.values += batch.values()

        async with lab.node(1, machine=Milder) as node:
            await node.read_barrier()
            assert lab.machines[1].values == [b"good", b"raise"]

    run(main)


def test_a_failing_disk_stops_the_node_and_nothing_acknowledged_is_lost():
    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError) as caught:
            async with lab.node(1) as node:
                await node.wait_leader()
                await node.append(b"durable")
                lab.disks[1].inject("sync", code=errno.EIO)
                with pytest.raises(NodeStoppedError):
                    await node.append(b"not durable")
                await trio.sleep_forever()
        assert isinstance(caught.value.__cause__, StorageError)
        lab.disks[1] = lab.disks[1].crash("lost")
        async with lab.node(1) as node:
            await node.read_barrier()
            assert lab.machines[1].values[0] == b"durable"

    run(main)


def test_a_full_disk_stops_the_node_and_room_brings_it_back():
    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError) as caught:
            async with lab.node(1) as node:
                await node.wait_leader()
                await node.append(b"first")
                lab.disks[1].capacity = lab.disks[1].used_bytes + 2000
                while True:
                    await node.append(b"x" * 500)
        cause = caught.value.__cause__
        while not isinstance(cause, StorageError):
            cause = cause.__cause__
        assert cause.errno == errno.ENOSPC
        lab.disks[1].capacity = None
        async with lab.node(1) as node:
            await node.read_barrier()
            assert lab.machines[1].values[0] == b"first"
            await node.append(b"more")

    run(main)


def test_a_leader_that_leaves_hands_over():
    async def main():
        lab = Lab()
        lab.format(3)
        async with lab.node(2) as second, lab.node(3) as third:
            async with lab.node(1) as first:
                await first.wait_leader()
                while not first.is_leader:
                    leader = next((node for node in (second, third) if node.is_leader), None)
                    if leader is not None:
                        await leader.transfer_leadership(1)
                    await trio.sleep(0.01)
                await first.append(b"a")
                epoch = first.status().epoch
            assert not first.is_leader
            while not (second.is_leader or third.is_leader):
                await trio.sleep(0.005)
            leader = second if second.is_leader else third
            assert leader.status().epoch == epoch + 1  # nobody had to wait for a timeout
            assert (await leader.append(b"b")).result == 2

    run(main)


def test_leadership_is_transferred_to_the_chosen_voter():
    async def main():
        async with Lab().quorum() as (first, second, third):
            await first.transfer_leadership(3)
            while not third.is_leader:
                await trio.sleep(0.005)
            await second.append(b"through the new leader", forward=True)
            with pytest.raises(RefusedError, match="VOTER_NOT_FOUND"):
                await third.transfer_leadership(9)

    run(main)


def test_voters_are_removed_and_added():
    async def main():
        lab = Lab(auto_join=False)
        async with lab.node(1) as leader, lab.node(2) as other:
            await leader.wait_leader()
            await other.wait_leader()
            await other.wait_applied(leader.high_watermark)
            await leader.add_voter(2, other.key.directory_id, other.endpoints)
            assert leader.status().voters.ids == {1, 2}
            with pytest.raises(RefusedError, match="DUPLICATE_VOTER"):
                await leader.add_voter(2, other.key.directory_id, other.endpoints)
            await leader.remove_voter(2, other.key.directory_id)
            assert leader.status().voters.ids == {1}
            with pytest.raises(RefusedError, match="VOTER_NOT_FOUND"):
                await leader.remove_voter(2, Uuid.from_string("AAAAAAAAAAAAAAAAAAAABQ"))

    run(main)


def test_events_tell_what_happens():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            with pytest.raises(LocalError, match="max_buffered is 0"):
                node.events(Committed, max_buffered=0)
            few = node.events(Committed, max_buffered=2)
            await node.wait_leader()
            async with lab.node(2) as other:
                events = other.events()
                while other.status().leader_id is None or len(other.status().voters) < 2:
                    await trio.sleep(0.01)
                for number in range(5):
                    await node.append(b"%d" % number)
                await other.wait_applied(node.high_watermark)
                await other.snapshot_now()
        seen = [event async for event in events]
        assert RoleChanged(Role.FOLLOWER, 1) in seen
        assert LeaderChanged(1, 1) in seen
        assert any(isinstance(event, VotersChanged) for event in seen)
        assert any(isinstance(event, SnapshotTaken) for event in seen)
        assert seen[-1] == Stopped(None)
        assert isinstance((await anext(few)), Missed)
        assert isinstance((await anext(few)), Committed)

    run(main)


def test_records_of_a_snapshot_that_are_read_later():
    """From a frozen copy, by another thread; an error there means that there is no snapshot."""

    class Later(Values):
        def snapshot(self, sink) -> None:
            sink.append([b"first"])
            sink.append_later(self._read(list(self.values)))

        def _read(self, values):
            threads.append(threading.current_thread())
            yield from values

    threads: list[threading.Thread] = []

    async def main():
        lab, machine = Lab(), Later()
        async with lab.node(1, machine=lambda: machine) as node:
            await node.wait_leader()
            await node.append(b"a")
            end_offset, _ = await node.snapshot_now()
            assert threads
            assert threading.main_thread() not in threads
            await node.append(b"b")
            machine.values[0] = b""
            with pytest.raises(StateMachineError, match="may not be empty"):
                await node.snapshot_now()
            assert node.status().snapshots[-1][0] == end_offset
        again = Values()
        async with lab.node(1, machine=lambda: again) as node:
            await node.wait_leader()
            await node.wait_applied(node.high_watermark)
            assert again.values == [b"first", b"a", b"b"]

    run(main)


def test_a_forgotten_subscription_costs_nothing():
    hub = EventHub([], pytest.fail)
    kept = Subscription(hub, [RoleChanged], max_buffered=2)
    Subscription(hub, [Measured, RoleChanged], max_buffered=2)  # nobody holds it
    hub.tell(Measured(0.1, 1))
    assert not hub.wants(Measured)
    hub.tell(RoleChanged(Role.LEADER, 1))

    async def main():
        assert await anext(kept) == RoleChanged(Role.LEADER, 1)

    run(main)


def test_an_observer_that_raises_is_dropped_and_a_participant_stops_the_node(caplog):
    class Bad(Plugin):
        name = "bad"
        interests = frozenset({Committed})

        def on_event(self, event):
            raise RuntimeError("no")

    class Vital(Bad):
        participates = True

    async def main():
        lab = Lab()
        async with lab.node(1, plugins=[Bad()]) as node:
            await node.wait_leader()
            await node.append(b"a")
        assert "plugin bad raised" in caplog.text
        with pytest.raises(NodeStoppedError, match="no"):
            async with lab.node(1, plugins=[Vital()]) as node:
                await node.read_barrier()
                await node.append(b"b")
                await trio.sleep_forever()

    run(main)


def test_the_body_s_own_error_comes_out_as_it_is():
    async def main():
        with pytest.raises(KeyError):
            async with Lab().node(1) as node:
                await node.wait_leader()
                raise KeyError("mine")

    run(main)


def test_stop_ends_the_block_and_leaves_cleanly():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.append_nowait(b"a").wait() if node.is_leader else await node.wait_leader()
            node.stop()
            await trio.sleep_forever()
        async with lab.node(1) as node:
            assert await node.wait_leader() == 1

    run(main)


def test_a_leader_that_stops_tells_the_voters_before_it_is_gone():
    """They begin to elect at once: their own timers would ring after the test."""

    async def main():
        lab = Lab(delay_ms=20, fetch_timeout_ms=60_000, fast_failover=False)
        lab.format(3)
        nodes = {}

        async def live(number):
            async with lab.node(number) as node:
                nodes[number] = node
                await trio.sleep_forever()
            del nodes[number]

        async def wait_leader():
            while not (leads := [node for node in nodes.values() if node.is_leader]):
                await trio.sleep(0.01)
            return leads[0]

        async with trio.open_nursery() as nursery:
            for number in range(1, 4):
                nursery.start_soon(live, number)
            leader = await wait_leader()
            await leader.append(b"a")
            leader.stop()
            while leader.key.id in nodes:
                await trio.sleep(0.01)
            await (await wait_leader()).append(b"b")
            nursery.cancel_scope.cancel()

    run(main)


def test_stop_ends_a_block_with_tasks_of_its_own():
    async def main():
        async with Lab().node(1) as node, trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            node.stop()
            await trio.sleep_forever()

    run(main)


def test_an_unknown_plugin_is_refused_as_it_is():
    async def main():
        lab = Lab()
        with pytest.raises(LocalError, match="there is no plugin 'nobody'"):
            config = lab.config(1, plugins=("nobody",))
            async with (
                lab.network.transport("n1") as transport,
                open_node(config, Values(), transport=transport, files=lab.disks[1]),
            ):
                pass

    run(main)


def test_a_directory_belongs_to_one_node_of_one_cluster():
    async def main():
        lab = Lab()
        async with lab.node(1):
            lab.disks[4] = lab.disks[1]
            with pytest.raises(LockedError, match="/data"):
                async with lab.node(4):
                    pass
        with pytest.raises(LocalError, match="node id is 1, expected 5"):
            lab.disks[5] = lab.disks[1]
            async with lab.node(5):
                pass
        with pytest.raises(LocalError, match=r"cluster\.id is"):
            async with lab.node(1, cluster_id="AAAAAAAAAAAAAAAAAAAAAg"):
                pass
        with pytest.raises(LocalError, match="format"):
            lab.disks[3].make_folder("/data")
            async with lab.node(3, create=None, auto_join=False):
                pass

    run(main)
