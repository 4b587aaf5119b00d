"""A node's end ends every call, with the reason; a full disk is one."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from nodes import Lab, run

from kraftcore import Node
from kraftcore.core.uuid import Uuid
from kraftcore.errors import NodeStoppedError, StorageError
from kraftcore.node.events import Committed, Stopped
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.raft.quorum import Endpoint

SOMEBODY = Uuid.from_string("AAAAAAAAAAAAAAAAAAAABQ")
PATIENT = {"fetch_timeout_ms": 60_000, "request_timeout_ms": 60_000, "election_timeout_ms": 30_000}
LARGE = b"x" * 200_000  # it does not wait for what was appended before it


class Vital(Plugin):
    """What the node cannot do without: it fails when it is told to."""

    name = "vital"
    participates = True

    def __init__(self) -> None:
        self.told = trio.Event()

    async def run(self, node: Node) -> None:
        await self.told.wait()
        raise StorageError(errno.ENOSPC, "No space left on device", "somewhere else")


@asynccontextmanager
async def two_voters(lab: Lab, plugins=()) -> AsyncIterator[Node]:
    """The leader, with a voter and an observer that have everything; nobody hears anything from now on.

    There is no election, for these timeouts last longer than a test.
    """
    async with (
        lab.node(1, plugins=plugins) as leader,
        lab.node(2, auto_join=False) as other,
        lab.node(3, auto_join=False) as observer,
    ):
        await leader.wait_leader()
        await other.wait_applied(leader.high_watermark)
        await leader.add_voter(2, other.key.directory_id, other.endpoints)
        await other.read_barrier()
        await observer.read_barrier()
        lab.network.delay_ms = 60_000
        yield leader


async def add_the_observer(node: Node) -> None:
    keys = {seen.key.id: seen.key for seen in node.status().replicas}
    await node.add_voter(3, keys[3].directory_id if 3 in keys else SOMEBODY, [Endpoint("CONTROLLER", "n3", 9093)])


async def transfer(node: Node) -> None:
    if node.is_leader:
        node.append_nowait(b"the heir lacks it, and the transfer waits")
    await node.transfer_leadership(2)


CALLS = {
    "append": lambda node: node.append(b"a"),
    "append, forwarded": lambda node: node.append(b"a", forward=True),
    "append, numbered": lambda node: node.append(b"a", client_id="me", sequence=0),
    "append_many": lambda node: node.append_many([b"a", b"b"]),
    "append_nowait": lambda node: node.append_nowait(b"a").wait(),
    "read_barrier": lambda node: node.read_barrier(),
    "read_barrier, here": lambda node: node.read_barrier(forward=False),
    "wait_applied": lambda node: node.wait_applied(1000),
    "transfer_leadership": transfer,
    "add_voter": add_the_observer,
    "remove_voter": lambda node: node.remove_voter(1, node.key.directory_id),
    "ask": lambda node: plugin_node(node).ask("n2", 9093, ListOffsetsRequest(), 60_000),
}
AT_ONCE = {
    "upgrade": lambda node: node.upgrade(1),
    "wait_leader": lambda node: node.wait_leader(),
    "wait_applied, of what is applied": lambda node: node.wait_applied(1),
    "snapshot_now": lambda node: node.snapshot_now(),
}
PLAIN = {
    "read": lambda node: node.read(0),
    "status": lambda node: node.status(),
    "events": lambda node: node.events(),
}


def check(error: NodeStoppedError) -> None:
    assert isinstance(error.__cause__, StorageError)
    assert error.__cause__.errno == errno.ENOSPC
    assert "No space left" in str(error)


def fill(lab: Lab, number: int) -> None:
    """From now on the node's disk is full."""
    lab.disks[number].capacity = lab.disks[number].used_bytes


async def ended(call, node) -> None:
    with pytest.raises(NodeStoppedError) as caught:
        await call(node)
    check(caught.value)


@pytest.mark.parametrize("why", ["full disk", "plugin"])
@pytest.mark.parametrize("name", CALLS)
def test_the_end_ends_what_waits(name, why):
    """The call is under way, and cannot end, for nobody else answers; then the leader fails."""

    async def main():
        lab = Lab(**PATIENT)
        vital = Vital()
        async with trio.open_nursery() as outer:
            with pytest.raises(NodeStoppedError):
                async with two_voters(lab, [vital]) as leader:
                    outer.start_soon(ended, CALLS[name], leader)
                    await trio.testing.wait_all_tasks_blocked()
                    if why == "plugin" or name == "transfer_leadership":  # which lets nothing be appended meanwhile
                        vital.told.set()
                    else:
                        fill(lab, 1)
                        leader.append_nowait(LARGE)
                    await trio.sleep_forever()
            assert not leader.is_leader
            assert leader.leader_endpoint is None

    run(main, limit_s=60)


