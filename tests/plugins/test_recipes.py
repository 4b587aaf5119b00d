"""Recipes on three nodes in one process: what programs hold, leader changes, restarts, and linearizable histories."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
import trio
from linearizability import Recorder
from machines import Values
from recipe_quorum import both, on_three_nodes
from recipe_users import STEPS, Users, check_history, trouble
from trio.testing import MockClock

from kraftcore.errors import ConflictError, KraftError, LeaseLostError, LocalError, NodeStoppedError
from kraftcore.plugins import recipes
from kraftcore.plugins.recipes.sequence_states import QueueState
from kraftcore.testing import Cluster


def test_what_one_node_does_the_others_see():
    async def test(cluster):
        leader, follower = await both(cluster)
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
            assert await one.compare_and_set("nobody", None, None)
            assert await one.compare_and_set("nobody", None, 1)
            assert not await one.compare_and_set("nobody", None, 2)
            assert await other.pop("nobody") == 1
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
        for call in (
            lambda: one.set(1, "a"),
            lambda: one.get(1),
            lambda: one.delete_if(1, 2),
            lambda: one.update({"a": 1, 1: 2}),
        ):
            with pytest.raises(LocalError, match=f"the keys of dict '{one.name}' are text, and 1 is int"):
                await call()
        assert await count.add() == 5  # the refused ones did no harm

    on_three_nodes(test)


def test_transactions_over_several_objects():
    async def test(cluster):
        for node in await both(cluster):
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
        small = recipes.Queue(node, "small", max_size=1)
        await small.put("first")
        with pytest.raises(ConflictError, match="queue 'small' is full"):
            await recipes.Transaction(node).add(moved, 1).put(small, "lost").commit()
        assert [await moved.get(), small.peek_items()] == [0, ["first"]]
        with pytest.raises(LocalError, match="has operations"):
            await recipes.Transaction(node).commit()
        for wrong in (recipes.List(node, "jobs"), "jobs"):
            with pytest.raises(LocalError, match="put of a transaction takes a queue or priority queue, and .*jobs"):
                recipes.Transaction(node).put(wrong, "x")
        with pytest.raises(LocalError, match="was given priority 5 for <Queue 'jobs', 0 here>, which has none"):
            recipes.Transaction(node).put(jobs, "x", 5)
        urgent = recipes.PriorityQueue(node, "urgent", max_size=3)
        step = recipes.Transaction(node).put(urgent, "later", 7).put(urgent, "soon").put(urgent, "now", priority=-1)
        assert await step.commit() == [True, True, True]
        assert urgent.peek_items() == ["now", "soon", "later"]
        with pytest.raises(ConflictError, match="priority queue 'urgent' is full: it holds 3 items"):
            await recipes.Transaction(node).add(moved, 1).put(urgent, "lost").commit()
        assert await moved.get() == 0

    on_three_nodes(test)


def test_a_watch_tells_every_change_in_order():
    async def test(cluster):
        leader, follower = await both(cluster)
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
            nursery.start_soon(cluster.stop, follower)
            assert [change async for change in slow] == []

    on_three_nodes(test)


def test_a_queue_wakes_who_waits():
    async def test(cluster):
        leader, follower = await both(cluster)
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
            nursery.start_soon(cluster.stop, follower)
            with pytest.raises(NodeStoppedError):
                await queue.get()

    on_three_nodes(test)


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_at_a_time():
    async def test(cluster):
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
                nursery.start_soon(work, cluster.nodes[number % 3 + 1], number)
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 9
        assert await recipes.Lock(cluster.nodes[1], "l").holder() is None

    on_three_nodes(test)


def test_a_lock_goes_on_at_once_though_the_answer_that_it_is_held_comes_late(kraft_run):
    """The lock may be ours by the time that a forwarded command's result, that others hold it, is here."""

    async def main():
        async with Cluster(3, recipes.RecipeMachine) as cluster:
            await cluster.wait_leader()
            cluster.network.delay_ms = (0.2, 3)

            async def take(node):
                for _ in range(20):
                    async with recipes.Lock(node, "l", lease_ms=600_000).hold():
                        pass

            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for node in (*cluster.nodes.values(), *cluster.followers):
                    nursery.start_soon(take, node)
            assert trio.current_time() - began < 60  # a third of a lease is waited for at most: 200 seconds

    kraft_run(main)


