"""Items that are taken for a block, on three nodes: finished, given back, taken over from the dead."""

from __future__ import annotations

from contextlib import suppress

import pydantic
import pytest
import trio
from recipe_quorum import all_items, both, interrupted_at_each_step, on_three_nodes, take_away
from recipe_users import Users, trouble

from kraftcore import recipes
from kraftcore.errors import ConflictError, LeaseLostError, LocalError, NodeStoppedError

KINDS = [recipes.Queue, recipes.PriorityQueue]


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_is_finished_with_its_block_and_back_when_the_block_raises(kind):
    async def test(cluster):
        leader, follower = await both(cluster)
        jobs, elsewhere = kind(follower, "jobs", max_size=2), kind(leader, "jobs")
        for number in range(2):
            assert await jobs.put(number)
        async with jobs.take() as taken:
            assert (taken.item, taken.is_valid, taken.lock) == (0, True, jobs)
            assert await elsewhere.size() == 1
            with pytest.raises(RuntimeError, match="the block's own"):
                async with elsewhere.take() as other:
                    assert (other.item, other.token) == (1, taken.token + 1)
                    with pytest.raises(TimeoutError, match="no item came to (priority )?queue 'jobs' within 0.5 s"):
                        async with jobs.take(timeout_s=0.5):
                            pytest.fail("all are taken")
                    raise RuntimeError("the block's own")
            assert await elsewhere.size() == 1
            assert repr(taken) == f"<Taken of 'jobs', token {taken.token}, 8.5 s left>"
        assert not taken.is_valid
        await jobs.put(2)
        await elsewhere.size()
        assert elsewhere.peek_items() == [1, 2]
        async with jobs.take() as taken:
            assert await taken.release()
            assert await jobs.get_nowait() == 1
        async with jobs.take() as taken:
            await taken.finish()
            with pytest.raises(LeaseLostError, match="the lease of an item of (priority )?queue 'jobs' ended"):
                await taken.finish()
        assert await jobs.size() == 0

    on_three_nodes(test)


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_a_dead_taker_is_back_at_its_place_for_those_who_wait(kind):
    async def test(cluster):
        leader, follower = await both(cluster)
        other = next(node for node in cluster.followers if node is not follower)
        for number in range(3):
            await kind(leader, "jobs").put(number)
        got = []

        async def die():
            with pytest.raises(NodeStoppedError):
                async with kind(follower, "jobs", lease_ms=2_000).take() as taken:
                    got.append(taken.item)
                    await trio.sleep(5)  # longer than its lease, which is renewed
                    await cluster.kill(follower)

        async def work(node):
            async with kind(node, "jobs").take() as taken:
                got.append(taken.item)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(die)
            await trio.sleep(1)
            for _ in range(2):
                await work(leader)
            nursery.start_soon(work, other)
            await trio.sleep(3)
            assert got == [0, 1, 2]
        assert got == [0, 1, 2, 0]
        assert await kind(leader, "jobs").size() == 0

    on_three_nodes(test)


def test_a_taker_that_is_cut_off_learns_it_before_another_has_the_item():
    async def test(cluster):
        leader, follower = await both(cluster)
        await recipes.Queue(leader, "jobs").put("only")
        lost_at, taken_at = [], []
        begun = trio.Event()

        async def work():
            with pytest.raises(LeaseLostError, match="was lost"):
                async with recipes.Queue(leader, "jobs", lease_ms=1_500).take() as taken:
                    cluster.partition(leader)
                    begun.set()
                    try:
                        await trio.sleep_forever()
                    finally:
                        assert not taken.is_valid
                        lost_at.append(trio.current_time())

        async def take_over():
            await begun.wait()
            assert await recipes.Queue(follower, "jobs").get() == "only"
            taken_at.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            nursery.start_soon(take_over)
        assert lost_at < taken_at
        cluster.heal()

    on_three_nodes(test)


