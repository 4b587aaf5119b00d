"""Ctrl-C, cancellation and an application's own exceptions come out of our calls and blocks as they were raised."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from nodes import Lab, Values

from kraftcore import aio, blocking
from kraftcore.node.plugin import Plugin
from kraftcore.observer import observe
from kraftcore.plugins import recipes
from kraftcore.ports.nursery import open_nursery
from kraftcore.testing import Cluster
from kraftcore.transports.tcp import TcpTransport

VOTERS = [f"{number}@n{number}:9093" for number in (1, 2, 3)]
WAITING = {  # calls that wait for ever on a node that knows no leader
    "append": lambda node: node.append(b"a", forward=True),
    "append_many": lambda node: node.append_many([b"a", b"b"], forward=True),
    "numbered": lambda node: node.append(b"a", forward=True, client_id="me", sequence=0),
    "read_barrier": lambda node: node.read_barrier(),
    "wait_applied": lambda node: node.wait_applied(100),
    "wait_leader": lambda node: node.wait_leader(),
}


class Own(BaseException):
    """An application's."""


class Interrupting(Values):
    """Ctrl-C is pressed while a record is applied, in a task of the node's."""

    def apply(self, batch):
        signal.raise_signal(signal.SIGINT)
        return super().apply(batch)


def leaderless(lab: Lab):
    return lab.node(1, voters=VOTERS, create="join", bootstrap_servers=())


async def press_when_all_wait() -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)
    signal.raise_signal(signal.SIGINT)


def press_soon() -> None:
    trio.lowlevel.spawn_system_task(press_when_all_wait)


@pytest.fixture(autouse=True)
def python_handles_ctrl_c():
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


@pytest.mark.parametrize("name", WAITING)
def test_ctrl_c_and_cancellation_come_out_of_a_call_as_they_are(name):
    async def main():
        async with leaderless(Lab()) as node:
            with trio.CancelScope() as scope:
                scope.cancel()
                with pytest.raises(trio.Cancelled):  # not in a group
                    await WAITING[name](node)
            with pytest.raises(trio.TooSlowError), trio.fail_after(0.01):
                await WAITING[name](node)
            press_soon()
            with pytest.raises(KeyboardInterrupt):
                await WAITING[name](node)
            assert not node.stopped.is_set()  # whoever catches it goes on with the node
            press_soon()
            await WAITING[name](node)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)


def test_ctrl_c_while_a_node_works_waits_for_the_application():
    """It neither ends a task of the node's in the middle of something, nor is it lost."""

    async def main():
        lab = Lab()
        async with lab.node(1, machine=Interrupting) as node:
            await node.wait_leader()
            with pytest.raises(KeyboardInterrupt):
                await node.append(b"a")
                await trio.sleep_forever()
            await node.wait_applied(node.high_watermark)
            assert lab.machines[1].values == [b"a"]
            raise Own

    with pytest.raises(Own):
        trio.run(main)


class NeverStopping(Plugin):
    name = "never stopping"

    async def stopping(self):
        press_soon()
        await trio.sleep_forever()


def test_a_second_ctrl_c_does_not_wait_for_the_good_order():
    async def main():
        lab = Lab()
        with pytest.raises(KeyboardInterrupt):
            async with lab.node(1, plugins=[NeverStopping()]):
                press_soon()
                await trio.sleep_forever()
        async with lab.node(1) as node:  # its directory was let go
            await node.wait_leader()

    trio.run(main)


@pytest.mark.parametrize("name", WAITING)
def test_ctrl_c_in_asyncio(name):
    came = []

    async def main():
        lab = Lab()
        config = lab.config(1, voters=VOTERS, create="join")
        async with aio.open_node(config, Values(), transport=lab.network.transport("n1"), files=lab.disks[1]) as node:
            task = asyncio.create_task(WAITING[name](node))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.01)
            asyncio.get_running_loop().call_later(0.02, signal.raise_signal, signal.SIGINT)
            try:
                await WAITING[name](node)
            except BaseException as error:
                came.append(type(error))
                raise

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert came == [asyncio.CancelledError]


@pytest.mark.parametrize("name", WAITING)
def test_ctrl_c_in_a_thread(name):
    lab = Lab()
    config = lab.config(1, voters=VOTERS, create="join")
    press = partial(signal.pthread_kill, threading.main_thread().ident, signal.SIGINT)
    with (
        pytest.raises(KeyboardInterrupt),
        blocking.open_node(config, Values(), transport=lab.network.transport("n1"), files=lab.disks[1]) as node,
    ):
        with pytest.raises(TimeoutError):
            WAITING[name](node.with_timeout(0.01))
        timer = threading.Timer(0.05, press)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            WAITING[name](node)
        timer.join()
        assert node.call(lambda: "it goes on") == "it goes on"
        press()
        WAITING[name](node)


