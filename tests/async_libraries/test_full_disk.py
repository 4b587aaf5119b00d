"""A disk that is full ends the node, and with it every call, in asyncio and in threads as in trio (tests/node)."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import Future

import pytest
from nodes import Lab, Values

from kraftcore import aio, blocking
from kraftcore.core.uuid import Uuid
from kraftcore.errors import NodeStoppedError, StorageError
from kraftcore.node.events import Stopped

LIMIT_S = 60
RECORD = b"x" * 20_000
SOMEBODY = Uuid.from_string("AAAAAAAAAAAAAAAAAAAABQ")
CALLS = {
    "append": lambda node: node.append(b"a"),
    "append, forwarded": lambda node: node.append(b"a", forward=True),
    "append, numbered": lambda node: node.append(b"a", client_id="me", sequence=0),
    "append_many": lambda node: node.append_many([b"a"]),
    "append_nowait": lambda node: node.append_nowait(b"a"),
    "read_barrier": lambda node: node.read_barrier(),
    "wait_applied": lambda node: node.wait_applied(1),
    "wait_leader": lambda node: node.wait_leader(),
    "transfer_leadership": lambda node: node.transfer_leadership(2),
    "add_voter": lambda node: node.add_voter(2, SOMEBODY, ()),
    "remove_voter": lambda node: node.remove_voter(2, SOMEBODY),
    "upgrade": lambda node: node.upgrade(1),
    "snapshot_now": lambda node: node.snapshot_now(),
    "read": lambda node: node.read(0),
    "status": lambda node: node.status(),
    "events": lambda node: node.events(),
    "call": lambda node: node.call(node.trio_node.status),
}


def check(error: NodeStoppedError) -> None:
    assert "No space left" in str(error)
    assert isinstance(error.__cause__, StorageError)
    assert error.__cause__.errno == errno.ENOSPC


def opening(lab: Lab, library):
    return library.open_node(lab.config(1), Values(), transport=lab.network.transport("n1"), files=lab.disks[1])


def limit(lab: Lab) -> None:
    lab.disks[1].capacity = lab.disks[1].used_bytes + 100_000


@pytest.mark.parametrize("append", ["append", "append_nowait", "append_many"])
def test_threads(append):
    lab = Lab()
    make = {
        "append": lambda node: node.append(RECORD),
        "append_nowait": lambda node: node.append_nowait(RECORD).result(LIMIT_S),
        "append_many": lambda node: node.append_many([RECORD]),
    }[append]
    with pytest.raises(NodeStoppedError) as outer, opening(lab, blocking) as opened:
        node = opened.with_timeout(LIMIT_S)
        node.wait_leader()
        events = node.events(Stopped)
        limit(lab)
        with pytest.raises(NodeStoppedError) as caught:
            while True:
                make(node)
        check(caught.value)
        assert not node.is_leader
        assert [event for event in events if not isinstance(event, Stopped)] == []
    check(outer.value)
    for call in CALLS.values():
        with pytest.raises(NodeStoppedError) as caught:
            found = call(node)
            if isinstance(found, Future):
                found.result(LIMIT_S)
        check(caught.value)


@pytest.mark.parametrize("append", ["append", "append_nowait", "append_many"])
def test_asyncio(append):
    make = {
        "append": lambda node: node.append(RECORD),
        "append_nowait": lambda node: node.append_nowait(RECORD),
        "append_many": lambda node: node.append_many([RECORD]),
    }[append]

    async def until_it_fails(node):
        while True:
            await make(node)

    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError) as outer:
            async with opening(lab, aio) as node:
                await node.wait_leader()
                limit(lab)
                task = asyncio.create_task(until_it_fails(node))
                await asyncio.sleep(LIMIT_S)
        check(outer.value)
        with pytest.raises(NodeStoppedError) as caught:
            await task
        check(caught.value)
        assert not node.is_leader
        assert node.leader_endpoint is None
        for call in CALLS.values():
            with pytest.raises(NodeStoppedError) as caught:
                found = call(node)
                if asyncio.iscoroutine(found) or asyncio.isfuture(found):
                    await found
            check(caught.value)

    async def limited():
        async with asyncio.timeout(LIMIT_S):
            await main()

    asyncio.run(limited())
