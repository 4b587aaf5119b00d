"""Lists, priority queues, semaphores, barriers, elections with a callback, and schedules, on three nodes."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from threading import Thread
from typing import Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
import trio
from recipe_quorum import all_items, both, interrupted_at_each_step, on_three_nodes, take_away

from kraftcore import Node, recipes
from kraftcore.errors import ConflictError, LeaseLostError, LocalError
from kraftcore.plugins.recipes.client import Client
from kraftcore.plugins.recipes.codec import pack, unpack
from kraftcore.plugins.recipes.values import Values


def test_a_list_is_the_same_everywhere():
    async def test(cluster):
        leader, follower = await both(cluster)
        one, other = recipes.List(leader, "words"), recipes.List(follower, "words")
        assert [await one.append("b"), await other.extend(["c", "d"]), await one.insert(0, "a")] == [1, 3, 4]
        assert await other.items() == ["a", "b", "c", "d"]
        assert [await one.set(-1, "D"), await one.compare_and_set(1, "b", "B"), await one.compare_and_set(9, 1, 2)] == [
            "d",
            True,
            False,
        ]
        assert [await other.pop(), await other.pop(0), await other.remove("c"), await other.remove("c")] == [
            "D",
            "a",
            True,
            False,
        ]
        await one.size()
        assert (len(one), one[0], list(one), one.peek_items()) == (1, "B", ["B"], ["B"])
        with pytest.raises(LocalError, match="list 'words' has 1 items, and none at index 5"):
            await one.set(5, "x")
        with pytest.raises(IndexError):
            one[1]
        assert [await one.clear(), await one.pop()] == [1, None]

    on_three_nodes(test)


def test_a_priority_queue_gives_the_smallest_first():
    async def test(cluster):
        leader, follower = await both(cluster)
        queue, other = recipes.PriorityQueue(leader, "jobs", max_size=4), recipes.PriorityQueue(follower, "jobs")
        for item, priority in (("late", 7), ("first", -1), ("second", 0), ("third", 0)):
            assert await queue.put(item, priority)
        assert not await queue.put("one too many")
        assert await other.size() == len(other) == 4
        assert other.peek_items() == ["first", "second", "third", "late"]
        assert [await other.get(), await queue.get(), await other.get_nowait()] == ["first", "second", "third"]
        await queue.put("urgent", -5)
        item, _ = await recipes.Transaction(follower).get(other).add(recipes.Counter(follower, "taken")).commit()
        assert item == "urgent"
        with pytest.raises(ConflictError):
            await recipes.Transaction(leader).get(queue).check_count(recipes.Counter(leader, "taken"), 5).commit()
        assert [await queue.clear(), await queue.get_nowait("none")] == [1, "none"]
        with pytest.raises(TimeoutError, match="no item came to priority queue 'jobs' within 0.5 s"):
            await queue.get(0.5)

    on_three_nodes(test)


def test_a_semaphore_has_so_many_holders():
    async def test(cluster):
        inside, most = set(), 0

        async def work(number):
            nonlocal most
            node = cluster.nodes[number % 3 + 1]
            async with recipes.Semaphore(node, "places", 2, lease_ms=10_000, info=number).hold() as lease:
                inside.add(number)
                most = max(most, len(inside))
                assert len(inside) <= 2
                await trio.sleep(0.05)
                assert lease.is_valid
                inside.remove(number)

        async with trio.open_nursery() as nursery:
            for number in range(7):
                nursery.start_soon(work, number)
        assert most == 2
        leader, follower = await both(cluster)
        places = recipes.Semaphore(leader, "places", 2, lease_ms=60_000, info="x")
        first, second = await places.acquire(), await places.try_acquire()
        assert await places.try_acquire() is None
        assert {holder.token for holder in await recipes.Semaphore(follower, "places", 2).holders()} == {
            first.token,
            second.token,
        }
        with pytest.raises(TimeoutError, match="the semaphore 'places' was held by others for 0.2 s"):
            await places.acquire(0.2)
        with pytest.raises(TimeoutError, match="the semaphore 'places' was held by others for 0.1 s"):
            async with places.hold(0.1):
                pytest.fail("all places are taken")
        taken = recipes.Dict(leader, "taken")
        await recipes.Transaction(leader).check_lock(places, second.token).set(taken, "k", 1).commit()
        assert await first.release()
        with pytest.raises(ConflictError, match="the semaphore 'places' is not held with token"):
            await recipes.Transaction(leader).check_lock(places, first.token).set(taken, "k", 2).commit()
        # Who died is dropped when the lease's time is over.
        third = await recipes.Semaphore(follower, "places", 2, lease_ms=200).acquire()
        fourth = await recipes.Semaphore(leader, "places", 2).acquire()
        assert fourth.token > third.token

    on_three_nodes(test)


def test_programs_wait_for_each_other_at_a_barrier():
    async def test(cluster):
        through = []

        async def come(number, times):
            barrier = recipes.Barrier(cluster.nodes[number], "start", 3)
            for time in range(times):
                await trio.sleep(number / 100)
                await barrier.wait()
                through.append((time, number))

        async with trio.open_nursery() as nursery:
            for number in cluster.nodes:
                nursery.start_soon(come, number, 4)
        assert [time for time, _ in through] == sorted(time for time, _ in through)
        assert len(through) == 12
        leader, follower = await both(cluster)
        with pytest.raises(TimeoutError, match="barrier 'start' still waits for programs after 0.3 s"):
            await recipes.Barrier(leader, "start", 3).wait(0.3)
        pair = partial(recipes.Barrier, name="pair", parties=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair(leader).wait)
            await pair(follower).wait()

    on_three_nodes(test)


def test_an_election_calls_back_and_again_after_a_lost_lease():
    async def test(cluster):
        leader, _ = await both(cluster)
        terms = []

        async def lead(term):
            terms.append(term.token)
            if len(terms) == 1:
                await take_away(leader, "boss")
                await trio.sleep_forever()
            if len(terms) == 2:
                raise LeaseLostError("another lock's")
            return "done"

        boss = recipes.Election(leader, "boss", lease_ms=300)
        with pytest.raises(LeaseLostError, match="another lock's"):
            await boss.run(lead)
        assert await boss.run(lead) == "done"
        assert terms == sorted(set(terms))
        assert len(terms) == 3

    on_three_nodes(test)


def test_a_schedule_runs_once_each_time_wherever_it_runs():
    async def test(cluster):
        runs = []

        async def run(node, scope):
            async def note():
                runs.append((trio.current_time(), node.key.id))

            with scope:
                await recipes.Scheduler(node, "hourly", every_s=4, lease_ms=500).run_each(note)

        scopes = {number: trio.CancelScope() for number in cluster.nodes}
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number, node in cluster.nodes.items():
                nursery.start_soon(run, node, scopes[number])
            await trio.sleep(10)
            scopes[runs[0][1]].cancel()
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
        assert 5 <= len(runs) <= 6
        assert runs[0][0] - begun < 1
        for (earlier, _), (later, _) in pairwise(runs):
            assert later - earlier > 3.9
        assert len({number for _, number in runs}) == 2
        with pytest.raises(LocalError, match="give a number of seconds larger than 0"):
            recipes.Scheduler(cluster.nodes[1], "never", every_s=0)

    on_three_nodes(test)


def test_what_cannot_be_right_is_refused_when_the_object_is_made():
    async def test(cluster):
        node = cluster.nodes[1]
        for wrong, text in (
            (lambda: recipes.Dict(node, 3), "the name of a dict is text, and 3 is int"),
            (lambda: recipes.Lock(node, "x", lease_ms=-1), "the lease_ms of lock 'x' is -1: give an int, 1 or more"),
            (lambda: recipes.Lock(node, "x", lease_ms=0.5), "the lease_ms of lock 'x' is 0.5: give an int, 1 or more"),
            (lambda: recipes.Semaphore(node, "x", 0), "the permits of semaphore 'x' is 0: give an int, 1 or more"),
            (lambda: recipes.Barrier(node, "x", "2"), "the parties of barrier 'x' is '2': give an int, 1 or more"),
            (lambda: recipes.Queue(node, "x", max_size=-1), "the max_size of queue 'x' is -1: give an int, 0 or more"),
            (
                lambda: recipes.List(node, "x")[:2],
                r"list 'x' gives one item at a time: take the slice of peek_items\(\)",
            ),
        ):
            with pytest.raises(LocalError, match=text):
                wrong()

    on_three_nodes(test)


# --- models -----------------------------------------------------------------------------------------------------------


class Settings(pydantic.BaseModel):
    colour: str
    size: int = 3


def test_values_of_a_model():
    async def test(cluster):
        leader, follower = await both(cluster)
        settings = recipes.Dict(leader, "settings", model=Settings)
        await settings.set("web", Settings(colour="blue"))
        assert await recipes.Dict(follower, "settings", model=Settings).get("web") == Settings(colour="blue", size=3)
        assert await recipes.Dict(follower, "settings").get("web") == {"colour": "blue", "size": 3}
        with pytest.raises(LocalError, match="dict 'settings' holds Settings, and 3 is int"):
            await settings.set("web", 3)
        await recipes.Dict(follower, "settings").set("db", {"shape": "round"})
        with pytest.raises(LocalError, match="dict 'settings' holds a value that is no Settings"):
            await settings.get("db")
        jobs = recipes.Queue(leader, "jobs", model=Settings)
        await recipes.Queue(leader, "jobs").put("no settings")
        with pytest.raises(LocalError, match="queue 'jobs' holds a value that is no Settings"):
            await jobs.get()
        assert await recipes.Queue(follower, "jobs").get_nowait() == "no settings"  # nobody lost it

    on_three_nodes(test)


class Strict(pydantic.BaseModel, extra="forbid", strict=True):
    at: datetime
    id: UUID
    kind: Literal["a"] = pydantic.Field(default="a", alias="type")
    parts: tuple[int, ...] = ()

    @pydantic.computed_field
    @property
    def count(self) -> int:
        return len(self.parts)


class Plain(msgspec.Struct, frozen=True):
    at: datetime
    id: UUID
    data: bytes
    inner: tuple[int, ...] = ()


@pytest.mark.parametrize(
    "value",
    [
        Strict(at=datetime(2026, 1, 2, tzinfo=UTC), id=UUID(int=5), parts=(1, 2)),
        Plain(at=datetime(2026, 1, 2, tzinfo=UTC), id=UUID(int=5), data=b"\xff", inner=(1, 2)),
    ],
    ids=["pydantic", "msgspec"],
)
def test_a_model_comes_back_as_it_was(value):
    values = Values("dict 'd'", type(value))
    assert values.unpack(values.pack(value)) == value
    assert isinstance(unpack(values.pack(value))["at"], str)
    with pytest.raises(LocalError, match=f"dict 'd' holds a value that is no {type(value).__name__}: "):
        values.unpack(pack({"at": 5}))


def test_a_value_of_a_model_that_cannot_be_kept_is_named():
    class Loose(pydantic.BaseModel, arbitrary_types_allowed=True):
        thing: object

    with pytest.raises(LocalError, match="dict 'd' cannot hold Loose"):
        Values("dict 'd'", Loose).pack(Loose(thing=object()))

    class Raw(pydantic.BaseModel):
        data: bytes

    with pytest.raises(LocalError, match="dict 'd' cannot hold Raw.*not UTF-8: give the model ser_json_bytes='base64'"):
        Values("dict 'd'", Raw).pack(Raw(data=b"\xff"))

    class Advised(Raw, ser_json_bytes="base64", val_json_bytes="base64"):
        pass

    values = Values("dict 'd'", Advised)
    assert values.unpack(values.pack(Advised(data=b"\xff"))) == Advised(data=b"\xff")


def test_a_model_of_no_known_kind_is_refused():
    @dataclasses.dataclass
    class Plain:
        colour: str

    async def test(cluster):
        with pytest.raises(LocalError, match="the model of dict 'settings' is .*Plain"):
            recipes.Dict(cluster.nodes[1], "settings", model=Plain)

    on_three_nodes(test)


# --- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [recipes.Queue, recipes.PriorityQueue])
def test_a_get_cancelled_at_each_step_loses_no_item_and_takes_none_twice(kind):
    async def test(cluster):
        leader, follower = await both(cluster)
        jobs, taken, put = kind(follower, "jobs"), [], 0

        async def check(is_over, item):
            nonlocal put
            if is_over:
                taken.append(item)
            left = await all_items(kind(leader, "jobs"))
            assert sorted([*taken, *left]) == list(range(put)), "at once: the cancelled call has seen to it"
            assert left == sorted(left), "it is back at its place"
            if len(left) < 2:
                put += 1
                await jobs.put(put - 1)

        await check(False, None)
        await check(False, None)
        await interrupted_at_each_step(jobs.get, check)
        await jobs.clear()
        taken[:] = range(put)

        async def wait_for_one():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(put_later)
                return await jobs.get()

        async def put_later():
            nonlocal put
            with trio.CancelScope(shield=True):
                await trio.sleep(0.02)
                put += 1
                await kind(leader, "jobs").put(put - 1)

        async def check_waited(is_over, item):
            nonlocal taken
            left = await all_items(jobs)
            assert sorted([*taken, *([item] if is_over else []), *left]) == list(range(put))
            await jobs.clear()
            taken = list(range(put))

        await interrupted_at_each_step(wait_for_one, check_waited)

    on_three_nodes(test, delay_ms=2)


def test_what_is_held_is_free_again_wherever_its_holder_is_cancelled():
    async def test(cluster):
        leader, follower = await both(cluster)
        door = recipes.Lock(follower, "door", lease_ms=60_000)
        places = recipes.Semaphore(follower, "places", 2, lease_ms=60_000)
        boss = recipes.Election(follower, "boss", lease_ms=60_000)

        async def a_while(held):
            async with held.hold() as lease:
                await trio.sleep(0.001)
                assert lease.is_valid

        async def lead(_):
            await trio.sleep(0.001)
            return "led"

        async def of_two():
            async with door.hold():
                await a_while(places)

        async def check(is_over, _):
            for lock in (recipes.Lock(leader, "door"), recipes.Election(leader, "boss")):
                assert await lock.holder() is None
                lease = await lock.try_acquire()
                assert lease is not None, "nobody left a place in line"
                await lease.release()
            assert await recipes.Semaphore(leader, "places", 2).holders() == []

        await interrupted_at_each_step(of_two, check)
        await interrupted_at_each_step(partial(boss.run, lead), check)

        async def take_and_give(held=door):
            lease = await held.acquire()
            await lease.release()

        held = await recipes.Lock(leader, "door", lease_ms=600_000).acquire()
        waiting = partial(door.acquire, 0.1)

        async def behind_another():
            with pytest.raises(TimeoutError, match="the lock 'door' was held by others for 0.1 s"):
                await waiting()

        async def check_waiting(is_over, _):
            assert (await recipes.Lock(leader, "door").holder()).token == held.token
            state = leader.state_machine.find("lock", "door")
            assert not state.waiting

        await interrupted_at_each_step(behind_another, check_waiting)
        await held.release()
        await take_and_give()

    on_three_nodes(test, delay_ms=2)


def test_a_barrier_counts_nobody_who_was_cancelled():
    async def test(cluster):
        leader, follower = await both(cluster)
        lonely = recipes.Barrier(follower, "start", 2, lease_ms=60_000)

        async def alone():
            with pytest.raises(TimeoutError):
                await lonely.wait(0.05)

        async def check(is_over, _):
            try:
                await recipes.Barrier(leader, "start", 2).wait(0)
            except TimeoutError:
                return
            raise AssertionError("it was counted")

        await interrupted_at_each_step(alone, check)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lonely.wait)
            await recipes.Barrier(leader, "start", 2).wait()

    on_three_nodes(test, delay_ms=2)


def test_a_transaction_cancelled_at_each_step_is_done_whole_or_not_at_all():
    async def test(cluster):
        leader, follower = await both(cluster)
        jobs, taken = recipes.Queue(follower, "jobs"), recipes.Counter(follower, "taken")
        for number in range(60):
            await recipes.Queue(leader, "jobs").put(number)
        returned = []

        async def take():
            return await recipes.Transaction(follower).get(jobs).add(taken).commit()

        async def check(is_over, found):
            if is_over:
                returned.append(found)
            await trio.sleep(0.1)  # what is under way comes to its end
            count, left = await recipes.Counter(leader, "taken").get(), await all_items(jobs)
            assert left == list(range(count, 60))
            for item, number in returned:
                assert item == number - 1

        await interrupted_at_each_step(take, check)
        assert returned

    on_three_nodes(test, delay_ms=2)


async def leave_it(*_):
    """What a cancelled call does when nothing is put in order."""


def test_the_steps_see_an_item_that_nobody_gives_back(monkeypatch):
    monkeypatch.setattr(Client, "see_to", leave_it)
    with pytest.raises(AssertionError, match="the cancelled call has seen to it"):
        test_a_get_cancelled_at_each_step_loses_no_item_and_takes_none_twice(recipes.Queue)


def test_the_steps_see_a_lock_that_nobody_releases(monkeypatch):
    monkeypatch.setattr("kraftcore.plugins.recipes.leases.for_a_short_time", leave_it)
    monkeypatch.setattr("kraftcore.plugins.recipes.locks.for_a_short_time", leave_it)
    with pytest.raises(AssertionError):
        test_what_is_held_is_free_again_wherever_its_holder_is_cancelled()
    with pytest.raises(AssertionError):
        test_a_barrier_counts_nobody_who_was_cancelled()


def test_what_was_cancelled_takes_no_place_when_it_arrives_late(monkeypatch):
    """On a connection that was slow, after the command that gave the place up; while another command is under way."""

    async def test(cluster):
        leader, follower = await both(cluster)
        door, start = recipes.Lock(follower, "door", lease_ms=60_000), recipes.Barrier(follower, "start", 2)
        assert await door.holder() is None
        late, append = [], Node.append

        async def hold_up(node, value, **arguments):
            if any(verb in value for verb in (b"add", b"acquire", b"arrive")):
                late.append(value)
                await trio.sleep_forever()
            return await append(node, value, **arguments)

        monkeypatch.setattr(Node, "append", hold_up)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recipes.Counter(follower, "count").add)
            for call in (door.acquire, start.wait):
                await trio.sleep(0.01)
                with trio.move_on_after(0.01):
                    await call()
            monkeypatch.undo()
            for value in late[1:]:
                await leader.append(value)
            assert await door.holder() is None
            with pytest.raises(TimeoutError):
                await recipes.Barrier(leader, "start", 2).wait(0)
            nursery.cancel_scope.cancel()
        assert len(late) == 3

    on_three_nodes(test)


def test_a_lease_says_in_any_thread_whether_it_is_valid():
    async def test(cluster):
        lease = await recipes.Lock((await both(cluster))[1], "door", lease_ms=1000).acquire()
        said = []
        for _ in range(2):
            other = Thread(target=lambda: said.append(lease.is_valid))
            other.start()
            other.join()  # not awaited: time would leap
            await trio.sleep(1)
        assert said == [True, False]

    on_three_nodes(test)


def test_calls_that_are_cancelled_by_the_thousand_do_not_hold_each_other_up(monkeypatch):
    """A call that is undone uses a number; were its own in the way, nobody could go on."""
    monkeypatch.setattr("kraftcore.plugins.recipes.client.WINDOW", 8)

    async def test(cluster):
        leader, follower = await both(cluster)
        jobs = recipes.Queue(follower, "jobs")
        for number in range(20):
            await jobs.put(number)
        with trio.move_on_after(0.004):
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(jobs.get)
        left = await all_items(recipes.Queue(leader, "jobs"))
        assert sorted(left) == list(range(20))

    on_three_nodes(test, delay_ms=5)
