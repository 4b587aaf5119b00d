"""An ``open_node`` that is called where another library runs names the right one."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
import trio
from nodes import Lab, Values

import kraftcore
from kraftcore import aio, blocking
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.node.plugin import Plugin
from kraftcore.testing import Cluster, KafkaCluster

OPEN = {"trio": kraftcore.open_node, "asyncio": aio.open_node, "threads": blocking.open_node}
NAMES = {"trio": "kraftcore.open_node", "asyncio": "kraftcore.aio.open_node", "threads": "kraftcore.blocking.open_node"}


def refused(library, here, error):
    text = str(error)
    assert text.startswith(f"{NAMES[library]} cannot be used like this here, where {here} runs: ")
    assert f"with {NAMES[here]}(...)`" in text


async def with_await(library, here):
    with pytest.raises(LocalError) as caught:
        async with OPEN[library](Lab().config(1), Values()):
            pytest.fail("it opened")
    refused(library, here, caught.value)


def without_await(library, here):
    with pytest.raises(LocalError) as caught, OPEN[library](Lab().config(1), Values()):
        pytest.fail("it opened")
    refused(library, here, caught.value)


@pytest.mark.parametrize("library", ["asyncio", "threads"])
def test_in_trio(library):
    trio.run(with_await, library, "trio")


@pytest.mark.parametrize("library", ["trio", "threads"])
def test_in_asyncio(library):
    asyncio.run(with_await(library, "asyncio"))


@pytest.mark.parametrize("library", ["trio", "asyncio"])
def test_where_there_is_no_event_loop(library):
    without_await(library, "threads")


def test_a_plain_with_where_async_with_is_meant():
    async def in_trio():
        without_await("trio", "trio")

    async def in_asyncio():
        without_await("asyncio", "asyncio")

    trio.run(in_trio)
    asyncio.run(in_asyncio())


def raised(function) -> str:
    """The sentence that a wrong call ends with, wherever it is made."""
    with pytest.raises(LocalError) as caught:
        function()
    assert type(caught.value) is LocalError
    return str(caught.value)


ELSEWHERE = "and the node runs in a trio loop of its own: open it with kraftcore.aio in asyncio"
CALLS = {
    "append": (b"x",),
    "append_many": ([b"x"],),
    "read_barrier": (),
    "wait_applied": (1,),
    "wait_leader": (),
    "transfer_leadership": (2,),
    "add_voter": (2, Uuid(), []),
    "remove_voter": (2, Uuid()),
    "upgrade": (1,),
    "snapshot_now": (),
}


def in_a_thread(function) -> None:
    failures = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


AT_ONCE = {"append_nowait": (b"x",), "read": (0,), "status": (), "events": (), "resign": (), "stop": ()}


def test_a_node_of_trio_is_called_in_its_own_loop():
    def elsewhere(node, events):
        for name, arguments in CALLS.items():
            call = partial(getattr(node, name), *arguments)
            for library, run in (
                ("asyncio", lambda call: asyncio.run(call())),
                ("another trio loop", trio.run),
                ("a thread without an event loop", lambda call: call().send(None)),
            ):
                text = raised(partial(run, call))
                assert text.startswith(f"Node.{name} is called from {library}, {ELSEWHERE}")
        for name, arguments in AT_ONCE.items():
            text = raised(partial(getattr(node, name), *arguments))
            assert text.startswith(f"Node.{name} is called from a thread without an event loop, {ELSEWHERE}")
            assert text.endswith("In a function that trio.to_thread runs, trio.from_thread calls it")

        async def listen() -> None:
            async for _ in events:
                pass

        assert "what Node.events returns is for trio, and here asyncio runs" in raised(lambda: asyncio.run(listen()))

    async def main():
        async with Lab().node(1) as node:
            events = node.events()
            await trio.to_thread.run_sync(in_a_thread, lambda: elsewhere(node, events))
            assert await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(node.status)) == node.status()
            await node.append(b"still there")
            end = node.high_watermark
            assert repr(node) == f"<kraftcore.Node 1: leader, epoch 1, leader 1, high watermark {end}>"
        assert repr(node) == "<kraftcore.Node 1: stopped>"

    trio.run(main)


def test_a_node_of_asyncio_is_called_in_its_own_loop():
    async def main():
        lab = Lab()
        transport = lab.network.transport("n1")
        async with aio.open_node(lab.config(1), Values(), transport=transport, files=lab.disks[1]) as node:
            await node.wait_leader()
            assert repr(node).startswith("<kraftcore.aio.Node 1: leader, epoch 1, leader 1, high watermark ")
            assert "Node.append is called from asyncio" in str(await error_of(node.trio_node.append(b"x")))

            def elsewhere():
                for run in (
                    lambda: node.append_nowait(b"x"),
                    lambda: node.stop(),
                    lambda: trio.run(node.append, b"x"),
                    lambda: asyncio.run(node.append(b"x")),
                ):
                    assert "this node belongs to another event loop" in raised(run)

            await asyncio.to_thread(elsewhere)
            text = str(await error_of(node.call(node.trio_node.append(b"x"))))
            assert "write node.call(function, argument), not node.call(function(argument))" in text
            assert "call wants a function, and was given 5" in str(await error_of(node.call(5)))
            text = raised(lambda: node.iterate(node.trio_node.events(), 5))
            assert "given a Subscription and arguments for it: write node.iterate(function, argument)" in text
            assert "iterate wants a function, and was given 5" in raised(lambda: node.iterate(5))
            await node.append(b"still there")

    async def error_of(awaitable):
        with pytest.raises(LocalError) as caught:
            await awaitable
        return caught.value

    asyncio.run(main())


def test_a_block_is_taken_for_what_it_opens():
    lab = Lab()
    async_blocks = {
        "kraftcore.open_node": kraftcore.open_node(lab.config(1), Values()),
        "kraftcore.aio.open_node": aio.open_node(lab.config(1), Values()),
        "kraftcore.observe": kraftcore.observe(["127.0.0.1:1"]),
        "kraftcore.admin.connect": kraftcore.admin.connect(bootstrap_servers=["127.0.0.1:1"]),
    }
    for name, block in async_blocks.items():
        assert raised(lambda block=block: block.append(b"x")) == (
            f"{name}(...) opens a block, and append is asked of what it opens: write `async with {name}(...) as "
            "opened:`, and in the block `opened.append`"
        )
        assert f"write `async with {name}(...) as opened:`" in raised(lambda block=block: block.__await__())
    for name in ("kraftcore.observe", "kraftcore.admin.connect"):
        with pytest.raises(LocalError, match=rf"write `async with {name}\(...\)`, not `with`"), async_blocks[name]:
            pytest.fail("it began")
    plain = blocking.open_node(lab.config(1), Values())
    assert "write `with kraftcore.blocking.open_node(...) as opened:`" in raised(lambda: plain.append(b"x"))
    assert not hasattr(plain, "_nothing") and not hasattr(async_blocks["kraftcore.observe"], "__nothing__")


def test_what_cannot_be_opened_is_named():
    async def main():
        for arguments, text in [
            ((None, Values()), "open_node takes a NodeConfig first, and was given NoneType"),
            ((Lab().config(1), Values), "give an object of it"),
        ]:
            with pytest.raises(LocalError, match=text):
                async with kraftcore.open_node(*arguments):
                    pytest.fail("it opened")
        with pytest.raises(LocalError, match="given as the class Plugin: give an object"):
            async with kraftcore.open_node(Lab().config(1), Values(), plugins=[Plugin]):
                pytest.fail("it opened")

    trio.run(main)


def test_what_is_for_trio_alone_says_so():
    async def main():
        for block, text in [
            (kraftcore.observe(["127.0.0.1:1"]), "kraftcore.observe is for trio, and here asyncio runs"),
            (kraftcore.admin.connect(bootstrap_servers=["127.0.0.1:1"]), "kraftcore.admin.connect is for trio"),
            (Cluster(1, Values), "kraftcore.testing.Cluster is for trio"),
            (KafkaCluster(1), "is for trio, and here asyncio runs: write `with in_thread"),
        ]:
            with pytest.raises(LocalError, match=text):
                async with block:
                    pytest.fail("it began")

    asyncio.run(main())
    for wrong in (Cluster(1, Values), KafkaCluster(1)):
        with pytest.raises(LocalError, match="write `async with`"), wrong:
            pytest.fail("it began")
    assert "give the class, or a function that makes one: Cluster(3, Values)" in raised(lambda: Cluster(3, Values()))
    assert "the size of a cluster is '3'" in raised(lambda: Cluster("3", Values))
