"""Clients of recipes on three nodes, in trio, asyncio and threads, while nodes are killed; their history."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import isawaitable
from math import inf

import trio
from linearizability import (
    UNKNOWN,
    Operation,
    Recorder,
    check,
    counter_step,
    lock_step,
    members_step,
    queue_step,
    register_step,
    taking_step,
)
from trio.testing import MockClock

from kraftcore import aio, blocking
from kraftcore.aio import recipes as for_asyncio
from kraftcore.blocking import recipes as for_threads
from kraftcore.errors import KraftError, LeaseLostError, NodeStoppedError
from kraftcore.plugins import recipes
from kraftcore.ports.nursery import open_nursery
from kraftcore.testing import Cluster

STEPS = {
    "dict": (register_step, None, lambda operation: operation.arguments[0]),
    "counter": (counter_step, 0, None),
    "queue": (queue_step, (), None),
    "taking": (taking_step, (), None),
    "members": (members_step, (), None),
    "lock": (lock_step, None, lambda operation: operation.arguments[0]),
}


def check_history(kind, history):
    step, initial, partition = STEPS[kind]
    check(history, step, initial, partition=partition)


class InTrio:
    """A program in the trio loop of the cluster."""

    recipes = recipes

    def node(self, node):
        return node

    async def pause(self):
        await trio.sleep(0.003)


class InAsyncio:
    """A program on the asyncio loop whose guest the cluster's trio is."""

    recipes = for_asyncio

    def __init__(self, calls):
        self._calls = calls

    def node(self, node):
        return aio.Node(node, self._calls, asyncio.get_running_loop())

    async def pause(self):
        await asyncio.sleep(0.001)


class InThreads:
    """A program in a thread of its own."""

    recipes = for_threads

    def __init__(self, calls):
        self._calls = calls
        self._token = trio.lowlevel.current_trio_token()

    def node(self, node):
        return trio.from_thread.run_sync(blocking.Node, node, self._calls, self._token, trio_token=self._token)

    def pause(self):
        time.sleep(0.001)


def run_in_thread(function, *arguments):
    """Run an asynchronous function that waits for nothing asynchronous."""
    coroutine = function(*arguments)
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it awaited something")


def in_three_worlds(test, **settings):
    """Run a test with three nodes in virtual time, and a client of each world.

    The cluster's trio is a guest of asyncio's loop.

    Args:
        test: gets the cluster, and a function that runs `Users` on it: on node 1 from trio, on node 2 from asyncio, on
            node 3 from a thread; it is a context manager, at whose end they end.
        settings: the cluster's.
    """

    async def host():
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        outcomes = []

        async def main():
            async with Cluster(3, recipes.RecipeMachine, **settings) as cluster, open_nursery() as calls:
                await cluster.wait_leader()

                @asynccontextmanager
                async def running(users):
                    world = InThreads(calls)
                    thread = asyncio.ensure_future(asyncio.to_thread(run_in_thread, users.run, 3, world))
                    task = loop.create_task(users.run(2, InAsyncio(calls)))
                    try:
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(users.run, 1)
                            nursery.start_soon(fail_with, nursery, task, thread)
                            yield
                            users.is_over = True
                            while not (task.done() and thread.done()):
                                await trio.sleep(0.01)
                            nursery.cancel_scope.cancel()
                    finally:
                        users.is_over = True
                    task.result(), thread.result()

                await test(cluster, running)
                calls.cancel_scope.cancel()

        async def fail_with(nursery, *futures):
            while True:
                for future in futures:
                    if future.done() and future.exception() is not None:
                        raise future.exception()
                await trio.sleep(0.05)

        def done(outcome):
            outcomes.append(outcome)
            ended.set()

        trio.lowlevel.start_guest_run(
            main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=done,
            host_uses_signal_set_wakeup_fd=True,
            clock=MockClock(autojump_threshold=0),
        )
        async with asyncio.timeout(60):
            await ended.wait()
        outcomes[0].unwrap()

    asyncio.run(host())


class Block:
    """A context manager of either world, as an asynchronous one."""

    def __init__(self, manager):
        self._manager = manager
        self._kind = type(manager)

    async def __aenter__(self):
        return await given((getattr(self._kind, "__aenter__", None) or self._kind.__enter__)(self._manager))

    async def __aexit__(self, *raised):
        return await given((getattr(self._kind, "__aexit__", None) or self._kind.__exit__)(self._manager, *raised))


async def given(value):
    """What an operation returned, wherever it did."""
    return await value if isawaitable(value) else value


