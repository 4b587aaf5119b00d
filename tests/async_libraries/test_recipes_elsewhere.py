"""Recipes from asyncio and from threads: the same objects, locks that end, waits that are given up."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from math import nan

import pytest
import trio
import trio.testing
from nodes import Lab
from recipe_quorum import on_three_nodes, take_away
from recipe_users import Block, given, run_in_thread

from kraftcore import aio, blocking, recipes
from kraftcore.aio import recipes as for_asyncio
from kraftcore.blocking import recipes as for_threads
from kraftcore.errors import ConflictError, LeaseLostError, LocalError
from kraftcore.plugins.recipes import RecipeMachine

LIMIT_S = 60


def in_asyncio(test) -> None:
    lab = Lab()
    lab.format(1)

    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            machine = RecipeMachine()
            async with aio.open_node(
                lab.config(1), machine, transport=lab.network.transport("n1"), files=lab.disks[1]
            ) as node:
                await node.wait_leader()
                await test(node)

    asyncio.run(main())


@contextmanager
def in_threads():
    lab = Lab()
    lab.format(1)
    with blocking.open_node(
        lab.config(1), RecipeMachine(), transport=lab.network.transport("n1"), files=lab.disks[1]
    ) as node:
        node.wait_leader()
        yield node


async def mistaken(of, node):
    """What a program gives wrongly is refused by name, and harms nothing."""
    numbers, jobs, lock = of.Dict(node, "numbers"), of.Queue(node, "jobs"), of.Lock(node, "lock")
    start, daily = of.Barrier(node, "start", 2), of.Scheduler(node, "daily", 86_400)
    steps = [partial(getattr(of.Transaction(node), step), "numbers") for step in ("get", "add", "put", "insert")]
    steps.append(partial(of.Transaction(node).set, jobs, "a"))
    steps.append(partial(of.Transaction(node).check_lock, numbers))
    for step, (name, kinds) in zip(
        steps,
        (
            ("get", "queue or priority queue, and was given 'numbers'"),
            ("add", "counter, and was given 'numbers'"),
            ("put", "queue or priority queue, and was given 'numbers'"),
            ("insert", "set, and was given 'numbers'"),
            ("set", "dict, and was given <Queue 'jobs', 0 here>"),
            ("check_lock", "lock or semaphore or members, and was given <Dict 'numbers', 0 here>"),
        ),
        strict=True,
    ):
        with pytest.raises(LocalError, match=f"^{name} of a transaction takes a {re.escape(kinds)}"):
            step() if name == "get" else step(1)
    for timeout_s in ("1", -1, nan, None, True):
        wanted = re.escape(f"is {timeout_s!r}: give a number of seconds, 0 or more")
        for call, name in ((jobs.get, "queue 'jobs'"), (lock.acquire, "lock 'lock'"), (start.wait, "barrier 'start'")):
            with pytest.raises(LocalError, match=f"the timeout_s of {name} {wanted}"):
                await given(call(timeout_s))
    for wrong, message in (
        (lambda: of.Scheduler(node, "x", every_s="5"), "the every_s of scheduler 'x' is '5': give a number of seconds"),
        (lambda: daily.next_run("term"), "next_run of scheduler 'daily' takes the lease of its term, not 'term'"),
        (lambda: numbers.watch(5), "a prefix of keys of dict 'numbers' is text, and 5 is int"),
        (lambda: numbers.items(5), "a prefix of keys of dict 'numbers' is text, and 5 is int"),
        (lambda: numbers.watch(max_buffered="5"), "the max_buffered of a watch of dict 'numbers' is '5': give an int"),
        (lambda: of.RecipeMachine(session_expiry_ms="5"), "the session_expiry_ms of a RecipeMachine is '5'"),
    ):
        with pytest.raises(LocalError, match=message):
            await given(wrong())
    once = lock.hold()
    async with Block(once) as lease:
        with pytest.raises(LocalError, match="the lock 'lock' is held for one block: call hold"):
            async with Block(once):
                pytest.fail("the first block has it")
        assert lease.is_valid
    with pytest.raises(LocalError, match="the lock 'lock' is held for one block: call hold"):
        async with Block(once):
            pytest.fail("the first block gave it back")
    assert await given(numbers.update([("a", 1), ("b", 2)])) is not None
    assert await given(numbers.update({"b": 3})) is not None
    assert await given(numbers.items()) == {"a": 1, "b": 3}
    with pytest.raises(TypeError, match="not iterable"):
        await given(numbers.update(5))


def test_mistakes_are_named_in_trio():
    async def test(cluster):
        await mistaken(recipes, await cluster.wait_leader())

    on_three_nodes(test)


def test_mistakes_are_named_in_asyncio():
    in_asyncio(partial(mistaken, for_asyncio))


def test_mistakes_are_named_in_threads():
    with in_threads() as node:
        run_in_thread(mistaken, for_threads, node)


def test_objects_from_asyncio():
    async def test(node):
        settings = for_asyncio.Dict(node, "settings")
        with settings.watch() as changes:
            version = await settings.set("colour", "blue")
            assert await settings.set_if("colour", "red", version) == version + 1
            assert [(await anext(changes)).value, (await anext(changes)).value] == ["blue", "red"]
        assert (settings["colour"], "colour" in settings, len(settings), list(settings)) == ("red", True, 1, ["colour"])
        with pytest.raises(KeyError, match="size"):
            settings["size"]
        assert await settings.get("size", 3) == 3
        jobs, count = for_asyncio.Queue(node, "jobs"), for_asyncio.Counter(node, "count")
        await jobs.put("first")
        done = for_asyncio.Transaction(node).get(jobs).set(settings, "taken", True).add(count, 2).delete(settings, "no")
        item, _, total, gone = await done.commit()
        assert (item, total, gone, settings["taken"]) == ("first", 2, None, True)
        with pytest.raises(TimeoutError, match="no item came to queue 'jobs' within 0.01 s"):
            await jobs.get(0.01)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(jobs.get())
            await jobs.put("second")
        assert waiting.result() == "second"

    in_asyncio(test)


def test_items_that_are_taken_for_a_block_in_asyncio():
    async def test(node):
        jobs = for_asyncio.Queue(node, "jobs")
        for item in ("first", "second"):
            await jobs.put(item)
        async with jobs.take() as taken:
            assert (taken.item, taken.is_valid, len(jobs)) == ("first", True, 1)
            assert isinstance(taken, for_asyncio.Taken)
        with pytest.raises(ValueError, match="the block's own"):
            async with jobs.take():
                raise ValueError("the block's own")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), jobs.take():
                await asyncio.sleep(LIMIT_S)
        async with jobs.take() as taken:
            assert taken.item == "second"
            step = for_asyncio.Transaction(node).finish(taken).add(for_asyncio.Counter(node, "done"))
            assert await step.commit() == [True, 1]
        with pytest.raises(TimeoutError, match="no item came to queue 'jobs' within 0.01 s"):
            async with jobs.take(timeout_s=0.01):
                pytest.fail("there is none")
        await jobs.put("last")
        with pytest.raises(LeaseLostError):
            async with for_asyncio.Queue(node, "jobs", lease_ms=300).take() as taken:
                await node.call(take_away, node.trio_node, "jobs", "queue")
                await asyncio.sleep(LIMIT_S)
        assert asyncio.current_task().cancelling() == 0
        assert await jobs.get() == "last"

    in_asyncio(test)


def test_items_that_are_taken_for_a_block_in_threads():
    with in_threads() as node:
        jobs = for_threads.PriorityQueue(node, "jobs", lease_ms=300)
        for item in ("second", "first"):
            jobs.put(item, len(item))
        with jobs.take() as taken:
            assert (taken.item, taken.is_valid, len(jobs), taken.lock) == ("first", True, 1, jobs)
        with pytest.raises(ValueError, match="the block's own"), jobs.take():
            raise ValueError("the block's own")
        with jobs.take() as taken:
            assert taken.item == "second"
            again = for_threads.PriorityQueue(node, "again")
            assert for_threads.Transaction(node).finish(taken).put(again, "third", 5).commit() == [True, True]
            assert again.get() == "third"
        with (
            pytest.raises(TimeoutError, match="an item of the priority queue 'jobs' could not be had within 0.05 s"),
            patiently(partial(for_threads.PriorityQueue, node.with_timeout(0.05), "jobs")).take(),
        ):
            pytest.fail("there is none")
        jobs.put("last")
        with pytest.raises(LeaseLostError), jobs.take() as taken:
            node.call(take_away, node.trio_node, "jobs", "priority queue")
            while taken.is_valid:
                time.sleep(0.01)
            with pytest.raises(ConflictError):
                for_threads.Transaction(node).finish(taken).commit()
        assert jobs.get() == "last"


def test_a_lock_from_asyncio():
    async def test(node):
        lock = for_asyncio.Lock(node, "lock", lease_ms=60_000, info="me")
        async with lock.hold() as lease:
            assert lease.is_valid
            assert (await lock.holder()).info == "me"
            assert await for_asyncio.Lock(node, "lock").try_acquire() is None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), for_asyncio.Lock(node, "lock").hold():
                    pytest.fail("the lock is held")
            with pytest.raises(TimeoutError, match="the lock 'lock' was held by others for 0.01 s"):
                async with for_asyncio.Lock(node, "lock").hold(0.01):
                    pytest.fail("the lock is held")
        assert not lease.is_valid
        assert lock.peek_holder() is None
        with pytest.raises(ValueError, match="the block's own"):
            async with lock.hold():
                raise ValueError("the block's own")
        assert lock.peek_holder() is None
        begun = time.monotonic()
        with pytest.raises(LeaseLostError, match="the lease of lock 'lock'"):
            async with for_asyncio.Lock(node, "lock", lease_ms=300).hold() as lease:
                await node.call(take_away, node.trio_node, "lock")
                await asyncio.sleep(LIMIT_S)
        assert time.monotonic() - begun < LIMIT_S / 2
        assert asyncio.current_task().cancelling() == 0
        term = for_asyncio.Election(node, "leader", info="a")
        async with term.campaign():
            assert (await term.leader()).info == "a"
            assert await term.contenders() == ["a"]
        group = for_asyncio.Members(node, "group", info="a")
        with group.observe() as seen:
            assert await anext(seen) == []
            async with group.join() as member:
                present = [for_asyncio.Holder("a", member.token)]
                assert await group.present() == await anext(seen) == group.peek_present() == present

    in_asyncio(test)


def test_gets_that_are_cancelled_in_asyncio_take_nothing():
    async def test(node):
        jobs = for_asyncio.Queue(node, "jobs")
        for number in range(30):
            await jobs.put(number)
        got = []
        for step in range(60):
            try:
                async with asyncio.timeout(step / 20_000):
                    got.append(await jobs.get())
            except TimeoutError:
                pass
            task = asyncio.ensure_future(jobs.get())
            for _ in range(step):
                await asyncio.sleep(0)
            if task.cancel():
                with suppress(asyncio.CancelledError):
                    got.append(await task)
            else:
                got.append(await task)
            if len(got) > 20:
                break
        assert got
        while len(got) + await jobs.size() < 30:
            await asyncio.sleep(0.01)
        while (item := await jobs.get_nowait()) is not None:
            got.append(item)
        assert sorted(got) == list(range(30))

    in_asyncio(test)


def test_what_is_cancelled_in_asyncio_leaves_nothing_behind():
    """Each call is cancelled after one more turn of the loop, until it comes to its end."""

    async def test(node):
        lock, places = for_asyncio.Lock(node, "lock"), for_asyncio.Semaphore(node, "places", 1)
        start = for_asyncio.Barrier(node, "start", 2)

        async def both():
            async with lock.hold(), places.hold() as lease:
                assert lease.is_valid

        async def alone():
            with pytest.raises(TimeoutError):
                await start.wait(0)

        for call in (both, alone, lock.try_acquire):
            turns, lease = 0, None
            while True:
                task = asyncio.ensure_future(call())
                for _ in range(turns):
                    await asyncio.sleep(0)
                if not task.cancel():
                    lease = await task
                    break
                with suppress(asyncio.CancelledError):
                    await task
                turns += 1
                assert await lock.holder() is None
                assert await places.holders() == []
            assert turns > 2
            if lease is not None:
                assert await lease.release()
        with pytest.raises(TimeoutError):
            await start.wait(0)

    in_asyncio(test)


def test_a_watch_in_asyncio_ends_and_loses_nothing_to_cancelled_readers():
    async def test(node):
        settings = for_asyncio.Dict(node, "settings")
        seen = []
        with settings.watch() as changes:
            for number in range(20):
                reader = asyncio.ensure_future(anext(changes))
                for _ in range(number):
                    await asyncio.sleep(0)
                change = asyncio.ensure_future(settings.set("k", number))
                for _ in range(number * 2):
                    await asyncio.sleep(0)
                if reader.cancel():
                    with suppress(asyncio.CancelledError):
                        await reader
                else:
                    seen.append((await reader).value)
                await change
            while len(seen) < 20:
                seen.append((await anext(changes)).value)
            assert seen == list(range(20))
            ended = asyncio.ensure_future(anext(changes, "the end"))
            await asyncio.sleep(0)
        assert await ended == "the end"
        assert await anext(changes, "the end") == "the end"
        last = asyncio.ensure_future(anext(settings.watch(), "the end"))
        await asyncio.sleep(0)
        with suppress(asyncio.CancelledError):
            node.stop()
            assert await last == "the end"
        asyncio.current_task().uncancel()

    in_asyncio(test)


def test_objects_from_threads():
    with in_threads() as node:
        settings = for_threads.Dict(node, "settings")
        with settings.watch() as changes:
            settings.set("colour", "blue")
            assert next(changes).value == "blue"
        assert (settings["colour"], "colour" in settings, len(settings), list(settings)) == (
            "blue",
            True,
            1,
            ["colour"],
        )
        jobs = for_threads.Queue(node, "jobs")
        with pytest.raises(TimeoutError, match="no item came to queue 'jobs' within 0.01 s"):
            jobs.get(0.01)
        taken = []
        worker = threading.Thread(target=lambda: taken.append(jobs.get(LIMIT_S)))
        worker.start()
        jobs.put("first")
        worker.join()
        assert taken == ["first"]
        lock = for_threads.Lock(node, "lock", lease_ms=300, info="me")
        with lock.hold() as lease:
            assert lease.is_valid
            assert lock.holder().info == "me"
            with pytest.raises(TimeoutError), for_threads.Lock(node.with_timeout(0.01), "lock").hold():
                pytest.fail("the lock is held")
            in_vain = pytest.raises(TimeoutError, match="the lock 'lock' was held by others for 0.01 s")
            with in_vain, for_threads.Lock(node, "lock").hold(timeout_s=0.01):
                pytest.fail("the lock is held")
        with pytest.raises(LeaseLostError, match="the lease of lock 'lock'"), lock.hold() as lease:
            node.call(take_away, node.trio_node, "lock")
            while lease.is_valid:
                time.sleep(0.01)
        with pytest.raises(ValueError, match="the block's own"), lock.hold():
            raise ValueError("the block's own")
        assert [*for_threads.Set(node, "set")] == []


def test_gets_that_time_out_in_threads_take_nothing():
    with in_threads() as node:
        jobs = for_threads.PriorityQueue(node, "jobs")
        for number in range(30):
            jobs.put(number, -number)
        got = []
        for step in range(60):
            with suppress(TimeoutError):
                got.append(for_threads.PriorityQueue(node.with_timeout(step / 20_000), "jobs").get())
            if len(got) > 20:
                break
        assert got
        while len(got) + jobs.size() < 30:
            time.sleep(0.01)
        while (item := jobs.get_nowait()) is not None:
            got.append(item)
        assert sorted(got) == list(range(30))


def test_what_times_out_in_threads_leaves_nothing_behind():
    with in_threads() as node:
        lock, start = for_threads.Lock(node, "lock"), for_threads.Barrier(node, "start", 2)
        timeouts = 0
        for step in range(40):
            hasty = node.with_timeout(step / 10_000)
            with suppress(TimeoutError):
                with for_threads.Lock(hasty, "lock").hold() as lease:
                    assert lease.is_valid
                for_threads.Lock(hasty, "lock").try_acquire().release()
                timeouts -= 1
            timeouts += 1
            with suppress(TimeoutError):
                for_threads.Barrier(hasty, "start", 2).wait()
            with lock.hold():  # somebody has it for a moment, at most
                pass
        assert timeouts
        node.call(trio.testing.wait_all_tasks_blocked)
        with pytest.raises(TimeoutError, match="still waits"):
            start.wait(0)
        hasty = node.with_timeout(0.05)
        door, jobs = (patiently(partial(kind, hasty, "it")) for kind in (for_threads.Lock, for_threads.Queue))
        with (
            for_threads.Lock(node, "it").hold(),
            pytest.raises(
                TimeoutError, match="the lock 'it' could not be had within 0.05 s: <kraftcore.blocking.Node 1: "
            ),
            door.hold(),
        ):
            pytest.fail("it is held")
        with pytest.raises(TimeoutError, match=r"Queue.get did not end within 0.05 s"):
            jobs.get()


def patiently(function):
    """What a function returns when it does not time out."""
    while True:
        with suppress(TimeoutError):
            return function()


def test_a_watch_in_threads_ends_and_loses_nothing_to_hasty_readers():
    with in_threads() as node:
        settings = for_threads.Dict(node, "settings")
        hasty = patiently(lambda: for_threads.Dict(node.with_timeout(0.001), "settings"))
        seen, changes = [], patiently(hasty.watch)
        with pytest.raises(TimeoutError, match=r"the wait for the next of Watch did not end within 0.001 s: "):
            next(changes)
        writer = threading.Thread(target=lambda: [settings.set("k", number) for number in range(50)])
        writer.start()
        while len(seen) < 50:
            with suppress(TimeoutError):
                seen.append(next(changes).value)
        writer.join()
        assert seen == list(range(50))
        with pytest.raises(TimeoutError):
            next(changes)
        patiently(changes.close)
        assert patiently(lambda: next(changes, "the end")) == "the end"
        waiting = []
        reader = threading.Thread(target=lambda: waiting.extend(settings.watch()))
        reader.start()
        settings.set("k", "last")
        node.stop()
        reader.join(LIMIT_S)
        assert not reader.is_alive()
        assert [change.value for change in waiting] in ([], ["last"])


def test_schedules_barriers_and_elections_call_back_everywhere():
    async def test(node):
        runs = []

        async def note() -> None:
            runs.append(len(runs))
            if len(runs) == 3:
                raise ValueError("enough")

        with pytest.raises(ValueError, match="enough"):
            await for_asyncio.Scheduler(node, "often", every_s=0.02).run_each(note)
        assert runs == [0, 1, 2]
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(for_asyncio.Barrier(node, "start", 3).wait())
        with pytest.raises(TimeoutError, match="still waits"):
            await for_asyncio.Barrier(node, "start", 3).wait(0.01)

    in_asyncio(test)
    with in_threads() as node:
        boss = for_threads.Election(node, "boss", info="a")
        assert boss.run(lambda term: (term.is_valid, boss.contenders())) == (True, ["a"])
        group = for_threads.Members(node, "group", info="a")
        with group.join() as member, group.observe() as seen:
            present = [for_threads.Holder("a", member.token)]
            assert group.present() == next(seen) == group.peek_present() == present
        barrier = for_threads.Barrier(node, "start", 2)
        other = threading.Thread(target=barrier.wait)
        other.start()
        barrier.wait(LIMIT_S)
        other.join()
        places = for_threads.Semaphore(node, "places", 1)
        with places.hold():
            assert [holder.info for holder in places.holders()] == [None]
            assert places.try_acquire() is None
            with pytest.raises(TimeoutError, match="the semaphore 'places' was held by others"):
                places.acquire(0.05)


def test_a_nodes_timeout_limits_the_waits_of_a_run_and_not_what_runs():
    with in_threads() as node:
        hasty = node.with_timeout(0.3)

        def lead(term):
            time.sleep(0.5)
            return term.is_valid

        assert patiently(lambda: for_threads.Election(hasty, "boss").run(lead)) is True
        runs, often = [], for_threads.Scheduler(hasty, "often", every_s=3600)

        def run():
            runs.append(time.sleep(0.5))

        with pytest.raises(TimeoutError, match="Scheduler.next_run did not end within 0.3 s"):
            often.run_each(run)
        assert runs == [None]  # and the second one was waited for in vain


def test_threads_refuse_an_asynchronous_function():
    async def lead(*_):
        raise AssertionError("nobody can await it")

    with in_threads() as node:
        with pytest.raises(LocalError, match=r"Election.run of kraftcore.blocking .*lead is asynchronous: write"):
            for_threads.Election(node, "boss").run(lead)
        with pytest.raises(LocalError, match="Scheduler.run_each of kraftcore.blocking"):
            for_threads.Scheduler(node, "often", every_s=1).run_each(lead)
        assert for_threads.Election(node, "boss").peek_holder() is None


def test_an_object_of_another_world_is_refused():
    with in_threads() as node:
        with pytest.raises(
            LocalError, match=r"take a node of kraftcore\.aio, .*: use kraftcore\.blocking\.recipes for this node"
        ):
            for_asyncio.Dict(node, "settings")
        with pytest.raises(
            LocalError, match=r"take a node of kraftcore\.blocking, .*: use kraftcore\.recipes for this node"
        ):
            for_threads.Queue(node.trio_node, "jobs")