@pytest.fixture
def sigterm_is_ctrl_c():
    """As docs/embedding.md has it."""
    old = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    yield
    signal.signal(signal.SIGTERM, old)


def test_sigterm_leaves_in_order_on_trio(sigterm_is_ctrl_c):
    ended = []

    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            ended.append(node)
            trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, signal.SIGTERM)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert ended[0].stopped.is_set() and ended[0].error is None


def test_sigterm_leaves_in_order_in_asyncio(sigterm_is_ctrl_c):
    ended = []

    async def main():
        lab = Lab()
        async with aio.open_node(
            lab.config(1), Values(), transport=lab.network.transport("n1"), files=lab.disks[1]
        ) as node:
            await node.wait_leader()
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(node)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert ended[0].is_stopped and ended[0].error is None


def test_sigterm_leaves_in_order_in_threads(sigterm_is_ctrl_c):
    lab = Lab()
    with (
        pytest.raises(KeyboardInterrupt),
        blocking.open_node(lab.config(1), Values(), transport=lab.network.transport("n1"), files=lab.disks[1]) as node,
    ):
        node.wait_leader()
        signal.raise_signal(signal.SIGTERM)
        node.call(trio.sleep_forever)
    assert node.is_stopped and node.error is None


def block_of_node():
    return leaderless(Lab())


def block_of_cluster():
    return Cluster(1, Values)


def block_of_tcp():
    return TcpTransport()


def block_of_memory():
    return Lab().network.transport("a")


@asynccontextmanager
async def block_of_observer():
    lab = Lab()
    async with (
        lab.node(1) as node,
        lab.network.transport("o") as transport,
        observe(["n1:9093"], transport=transport, files=lab.disks[2], directory="/mirror"),
    ):
        await node.wait_leader()
        yield


@asynccontextmanager
async def block_of_lock():
    lab = Lab()
    async with lab.node(1, machine=recipes.RecipeMachine) as node, recipes.Lock(node, "mine").hold():
        yield


BLOCKS = (
    block_of_node,
    block_of_cluster,
    block_of_tcp,
    block_of_memory,
    block_of_observer,
    block_of_lock,
    open_nursery,
)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("error", [ValueError(), SystemExit(3), ExceptionGroup("my own", [ValueError()]), Own()])
def test_what_a_block_raises_comes_out_as_it_is(block, error):
    async def main():
        async with block():
            raise error

    with pytest.raises(type(error)) as caught:
        trio.run(main)
    assert caught.value is error


@pytest.mark.parametrize("block", BLOCKS)
def test_ctrl_c_in_a_block_comes_out_as_it_is(block):
    async def main():
        async with block():
            press_soon()
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_cancelled_block_is_cancelled(block):
    async def main():
        with trio.move_on_after(1) as scope:
            async with block():
                scope.cancel()
                with pytest.raises(trio.Cancelled):
                    await trio.sleep_forever()
                await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(main)


def test_ctrl_c_while_a_recipe_waits():
    async def main():
        lab = Lab()
        async with lab.node(1, machine=recipes.RecipeMachine) as node, recipes.Lock(node, "mine").hold():
            press_soon()
            with pytest.raises(KeyboardInterrupt):
                await recipes.Lock(node, "mine").acquire()
            press_soon()
            with pytest.raises(KeyboardInterrupt):
                await recipes.Queue(node, "jobs").get()
            press_soon()
            with recipes.Dict(node, "settings").watch() as watch, pytest.raises(KeyboardInterrupt):
                await anext(watch)

    trio.run(main)


def test_what_tasks_raise_comes_before_what_their_block_raises():
    async def fail(error):
        raise error

    async def main(*errors):
        async with open_nursery() as nursery:
            for error in errors:
                nursery.start_soon(fail, error)
            await trio.sleep_forever()

    one, other = ValueError("one"), KeyError("other")
    for errors, expected in (((one,), one), ((one, Own()), Own), ((one, KeyboardInterrupt()), KeyboardInterrupt)):
        with pytest.raises(expected if isinstance(expected, type) else type(expected)):
            trio.run(main, *errors)
    with pytest.raises(ExceptionGroup) as caught:
        trio.run(main, one, other)
    assert set(caught.value.exceptions) == {one, other}