def test_a_block_that_ends_after_its_lease_says_that_the_item_went_on():
    async def test(cluster):
        leader, follower = await both(cluster)
        jobs, done = recipes.Queue(follower, "jobs", lease_ms=60_000), recipes.List(follower, "done")
        await jobs.put("only")
        with pytest.raises(LeaseLostError, match="the lease of an item of queue 'jobs' ended"):
            async with jobs.take() as taken:
                await take_away(follower, "jobs", "queue")  # as if its time were over by the log
                async with recipes.Queue(leader, "jobs").take() as again:
                    assert again.item == "only"
                    step = recipes.Transaction(follower).finish(taken).insert(recipes.Set(follower, "done"), "first")
                    with pytest.raises(ConflictError, match="the lease of an item of queue 'jobs' ended"):
                        await step.commit()
                    await recipes.Transaction(leader).finish(again).add(recipes.Counter(leader, "done")).commit()
                    assert not again.is_valid
        assert await recipes.Set(leader, "done").members() == []
        assert await recipes.Counter(leader, "done").get() == 1
        assert await jobs.size() == 0
        with pytest.raises(
            LocalError, match="finish of a transaction takes what a take of a queue gave, and was .*only"
        ):
            recipes.Transaction(leader).finish("only")
        assert await done.size() == 0

    on_three_nodes(test)


def test_an_item_that_cannot_be_read_goes_back():
    class Job(pydantic.BaseModel):
        size: int

    async def test(cluster):
        leader, _ = await both(cluster)
        await recipes.Queue(leader, "jobs").put("no job")
        with pytest.raises(LocalError, match="queue 'jobs' holds a value that is no Job"):
            async with recipes.Queue(leader, "jobs", model=Job).take():
                pytest.fail("it is no job")
        assert recipes.Queue(leader, "jobs").peek_items() == ["no job"]

    on_three_nodes(test)


class Workers(Users):
    """Each puts items, and takes items and passes them on, each in one record."""

    async def _passing(self, of, node, process, count):
        jobs, done = of.Queue(node, "jobs", lease_ms=1_500), of.Queue(node, "done")
        if count % 2:
            with self.recorder.operation("put", f"{process}-{count}", process=process) as found:
                found.append(await jobs.put(f"{process}-{count}"))
            return
        with self.recorder.operation("pass", process=process), suppress(TimeoutError, ConflictError, LeaseLostError):
            async with jobs.take(timeout_s=0) as taken:
                await trio.sleep(0.5 if count % 8 == 0 else 0)  # so that faults come meanwhile
                await of.Transaction(node).finish(taken).put(done, taken.item).commit()


def test_what_a_block_changes_with_its_item_is_changed_once_through_kills_and_partitions():
    async def test(cluster):
        users = Workers(cluster, "passing")
        async with trio.open_nursery() as nursery:
            for number in cluster.nodes:
                nursery.start_soon(users.run, number)
            await trouble(cluster, users)
            users.is_over = True
        leader = await cluster.wait_leader()
        jobs, done = recipes.Queue(leader, "jobs"), await all_items(recipes.Queue(leader, "done"))
        with suppress(TimeoutError):
            while True:
                done.append(await jobs.get(timeout_s=60))  # what the dead had taken is back by then
        puts = [each for each in users.recorder.operations if each.name == "put"]
        assert len(set(done)) == len(done) > 20
        assert {each.arguments[0] for each in puts if each.result is True} <= set(done)
        assert set(done) <= {each.arguments[0] for each in puts}
        await cluster.assert_all_equal()

    on_three_nodes(test, delay_ms=(0.2, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_cancelled_at_each_step_finishes_its_item_or_gives_it_back_at_once(kind):
    async def test(cluster):
        leader, follower = await both(cluster)
        jobs, put, worked = kind(follower, "jobs", lease_ms=60_000), 0, []

        async def work():
            async with jobs.take() as taken:
                item = taken.item
                await trio.sleep(0.001)
                worked.append(item)
            return item

        async def check(is_over, item):
            nonlocal put
            left = await all_items(kind(leader, "jobs"))
            gone = set(range(put)) - set(left)
            assert gone <= set(worked), "what is gone was worked on"
            assert not is_over or item in gone
            assert left == sorted(set(left)), "it is back at its place"
            while len(left) < 2:
                await jobs.put(put)
                left.append(put)
                put += 1

        await check(False, None)
        await interrupted_at_each_step(work, check)

    on_three_nodes(test, delay_ms=2)