def test_a_full_disk_ends_the_very_append_that_filled_it():
    async def main():
        lab = Lab()
        failures = []

        async def append(node):
            with pytest.raises(NodeStoppedError) as caught:
                while True:
                    await node.append_nowait(b"x" * 20_000).wait()
            failures.append(caught.value)

        async with trio.open_nursery() as outer:
            with pytest.raises(NodeStoppedError):
                async with lab.node(1) as node:
                    await node.wait_leader()
                    lab.disks[1].capacity = lab.disks[1].used_bytes + 100_000
                    outer.start_soon(append, node)
                    await trio.sleep_forever()
        check(failures[0])

    run(main, limit_s=60)


def test_a_full_disk_of_a_follower_ends_what_it_forwarded():
    async def main():
        lab = Lab(**PATIENT)
        async with trio.open_nursery() as outer, lab.node(1) as leader:
            await leader.wait_leader()
            with pytest.raises(NodeStoppedError):
                async with lab.node(2, auto_join=False) as follower:
                    await follower.read_barrier()
                    fill(lab, 2)
                    outer.start_soon(ended, CALLS["append, forwarded"], follower)
                    outer.start_soon(ended, CALLS["wait_applied"], follower)
                    await trio.sleep_forever()
            await leader.append(b"the others go on")

    run(main, limit_s=60)


def test_who_waits_for_room_is_told():
    async def main():
        lab = Lab(max_batch_bytes=2000, max_bytes_in_flight=2000, **PATIENT)
        async with trio.open_nursery() as outer:
            with pytest.raises(NodeStoppedError):
                async with two_voters(lab) as leader:
                    for _ in range(4):
                        outer.start_soon(ended, lambda node: node.append(b"x" * 1000), leader)
                    await trio.testing.wait_all_tasks_blocked()
                    assert leader.status().bytes_in_flight >= 2000
                    fill(lab, 1)
                    await leader.remove_voter(1, leader.key.directory_id)

    run(main, limit_s=60)


def test_events_end_with_the_reason():
    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError):
            async with lab.node(1) as node:
                await node.wait_leader()
                events = node.events(Stopped)
                fill(lab, 1)
                await node.append(b"a")
        (told,) = [event async for event in events]
        assert told.error.errno == errno.ENOSPC

    run(main, limit_s=60)


@pytest.mark.parametrize("how", ["failed", "closed"])
def test_after_its_end_every_call_says_so(how):
    async def main():
        lab = Lab()
        try:
            async with lab.node(1) as node:
                await node.wait_leader()
                if how == "failed":
                    fill(lab, 1)
                    await node.append(b"a")
        except NodeStoppedError as error:
            check(error)
        for name, call in {**CALLS, **AT_ONCE, **PLAIN}.items():
            with pytest.raises(NodeStoppedError, match="No space left" if how == "failed" else "it was closed"):
                found = call(node)
                if name not in PLAIN:
                    await found
        assert not node.is_leader
        assert node.stopped.is_set()

    run(main, limit_s=60)


def test_a_callback_that_raises_keeps_nobody_waiting(caplog):
    async def main():
        lab = Lab(**PATIENT)
        with pytest.raises(NodeStoppedError):
            async with two_voters(lab) as leader:
                proposals = [leader.append_nowait(b"a") for _ in range(3)]
                for proposal in proposals:
                    proposal.add_done_callback(lambda done: done.result())  # raises what the proposal ended with
                fill(lab, 1)
                leader.append_nowait(LARGE)
        for proposal in proposals:
            with pytest.raises(NodeStoppedError):
                proposal.result()

    run(main, limit_s=60)
    assert caplog.text.count("a callback of a proposal raised") == 3


def test_all_readers_of_a_subscription_are_woken():
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            events, told = node.events(Committed), []

            async def read():
                async for event in events:
                    told.append(event)

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read)
                    nursery.start_soon(read)
                    await trio.testing.wait_all_tasks_blocked()
                    await node.append(b"a")
                    await trio.testing.wait_all_tasks_blocked()
                    events.close()
            assert told

    run(main)