def test_a_try_that_was_cancelled_leaves_no_lease_behind():
    async def test(cluster):
        leader, follower = await both(cluster)
        await recipes.Lock(follower, "l").holder()  # the session is open
        for number in range(20):
            lock = recipes.Lock(follower, f"l {number}", lease_ms=60_000)
            cluster.network.delay_ms = 5
            with trio.move_on_after(number / 1000):
                lease = await lock.try_acquire()
                await lease.release()
            cluster.network.delay_ms = 0
            await leader.read_barrier()
            assert await recipes.Lock(leader, f"l {number}").holder() is None

    on_three_nodes(test)


def test_leases_are_renewed_taken_over_and_fenced():
    async def test(cluster):
        leader, follower = await both(cluster)
        other = next(node for node in cluster.nodes.values() if node not in (leader, follower))
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

    on_three_nodes(test)


def test_a_holder_that_is_cut_off_learns_it_in_time():
    async def test(cluster):
        leader, follower = await both(cluster)
        lost_at, taken_at = [], []

        async def hold():
            with pytest.raises(LeaseLostError, match="was lost"):
                async with recipes.Lock(leader, "l", lease_ms=1_500).hold() as lease:
                    cluster.partition(leader)
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
        cluster.heal()

    on_three_nodes(test)


def test_what_a_locked_block_raises_comes_out_as_it_is():
    async def test(cluster):
        node = (await both(cluster))[1]
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
        lease = await recipes.Lock(await cluster.wait_leader(), "l").try_acquire()
        assert lease is not None, "whoever gave up leaves no place in line"

    on_three_nodes(test)


def test_a_block_that_releases_its_lease_itself_goes_on():
    async def test(cluster):
        leader, follower = await both(cluster)
        async with recipes.Lock(follower, "l", lease_ms=300).hold() as lease:
            assert await lease.release()
            await trio.sleep(1)
            assert not lease.is_valid
            async with recipes.Lock(leader, "l").hold():
                pass

    on_three_nodes(test)


def test_an_election_goes_on_without_the_leader():
    async def test(cluster):
        seen, led = [], []
        over = trio.Event()

        async def campaign(number, scope):
            with scope:
                async with recipes.Election(
                    cluster.nodes[number], "boss", lease_ms=300, info=number
                ).campaign() as term:
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
            nursery.start_soon(observe, cluster.nodes[3])
            await trio.sleep(0.05)
            for number, scope in scopes.items():
                nursery.start_soon(campaign, number, scope)
            while not led:
                await trio.sleep(0.01)
            boss = led[0][0]
            assert (await recipes.Election(cluster.nodes[3], "boss").leader()).info == boss
            scopes[boss].cancel()
            await over.wait()
            while len(led) < 2:
                await trio.sleep(0.01)
            scopes[3 - boss].cancel()
        assert [number for number, _ in led] == [boss, 3 - boss]
        assert led[0][1] < led[1][1]
        assert [info for info in seen if info] == [boss, 3 - boss]

    on_three_nodes(test)


def test_a_group_has_the_programs_that_are_alive():
    async def test(cluster):
        leader, follower = await both(cluster)
        other = next(node for node in cluster.followers if node is not follower)
        seen = []

        def group(node, info=None):
            return recipes.Members(node, "group", lease_ms=1_000, info=info)

        async def observe():
            async for members in group(other).observe():
                seen.append([member.info for member in members])

        async def die():
            async with group(follower, "second").join():
                await trio.sleep(5)  # longer than its lease, which is renewed
                await cluster.kill(follower)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(observe)
            await trio.sleep(0.5)
            async with group(leader, "first").join() as member:
                nursery.start_soon(die)
                await trio.sleep(4)
                first, second = await group(other).present()
                assert (first, second.info) == (recipes.Holder("first", member.token), "second")
                assert second.token > first.token
                assert group(other).peek_present() == [first, second]
                await trio.sleep(4)
                joined = recipes.Counter(leader, "joined")
                await recipes.Transaction(leader).check_lock(group(leader), first.token).add(joined).commit()
                with pytest.raises(ConflictError, match="the members 'group' is not held with token"):
                    await recipes.Transaction(leader).check_lock(group(leader), second.token).add(joined).commit()
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        assert seen == [[], ["first"], ["first", "second"], ["first"], []]

    on_three_nodes(test)


