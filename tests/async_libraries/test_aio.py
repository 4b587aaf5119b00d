"""kraftcore.aio: nodes on an asyncio loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio
from nodes import Lab, Values
from programs import output_of

from kraftcore import aio
from kraftcore.errors import (
    LocalError,
    LockedError,
    NodeStoppedError,
    NotLeaderError,
    OverloadedError,
    StateMachineError,
)
from kraftcore.node.events import LeaderChanged, RoleChanged
from kraftcore.plugins import recipes
from kraftcore.raft.roles import Role

LIMIT_S = 120


def run(main) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await main()

    asyncio.run(limited())
    assert not trio.lowlevel.in_trio_run()  # nothing of trio's stays behind


def opened(lab: Lab, number: int = 1, machine=Values, **settings):
    lab.machines[number] = machine()
    return aio.open_node(
        lab.config(number, **settings),
        lab.machines[number],
        transport=lab.network.transport(f"n{number}"),
        files=lab.disks[number],
    )


@asynccontextmanager
async def quorum(lab: Lab, machine=Values, **settings):
    lab.format(3)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(opened(lab, n, machine, **settings)) for n in (1, 2, 3)]
        while not any(node.is_leader for node in nodes):
            await asyncio.sleep(0.01)
        nodes.sort(key=lambda node: not node.is_leader)
        for node in nodes:
            await node.wait_leader()
        yield nodes


def test_three_nodes_on_one_loop():
    async def main():
        lab = Lab()
        async with quorum(lab) as (leader, follower, _):
            events = follower.events(LeaderChanged, RoleChanged)
            found = await leader.append(b"a")
            assert found.result == 1
            assert leader.read(found.offset)
            with pytest.raises(NotLeaderError) as caught:
                await follower.append(b"b")
            assert caught.value.leader_id == leader.config.node_id
            assert (await follower.append(b"b", forward=True)).result == 2
            assert (await leader.append_many([b"c", b"d"])).results == [3, 4]
            await follower.read_barrier()
            assert follower.state_machine.values == [b"a", b"b", b"c", b"d"]
            assert leader.status().role is Role.LEADER
            assert leader.high_watermark == leader.status().high_watermark
            await leader.transfer_leadership(follower.config.node_id)
            async for event in events:
                if event == RoleChanged(Role.LEADER, follower.status().epoch):
                    break
            events.close()
            assert [event async for event in events] == []

    run(main)


def test_a_node_says_where_it_stands_and_resigns():
    async def main():
        async with quorum(Lab()) as (leader, follower, _):
            assert leader.leader_id == follower.leader_id == leader.config.node_id
            assert (follower.leading_epoch, follower.kraft_version, follower.broker_endpoints) == (None, 1, ())
            epoch = leader.status().epoch
            leader.resign()
            while follower.status().epoch == epoch:
                await asyncio.sleep(0.01)

    run(main)


def test_many_tasks_append():
    async def main():
        lab = Lab()
        async with opened(lab) as node:
            await node.wait_leader()
            found = await asyncio.gather(*(node.append(b"%d" % number) for number in range(500)))
            assert [lab.machines[1].values[each.result - 1] for each in found] == [b"%d" % n for n in range(500)]
            futures = [node.append_nowait(b"x") for _ in range(500)]
            offsets = [(await future).offset for future in futures]
            assert offsets == sorted(offsets)

    run(main)


def test_append_waits_for_room_and_append_nowait_says_that_there_is_none():
    async def main():
        lab = Lab(delay_ms=2)
        async with quorum(lab, max_bytes_in_flight=2000) as (leader, _, _):
            futures = []
            with pytest.raises(OverloadedError):
                while True:
                    futures.append(leader.append_nowait(bytes([1]) * 500))
            assert (await leader.append(b"later")).offset > (await futures[-1]).offset

    run(main)


def test_recipes_work_through_call():
    async def main():
        lab = Lab()
        async with quorum(lab, recipes.RecipeMachine) as (leader, follower, _):
            here, there = (recipes.Dict(node.trio_node, "settings") for node in (leader, follower))
            with follower.iterate(there.watch, "col") as one, follower.iterate(there.watch("col")) as other:
                version = await leader.call(here.set, "colour", "blue")
                for changes in (one, other):
                    change = await anext(changes)
                    assert (change.key, change.value, change.version) == ("colour", "blue", version)
            assert await follower.call(there.get, "colour") == "blue"
            assert await follower.call(there.peek, "colour") == "blue"  # one that does not wait
            assert await leader.call(here.set_if, "colour", "red", version=version) is not None

    run(main)


def test_cancelling_waits_for_the_end_in_trio():
    async def main():
        lab = Lab()
        done = []

        async def slow():
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.05)
                    done.append("cleaned up")

        async with opened(lab) as node:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await node.call(slow)
            assert done == ["cleaned up"]
            task = asyncio.create_task(node.call(slow))
            await asyncio.sleep(0.01)
            for _ in range(3):  # impatience changes nothing
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(done) == 2

    run(main)


def test_what_a_function_raises_comes_out_as_it_is():
    async def main():
        async def fail():
            await trio.lowlevel.checkpoint()
            raise KeyError("mine")

        async def fail_when_cancelled():
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                raise KeyError("cleaning up") from None

        async with opened(Lab()) as node:
            with pytest.raises(KeyError, match="mine"):
                await node.call(fail)
            task = asyncio.create_task(node.call(fail_when_cancelled))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(KeyError, match="cleaning up"):
                await task

    run(main)


def test_a_node_that_fails_cancels_its_block():
    async def main():
        lab = Lab()
        with pytest.raises(NodeStoppedError, match="does not like this") as caught:
            async with opened(lab) as node:
                await node.wait_leader()
                task = asyncio.create_task(node.call(trio.sleep_forever))
                with pytest.raises(NodeStoppedError):
                    await node.append(b"raise")
                await asyncio.sleep(LIMIT_S)
        assert isinstance(caught.value.__cause__, StateMachineError)
        with pytest.raises(NodeStoppedError, match="does not like this"):
            await task
        with pytest.raises(NodeStoppedError):
            await node.append(b"a")
        assert node.is_stopped
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.01)  # no cancellation is left over

    run(main)


def test_a_block_that_ends_while_its_node_fails_leaves_no_cancellation_behind():
    async def main():
        with pytest.raises(NodeStoppedError):
            async with opened(Lab()) as node:
                await node.wait_leader()
                with pytest.raises(NodeStoppedError):
                    await node.append(b"raise")
                while not node.is_stopped:
                    await asyncio.sleep(0)
                with suppress(asyncio.CancelledError):  # against all rules
                    await asyncio.sleep(LIMIT_S)
        await asyncio.sleep(0.01)
        assert asyncio.current_task().cancelling() == 0

    run(main)


def test_stop_ends_the_block_without_an_error():
    async def main():
        lab = Lab()
        async with opened(lab) as node:
            node.stop()
            await asyncio.sleep(LIMIT_S)
        async with opened(lab) as node:
            assert await node.wait_leader() == 1

    run(main)


def test_a_cancelled_block_closes_its_node():
    async def main():
        lab = Lab()
        inside = asyncio.Event()

        async def application():
            async with opened(lab):
                inside.set()
                await asyncio.sleep(LIMIT_S)

        task = asyncio.create_task(application())
        await inside.wait()
        other = lab.network.transport("other")
        with pytest.raises(LockedError):
            async with aio.open_node(lab.config(1), Values(), transport=other, files=lab.disks[1]):
                pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(KeyError, match="mine"):
            async with opened(lab):
                raise KeyError("mine")
        async with opened(lab) as node:
            await node.wait_leader()

    run(main)


def test_opening_can_fail_and_can_be_cancelled():
    @asynccontextmanager
    async def slow_transport():
        await trio.sleep_forever()
        yield None

    async def main():
        lab = Lab()
        with pytest.raises(LocalError, match="format"):
            lab.disks[2].make_folder("/data")
            async with opened(lab, 2, create=None, auto_join=False):
                pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                async with aio.open_node(lab.config(1), Values(), transport=slow_transport(), files=lab.disks[1]):
                    pass
        async with opened(lab):
            pass

    run(main)


def test_an_opening_that_is_cancelled_at_once_does_not_disturb_another():
    async def main():
        async def application():
            async with opened(Lab()) as node:
                return await node.wait_leader()

        tasks = [asyncio.create_task(application()) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert await tasks[1] == 1

    run(main)


def test_every_thread_has_its_own_loop_and_nodes():
    lab = Lab()
    problems = []

    async def main(number):
        own = Lab()
        async with opened(own) as node:
            await node.wait_leader()
            for _ in range(50):
                await node.append(b"%d" % number)
        async with opened(own) as node:  # once more on the same loop
            await node.wait_leader()
            assert (await node.append(b"x")).result == 51

    def thread(number):
        try:
            asyncio.run(main(number))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert problems == []
    assert lab.machines == {}


def test_a_node_belongs_to_its_loop():
    async def main():
        async with opened(Lab()) as node:

            async def elsewhere():
                with pytest.raises(LocalError, match=r"kraftcore\.blocking"):
                    await node.append(b"a")

            await asyncio.to_thread(asyncio.run, elsewhere())

    run(main)


def test_a_loop_that_was_closed_with_a_node_on_it_is_named(tmp_path):
    said = output_of(
        __file__,
        """
        loop = asyncio.new_event_loop()
        manager = opened(Lab())
        loop.run_until_complete(manager.__aenter__())
        loop.close()
        async def again():
            async with opened(Lab()):
                pass
        try:
            asyncio.run(again())
        except LocalError as error:
            print(error)
        os._exit(0)  # not the interpreter's end: what it complains about is trio's to say
        """,
    )
    assert "left, or closed, with nodes still open" in said


@pytest.mark.parametrize("runner", ["asyncio.run(main())", "asyncio.new_event_loop().run_until_complete(main())"])
def test_an_interrupt_closes_the_node(runner):
    said = output_of(
        __file__,
        f"""
        async def main():
            try:
                async with opened(Lab()) as node:
                    await node.wait_leader()
                    os.kill(os.getpid(), signal.SIGINT)
                    await asyncio.sleep({LIMIT_S})
            finally:
                print("closed", node.is_stopped)
        try:
            {runner}
        except KeyboardInterrupt:
            print("interrupted")
        """,
    )
    assert said == "closed True\ninterrupted\n"


def test_what_a_cancelled_reader_was_about_to_get_is_the_next_ones():
    class Numbers:
        def __init__(self) -> None:
            self.last, self.reader = 0, None

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.last += 1
            if self.last == 2:  # right when it is there
                self.reader.cancel()
            return self.last

    async def main():
        async with opened(Lab()) as node:
            numbers = Numbers()
            found = node.iterate(lambda: numbers)
            assert await anext(found) == 1
            numbers.reader = asyncio.ensure_future(anext(found))
            with pytest.raises(asyncio.CancelledError):
                await numbers.reader
            assert [await anext(found), await anext(found)] == [2, 3]

    run(main)