class Users:
    """One client on each node: calls, one after the other, through kills and partitions, until told to end.

    Args:
        cluster: three nodes.
        kind: of the objects, one of `STEPS`.
    """

    def __init__(self, cluster, kind):
        self._cluster = cluster
        self._kind = kind
        self._lock_number = 0  # of the lock in use; one whose holder died is held for long
        self.recorder = Recorder()
        self.tokens = {}
        self.busy = set()
        self.is_over = False

    async def run(self, number, world=None):
        """Be the client on a node."""
        world = world or InTrio()
        count = 0
        call = getattr(self, f"_{self._kind}")
        while not self.is_over:
            node = self._cluster.nodes.get(number)
            if node is not None:
                count += 1
                self.busy.add(number)
                try:
                    await call(world.recipes, world.node(node), f"{number}-{self._kind}", count)
                except NodeStoppedError:  # the outcome stays open
                    self._lock_number += 1
                self.busy.discard(number)
            await given(world.pause())

    async def kill(self, node):
        """In the middle of a call."""
        while node.key.id not in self.busy:
            await trio.sleep(0.0001)
        await self._cluster.kill(node)

    async def enough(self, count=20):
        """Wait until there are so many more operations."""
        wanted = len(self.recorder.operations) + count
        while len(self.recorder.operations) < wanted:
            await trio.sleep(0.01)

    def check_tokens(self):
        """A later holder's token is larger."""
        for tokens in self.tokens.values():
            assert tokens == sorted(set(tokens))

    async def _dict(self, of, node, process, count):
        key, value = f"k{count % 2}", f"{process}-{count}"
        numbers = of.Dict(node, "numbers")
        choice = (count * 7 + node.key.id) % 3
        if choice == 0:
            with self.recorder.operation("set", key, value, process=process) as found:
                await given(numbers.set(key, value))
                found.append(None)
        elif choice == 1:
            with self.recorder.operation("get", key, process=process) as found:
                found.append(await given(numbers.get(key)))
        else:
            expected = numbers.peek(key)
            with self.recorder.operation("cas", key, expected, value, process=process) as found:
                found.append(await given(numbers.compare_and_set(key, expected, value)))

    async def _counter(self, of, node, process, count):
        counter = of.Counter(node, "count")
        if count % 3:
            with self.recorder.operation("add", 1, process=process) as found:
                found.append(await given(counter.add()))
        else:
            with self.recorder.operation("get", process=process) as found:
                found.append(await given(counter.get()))

    async def _queue(self, of, node, process, count):
        queue = of.Queue(node, "queue")
        if count % 2:
            with self.recorder.operation("put", f"{process}-{count}", process=process) as found:
                await given(queue.put(f"{process}-{count}"))
                found.append(None)
        else:
            with self.recorder.operation("get", process=process) as found:
                found.append(await given(queue.get_nowait()))

    async def _taking(self, of, node, process, count):
        jobs, me = of.Queue(node, "taking", lease_ms=1_500), f"{process}-{count}"
        if count % 2:
            with self.recorder.operation("put", me, process=process) as found:
                await given(jobs.put(me))
                found.append(None)
            return
        begun = self.recorder.tick()
        try:
            async with AsyncExitStack() as stack:
                with self.recorder.operation("take", me, process=process) as found:
                    try:
                        taken = await stack.enter_async_context(Block(jobs.take(timeout_s=0)))
                    except TimeoutError:
                        found.append(None)
                        return
                    found.append(taken.item)
                if count % 3:
                    with self.recorder.operation("finish", me, process=process) as found:
                        await stack.aclose()
                        found.append(True)
                    return
                with self.recorder.operation("back", me, process=process) as found:
                    was_mine = await given(taken.release())
                    found.append(was_mine)
                if not was_mine:
                    raise LeaseLostError("its time had passed")
        except (NodeStoppedError, LeaseLostError) as error:  # its time passes, and the item is back, or was finished
            self.recorder.operations.append(Operation("back", (me,), UNKNOWN, begun, inf, process))
            if isinstance(error, NodeStoppedError):
                raise

    async def _members(self, of, node, process, count):
        me = f"{process}-{count}"
        group = of.Members(node, "group", lease_ms=3_600_000, info=me)  # who is killed stays
        with self.recorder.operation("join", me, process=process) as found:
            member = await given(group.acquire())
            found.append(None)
        with self.recorder.operation("present", process=process) as found:
            found.append(tuple(each.info for each in await given(group.present())))
        with self.recorder.operation("leave", me, process=process) as found:
            await given(member.release())
            found.append(None)

    async def _lock(self, of, node, process, count):
        lock = of.Lock(node, f"l{self._lock_number}", lease_ms=3_600_000)
        with self.recorder.operation("acquire", lock.name, process, process=process) as found:
            lease = await given(lock.try_acquire())
            found.append(lease is not None)
        if lease is not None:
            self.tokens.setdefault(lock.name, []).append(lease.token)
            await given(lock.holder())
            with self.recorder.operation("release", lock.name, process, process=process) as found:
                found.append(await given(lease.release()))


async def trouble(cluster, users):
    """Cut leaders off, kill nodes, start them from snapshots, take the majority away; clients go on all the time."""
    await users.enough()
    leader = await cluster.wait_leader()
    epoch = leader.status().epoch
    cluster.partition(leader)  # goes on believing it leads, with commands in flight
    await users.enough()
    cluster.heal()
    leader = await cluster.wait_leader()
    assert leader.status().epoch > epoch
    await leader.snapshot_now()
    await users.kill(leader)
    await users.enough()
    await cluster.start(leader)
    await users.enough()
    await hand_over(cluster)
    follower = cluster.followers[0]
    await users.kill(follower)
    await users.enough(10)
    cluster.partition(cluster.leader)  # nobody has a majority
    await trio.sleep(0.5)
    await cluster.start(follower)
    await users.enough(10)
    cluster.heal()
    await users.enough(10)


async def hand_over(cluster):
    """Have another node lead; one that lags has to be waited for."""
    while True:
        leader = await cluster.wait_leader()
        try:
            await leader.transfer_leadership(cluster.followers[0].key.id)
        except KraftError:
            await trio.sleep(0.05)
        else:
            return