def test_an_election_knows_who_stands():
    async def test(cluster):
        boss = [recipes.Election(node, "boss", info=number) for number, node in cluster.nodes.items()]
        assert await boss[0].contenders() == []
        async with boss[1].campaign(), trio.open_nursery() as nursery:
            for one in (boss[2], boss[0]):
                nursery.start_soon(one.run, leave_soon)
                await trio.sleep(0.1)
            assert await boss[2].contenders() == [2, 3, 1]
            nursery.cancel_scope.cancel()
        assert await boss[1].contenders() == []

    async def leave_soon(term):
        pytest.fail("another one leads")

    on_three_nodes(test)


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("seed", range(2))
def test_histories_are_linearizable_through_kills_and_partitions(kind, seed):
    histories = []

    async def test(cluster):
        users = Users(cluster, kind)
        histories.append(users.recorder.operations)
        async with trio.open_nursery() as nursery:
            for number in cluster.nodes:
                nursery.start_soon(users.run, number)
            await trouble(cluster, users)
            users.is_over = True
        await cluster.assert_all_equal()
        users.check_tokens()

    on_three_nodes(test, delay_ms=(0.2, 3), seed=seed)
    (history,) = histories
    check_history(kind, history)
    assert len({operation.process for operation in history}) == 3


def lost(state, place, item):
    """An item does not come back."""


def twice(state, place, item, put_back=QueueState.put_back):
    """An item comes back as two."""
    for _ in range(2):
        put_back(state, place, item)


@pytest.mark.parametrize("fault", [lost, twice])
def test_the_checker_sees_items_that_do_not_come_back_or_come_twice(fault, monkeypatch):
    monkeypatch.setattr(QueueState, "put_back", fault)
    with pytest.raises(AssertionError, match="not linearizable"):
        test_histories_are_linearizable_through_kills_and_partitions("taking", 0)


def leases_overlap(skew_ms, monkeypatch):
    """Whether a lease of 1 s was still valid when its lock was granted anew, by a leader with another clock."""
    skews = iter((-skew_ms / 2, 0.0, skew_ms / 2))
    skew, found = 0.0, []
    monkeypatch.setattr("kraftcore.node.clock.time", SimpleNamespace(time=lambda: 1_790_000_000 + skew / 1000))

    def plugins():  # of the node that starts now
        nonlocal skew
        skew = next(skews)
        return ()

    async def test(cluster):
        await lead(cluster, 1)  # whose clock is behind
        lock, written = recipes.Lock(cluster.nodes[2], "l", lease_ms=1000), recipes.Counter(cluster.nodes[2], "c")
        first = await lock.acquire()
        await lead(cluster, 3)  # whose clock is ahead
        while (second := await lock.try_acquire()) is None:
            await trio.sleep(0.001)
        found.append(first.is_valid)
        assert second.token > first.token
        with pytest.raises(ConflictError):  # whatever the clocks say, the token is of no use any more
            await recipes.Transaction(cluster.nodes[2]).check_lock(lock, first.token).add(written).commit()

    on_three_nodes(test, plugins=plugins)
    return found[0]


async def lead(cluster, number):
    """Have this node lead."""
    while (leader := await cluster.wait_leader()).key.id != number:
        with suppress(KraftError):
            await leader.transfer_leadership(number)
        await trio.sleep(0.05)


def test_leases_do_not_overlap_while_clocks_differ_by_less_than_their_tenth(monkeypatch):
    assert not leases_overlap(90, monkeypatch)


def test_leases_are_seen_to_overlap_when_clocks_differ_by_more(monkeypatch):
    """So the verdict notices it; and the tokens fence all the same."""
    assert leases_overlap(1500, monkeypatch)


def test_the_checker_sees_a_stale_read():
    """What a leader that is cut off finds in its own replica is not what the others committed meanwhile."""
    recorder = Recorder()

    async def test(cluster):
        old, _ = await both(cluster)
        await recipes.Dict(old, "numbers").set("k0", "before")
        cluster.partition(old)
        new = await cluster.wait_leader()
        while new is old:
            await trio.sleep(0.01)
            new = await cluster.wait_leader()
        with recorder.operation("set", "k0", "after") as found:
            await recipes.Dict(new, "numbers").set("k0", "after")
            found.append(None)
        with recorder.operation("get", "k0") as found:
            found.append(recipes.Dict(old, "numbers").peek("k0"))

    on_three_nodes(test)
    with pytest.raises(AssertionError, match=r"not linearizable, part 'k0'"):
        check_history("dict", recorder.operations)


