"""Recipes on three nodes in one process: what programs hold, leader changes, restarts, and linearizable histories."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from linearizability import Recorder, check, counter_step, queue_step, register_step
from memory_quorum import memory_quorum
from trio.testing import MockClock

from kraftcore import StateMachine
from kraftcore.errors import ConflictError, LeaseLostError, LocalError, NodeStoppedError
from kraftcore.plugins import recipes


def on_three_nodes(test, folder, **settings):
    async def main():
        async with memory_quorum(folder, recipes.RecipeMachine, **settings) as quorum:
            with trio.fail_after(600):
                await test(quorum)

    # Time passes only while all wait: a busy machine changes nothing. The threshold leaves threads time to end.
    trio.run(main, clock=MockClock(autojump_threshold=0.005))


async def both(quorum):
    leader = await quorum.leader()
    return leader, next(node for node in quorum.nodes.values() if node is not leader)


def test_what_one_node_does_the_others_see(tmp_path):
    async def test(quorum):
        leader, follower = await both(quorum)
        for here, there in ((leader, follower), (follower, leader)):
            name = f"of {here.key.id}"
            one, other = recipes.Dict(here, name), recipes.Dict(there, name)
            version = await one.set("a", {"x": [1, b"2", None]})
            assert await other.get("a") == {"x": [1, b"2", None]}
            assert await other.get_versioned("a") == ({"x": [1, b"2", None]}, version)
            assert await other.set_if("a", 2, version + 1) is None
            assert await other.set_if("a", 2, version) > version
            assert await one.set_if("a", 3, recipes.ABSENT) is None
            assert await one.compare_and_set("a", 2, 3)
            assert not await one.compare_and_set("a", 2, 4)
            assert await other.set_default("a", 9) == 3
            await other.update({"b": None, "c": 5})
            assert await one.items() == {"a": 3, "b": None, "c": 5}
            assert await one.items("c") == {"c": 5}
            assert await one.pop("b", "default") is None
            assert await one.pop("b", "default") == "default"
            assert [await one.delete("c"), await one.delete("c"), await other.size()] == [True, False, 1]
            assert await other.clear() == 1

            count, queue, members = (
                kind(here, name) for kind in (recipes.Counter, partial(recipes.Queue, max_size=2), recipes.Set)
            )
            assert [await count.add(), await count.add(5), await recipes.Counter(there, name).get()] == [1, 6, 6]
            assert [await count.set(3), await count.compare_and_set(3, 4), await count.get()] == [6, True, 4]
            assert [await queue.put(item) for item in ("x", "y", "z")] == [True, True, False]
            assert await recipes.Queue(there, name).get_nowait() == "x"
            assert [await queue.size(), queue.peek_items(), await queue.clear()] == [1, ["y"], 1]
            assert await queue.get_nowait("none") == "none"
            assert [await members.add(1), await members.add(1), await members.add(True)] == [True, False, True]
            assert await recipes.Set(there, name).members() == [1, True]
            assert [await members.contains(1), await members.contains(2)] == [True, False]
            assert [await members.update([1, 2]), await members.pop(), await members.discard(9)] == [1, 1, False]
            assert await members.clear() == 2
        with pytest.raises(LocalError, match="64 bits"):
            await count.add(2**63 - 1)
        with pytest.raises(LocalError, match="recipes hold"):
            await one.set("a", object())
        assert await count.add() == 5  # the refused ones did no harm

    on_three_nodes(test, tmp_path)


def test_transactions_over_several_objects(tmp_path):
    async def test(quorum):
        for node in await both(quorum):
            accounts, moved = recipes.Dict(node, "accounts"), recipes.Counter(node, "moved")
            jobs, names = recipes.Queue(node, "jobs"), recipes.Set(node, "names")
            version = await accounts.set("alice", 100)
            await accounts.set("bob", 0)

            def transaction(version, node=node, accounts=accounts, moved=moved, jobs=jobs, names=names):
                made = recipes.Transaction(node).check(accounts, "alice", version).check_count(moved, 0)
                made.set(accounts, "alice", 90).set(accounts, "bob", 10).add(moved, 10).put(jobs, "tell bob")
                return made.insert(names, "bob").check_member(names, "bob")

            await transaction(version).commit()
            assert await accounts.items() == {"alice": 90, "bob": 10}
            assert [await moved.get(), await jobs.size(), await names.members()] == [10, 1, ["bob"]]
            with pytest.raises(ConflictError, match="alice"):
                await transaction(version).commit()
            assert await accounts.items() == {"alice": 90, "bob": 10}
            undo = recipes.Transaction(node).delete(accounts, "bob").discard(names, "bob").get(jobs).add(moved, -10)
            await undo.commit()
            assert [await accounts.get("bob"), await jobs.size(), await moved.get()] == [None, 0, 0]
        with pytest.raises(LocalError, match="has operations"):
            await recipes.Transaction(node).commit()

    on_three_nodes(test, tmp_path)


def test_a_watch_tells_every_change_in_order(tmp_path):
    async def test(quorum):
        leader, follower = await both(quorum)
        settings = recipes.Dict(leader, "settings")
        await settings.set("web/colour", "red")
        await follower.read_barrier()
        watched = recipes.Dict(follower, "settings")
        with watched.watch("web/") as watch:
            assert watched.peek_items() == {"web/colour": "red"}
            versions = [await settings.set("web/colour", "blue"), await settings.set("web/size", None)]
            await settings.set("db/host", "x")
            await settings.delete("web/colour")
            seen = [await anext(watch) for _ in range(3)]
            assert [(change.key, change.value, change.is_deleted) for change in seen] == [
                ("web/colour", "blue", False),
                ("web/size", None, False),
                ("web/colour", None, True),
            ]
            assert [change.version for change in seen[:2]] == versions
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

        slow = watched.watch(max_buffered=4)
        for number in range(20):
            await settings.set(f"k{number % 3}", number)
        await settings.set("last", 0)
        last = {}
        while "last" not in last:
            change = await anext(slow)
            assert change.version > max((seen.version for seen in last.values()), default=-1)
            last[change.key] = change
        assert [last[key].value for key in ("k0", "k1", "k2")] == [18, 19, 17]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(quorum.stop, follower.key.id))
            assert [change async for change in slow] == []

    on_three_nodes(test, tmp_path)


def test_a_queue_wakes_who_waits(tmp_path):
    async def test(quorum):
        leader, follower = await both(quorum)
        got = []

        async def consume(node):
            got.append(await recipes.Queue(node, "jobs").get())

        async with trio.open_nursery() as nursery:
            for node in (leader, follower, follower):
                nursery.start_soon(consume, node)
            await trio.sleep(0.05)
            for number in range(3):
                await recipes.Queue(leader, "jobs").put(number)
        assert sorted(got) == [0, 1, 2]
        queue = recipes.Queue(follower, "jobs")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(quorum.stop, follower.key.id))
            with pytest.raises(NodeStoppedError):
                await queue.get()

    on_three_nodes(test, tmp_path)


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_at_a_time(tmp_path):
    async def test(quorum):
        inside, tokens = [], []

        async def work(node, number):
            async with recipes.Lock(node, "l", lease_ms=10_000, info=number).hold() as lease:
                assert inside == []
                inside.append(number)
                tokens.append(lease.token)
                assert (await recipes.Lock(node, "l").holder()) == (recipes.Holder(number, lease.token))
                await trio.sleep(0.01)
                assert lease.is_valid
                inside.remove(number)

        async with trio.open_nursery() as nursery:
            for number in range(9):
                nursery.start_soon(work, quorum.nodes[number % 3 + 1], number)
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 9
        assert await recipes.Lock(quorum.nodes[1], "l").holder() is None

    on_three_nodes(test, tmp_path)


def test_leases_are_renewed_taken_over_and_fenced(tmp_path):
    async def test(quorum):
        leader, follower = await both(quorum)
        other = next(node for node in quorum.nodes.values() if node not in (leader, follower))
        lock = recipes.Lock(leader, "l", lease_ms=400)
        written = recipes.Dict(leader, "written")
        async with recipes.Lock(other, "l", lease_ms=200).hold() as lease:
            assert await lock.try_acquire() is None
            await trio.sleep(0.5)  # more than two leases
            assert lease.is_valid
            assert await lock.try_acquire() is None
            await recipes.Transaction(other).check_lock(lease.lock, lease.token).set(written, "k", 1).commit()
        first = await lock.try_acquire()
        assert first.token > lease.token
        # Dies without a word: the next one waits for the lease's end, and then fences it out.
        second = await recipes.Lock(follower, "l", lease_ms=60_000).acquire()
        assert second.token > first.token
        with pytest.raises(ConflictError, match="not held with token"):
            await recipes.Transaction(leader).check_lock(lock, first.token).set(written, "k", 2).commit()
        with pytest.raises(LeaseLostError):
            await first.renew()
        assert not first.is_valid
        assert await written.get("k") == 1
        assert [await second.release(), await second.release()] == [True, False]

    on_three_nodes(test, tmp_path)


def test_a_holder_that_is_cut_off_learns_it_in_time(tmp_path):
    async def test(quorum):
        leader, follower = await both(quorum)
        lost_at, taken_at = [], []

        async def hold():
            with pytest.raises(LeaseLostError, match="was lost"):
                async with recipes.Lock(leader, "l", lease_ms=1_500).hold() as lease:
                    quorum.cut_off(leader.key.id)
                    held.set()
                    try:
                        await trio.sleep_forever()
                    finally:
                        assert not lease.is_valid
                        lost_at.append(trio.current_time())

        async def take():
            await held.wait()
            async with recipes.Lock(follower, "l").hold():
                taken_at.append(trio.current_time())

        held = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            nursery.start_soon(take)
        assert lost_at < taken_at
        quorum.network.heal()

    on_three_nodes(test, tmp_path)


def test_what_a_locked_block_raises_comes_out_as_it_is(tmp_path):
    async def test(quorum):
        node = await quorum.follower()
        lock = recipes.Lock(node, "l")
        with pytest.raises(KeyError):
            async with lock.hold():
                raise KeyError("mine")
        assert await lock.holder() is None
        with trio.move_on_after(0.1) as scope:
            async with lock.hold():
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert await lock.holder() is None
        with trio.move_on_after(0.1):
            async with lock.hold(), recipes.Lock(node, "l").hold():
                pytest.fail("two at a time")
        lease = await recipes.Lock(await quorum.leader(), "l").try_acquire()
        assert lease is not None, "whoever gave up leaves no place in line"

    on_three_nodes(test, tmp_path)


def test_an_election_goes_on_without_the_leader(tmp_path):
    async def test(quorum):
        seen, led = [], []
        over = trio.Event()

        async def campaign(number, scope):
            with scope:
                async with recipes.Election(quorum.nodes[number], "boss", lease_ms=300, info=number).campaign() as term:
                    led.append((number, term.token))
                    await trio.sleep_forever()

        async def observe(node):
            async for holder in recipes.Election(node, "boss").observe():
                seen.append(holder and holder.info)
                if len([one for one in seen if one]) == 2:
                    over.set()
                    return

        scopes = {number: trio.CancelScope() for number in (1, 2)}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(observe, quorum.nodes[3])
            await trio.sleep(0.05)
            for number, scope in scopes.items():
                nursery.start_soon(campaign, number, scope)
            while not led:
                await trio.sleep(0.01)
            boss = led[0][0]
            assert (await recipes.Election(quorum.nodes[3], "boss").leader()).info == boss
            scopes[boss].cancel()
            await over.wait()
            while len(led) < 2:
                await trio.sleep(0.01)
            scopes[3 - boss].cancel()
        assert [number for number, _ in led] == [boss, 3 - boss]
        assert led[0][1] < led[1][1]
        assert [info for info in seen if info] == [boss, 3 - boss]

    on_three_nodes(test, tmp_path)


# --- faults -----------------------------------------------------------------------------------------------------------


async def _use(quorum, number, recorder, over, kind):
    """One client on one node: calls, one after the other, as long as it goes."""
    process, count = f"{number}-{kind}", 0
    while not over.is_set():
        node = quorum.nodes[number]
        count += 1
        if kind == "dict":
            key = f"k{count % 2}"
            numbers = recipes.Dict(node, "numbers")
            choice = (count * 7 + number) % 3
            if choice == 0:
                with recorder.operation("set", key, f"{process}-{count}", process=process) as found:
                    await numbers.set(key, f"{process}-{count}")
                    found.append(None)
            elif choice == 1:
                with recorder.operation("get", key, process=process) as found:
                    found.append(await numbers.get(key))
            else:
                expected = numbers.peek(key)
                with recorder.operation("cas", key, expected, f"{process}-{count}", process=process) as found:
                    found.append(await numbers.compare_and_set(key, expected, f"{process}-{count}"))
        elif kind == "counter":
            counter = recipes.Counter(node, "count")
            if count % 3:
                with recorder.operation("add", 1, process=process) as found:
                    found.append(await counter.add())
            else:
                with recorder.operation("get", process=process) as found:
                    found.append(await counter.get())
        else:
            queue = recipes.Queue(node, "queue")
            if count % 2:
                with recorder.operation("put", f"{process}-{count}", process=process) as found:
                    await queue.put(f"{process}-{count}")
                    found.append(None)
            else:
                with recorder.operation("get", process=process) as found:
                    found.append(await queue.get_nowait())
        await trio.sleep(0.003)


STEPS = {"dict": (register_step, None), "counter": (counter_step, 0), "queue": (queue_step, ())}


@pytest.mark.parametrize("kind", STEPS)
def test_histories_are_linearizable_through_leader_changes(tmp_path, kind):
    recorder = Recorder()

    async def enough(count):
        wanted = len(recorder.operations) + count
        while len(recorder.operations) < wanted:
            await trio.sleep(0.01)

    async def test(quorum):
        over = trio.Event()
        async with trio.open_nursery() as nursery:
            for number in quorum.ids:
                nursery.start_soon(_use, quorum, number, recorder, over, kind)
            await enough(20)
            leader = await quorum.leader()
            epoch = leader.status().epoch
            quorum.cut_off(leader.key.id)  # goes on believing it leads, with commands in flight
            await enough(20)
            quorum.network.heal()
            leader = await quorum.leader()
            assert leader.status().epoch > epoch
            await leader.snapshot_now()
            await leader.transfer_leadership(next(one for one in quorum.ids if one != leader.key.id))
            await enough(20)
            over.set()
            await quorum.leader()
        await settle(quorum)
        snapshots = {tuple(written(machine)) for machine in quorum.machines.values()}
        assert len(snapshots) == 1

    on_three_nodes(test, tmp_path)
    step, initial = STEPS[kind]
    partition = (lambda operation: operation.arguments[0]) if kind == "dict" else None
    check(recorder.operations, step, initial, partition=partition)


async def settle(quorum):
    """Until every node has applied what the leader has."""
    leader = await quorum.leader()
    end = await leader.read_barrier()
    for node in quorum.nodes.values():
        await node.wait_applied(end)
    assert len({node.status().applied_offset for node in quorum.nodes.values()}) == 1


def written(machine):
    class Sink(list):
        append = list.extend

    sink = Sink()
    machine.snapshot(sink)
    return sink


def test_state_survives_the_end_of_every_process(tmp_path):
    """From snapshots and logs, sessions included: a number applied before is not applied again."""
    states = []

    async def before(quorum):
        leader, follower = await both(quorum)
        await recipes.Dict(follower, "d").update({f"k{number}": number for number in range(50)})
        await recipes.Queue(leader, "q").put("first")
        await leader.snapshot_now()
        await recipes.Queue(follower, "q").put("second")
        await recipes.Counter(leader, "c").add(7)
        await recipes.Lock(leader, "l", lease_ms=600_000, info="me").acquire()
        await settle(quorum)
        states.append(written(quorum.machines[1]))

    async def after(quorum):
        leader = await quorum.leader()
        assert await recipes.Dict(leader, "d").items() == {f"k{number}": number for number in range(50)}
        assert await recipes.Counter(leader, "c").get() == 7
        assert recipes.Queue(leader, "q").peek_items() == ["first", "second"]
        assert (await recipes.Lock(leader, "l").holder()).info == "me"
        assert await recipes.Lock(leader, "l").try_acquire() is None

    on_three_nodes(before, tmp_path)
    on_three_nodes(after, tmp_path)


def test_recipes_need_their_machine(tmp_path):
    class Other(StateMachine):
        def apply(self, batch):
            return None

        def snapshot(self, sink):
            sink.append([b"x"])

        def restore(self, values):
            pass

    async def main():
        async with memory_quorum(tmp_path, Other, size=1) as quorum:
            with pytest.raises(LocalError, match="RecipeMachine, not Other"):
                recipes.Dict(quorum.nodes[1], "d")

    trio.run(main)