def test_state_survives_the_end_of_every_process():
    """From snapshots and logs, sessions included: a number applied before is not applied again."""

    async def test(cluster):
        leader, follower = await both(cluster)
        await recipes.Dict(follower, "d").update({f"k{number}": number for number in range(50)})
        await recipes.Queue(leader, "q").put("first")
        await leader.snapshot_now()
        await recipes.Queue(follower, "q").put("second")
        await recipes.Counter(leader, "c").add(7)
        await recipes.Lock(leader, "l", lease_ms=600_000, info="me").acquire()
        for node_id in list(cluster.nodes):
            await cluster.kill(node_id)
        for node_id in (1, 2, 3):
            await cluster.start(node_id)
        leader = await cluster.wait_leader()
        assert await recipes.Dict(leader, "d").items() == {f"k{number}": number for number in range(50)}
        assert await recipes.Counter(leader, "c").get() == 7
        assert recipes.Queue(leader, "q").peek_items() == ["first", "second"]
        assert (await recipes.Lock(leader, "l").holder()).info == "me"
        assert await recipes.Lock(leader, "l").try_acquire() is None
        await cluster.assert_all_equal()

    on_three_nodes(test)


def test_recipes_need_their_machine(kraft_run):
    async def main():
        async with Cluster(1, Values) as cluster:
            with pytest.raises(LocalError, match="RecipeMachine, not Values"):
                recipes.Dict(cluster.nodes[1], "d")

    kraft_run(main)


def test_a_lease_that_was_released_is_not_valid_by_a_renewal_under_way():
    async def test(cluster):
        leader, _ = await both(cluster)
        lease = await recipes.Lock(leader, "door").acquire()
        lost = []

        async def renew():
            try:
                await lease.renew()
            except LeaseLostError as error:
                lost.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(renew)
            await trio.lowlevel.checkpoint()  # it is under way
            assert await lease.release()
        assert lost
        assert not lease.is_valid

    on_three_nodes(test, delay_ms=5)


def test_nothing_is_kept_of_a_node_that_ended():
    async def main():
        async with Cluster(1, recipes.RecipeMachine) as cluster:
            node = await cluster.wait_leader()
            await recipes.Dict(node, "settings").set("a", 1)
            return weakref.ref(node)

    node = trio.run(main, clock=MockClock(autojump_threshold=0))
    gc.collect()
    assert node() is None


def test_values_that_nobody_could_read_are_refused():
    async def test(cluster):
        leader, _ = await both(cluster)
        settings, queue = recipes.Dict(leader, "settings"), recipes.Queue(leader, "queue")
        for value in ({(1, 2): 3}, [{"a": {("b",): 1}}], {(): None}):
            with pytest.raises(LocalError, match="cannot read this value again"):
                await settings.set("a", value)
            with pytest.raises(LocalError, match="cannot read this value again"):
                await queue.put(value)
        assert await settings.items() == {}
        await settings.set("a", {1: [None, {b"b": 2.5}]})
        assert await settings.get("a") == {1: [None, {b"b": 2.5}]}

    on_three_nodes(test)


def test_all_readers_of_a_watch_are_woken():
    async def test(cluster):
        leader, _ = await both(cluster)
        watch = recipes.Dict(leader, "settings").watch()

        async def read():
            async for _ in watch:
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(read)
            await trio.sleep(1)
            watch.close()

    on_three_nodes(test)


def test_what_a_program_holds_says_what_it_is():
    async def test(cluster):
        node = await cluster.wait_leader()
        made = [kind(node, "things") for kind in (recipes.Dict, recipes.Counter, recipes.Queue, recipes.Set)]
        assert list(map(repr, made)) == [f"<{kind} 'things', 0 here>" for kind in ("Dict", "Counter", "Queue", "Set")]
        await made[0].update({"a": 1, "b": "secret"})
        assert repr(made[0]) == "<Dict 'things', 2 here>"
        lock = recipes.Election(node, "job")
        assert repr(lock) == "<Election 'job'>"
        lease = await lock.acquire()
        assert repr(lease) == "<Lease of 'job', token 1, 9.0 s left>"
        await lease.release()
        assert repr(lease) == "<Lease of 'job', token 1, ended>"
        for other in (object(), cluster):
            with pytest.raises(
                LocalError, match=r"take a node of kraftcore, and were given .*: give them what kraftcore\.open_node"
            ):
                recipes.Dict(other, "things")

    on_three_nodes(test)
