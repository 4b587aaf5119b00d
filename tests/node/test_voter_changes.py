"""What a node says of a change that it appended and could not see committed."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from nodes import Lab, outside, run

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, NotLeaderError, OutcomeUnknownError, RefusedError

SOMEBODY = Uuid.from_string("AAAAAAAAAAAAAAAAAAAABQ")
LOST = {"fetch_timeout_ms": 600, "fetch_max_wait_ms": 200}
LATE = {"fetch_timeout_ms": 60_000, "fetch_max_wait_ms": 100, "request_timeout_ms": 300}


@asynccontextmanager
async def majority_cut_off(lab: Lab):
    """The leader of three voters, of which it hears no other any more; and an observer that has everything."""
    async with lab.quorum() as nodes, lab.node(4, auto_join=False) as observer:
        await observer.read_barrier()
        for name in ("n2", "n3"):
            lab.network.cut(name, ["n1", "n4"])
        yield nodes, observer


@pytest.mark.parametrize(
    ("settings", "why"),
    [(LOST, "this node lost its leadership before it was committed"), (LATE, "the time ended before it was committed")],
    ids=["leadership lost", "too late"],
)
@pytest.mark.parametrize("change", ["add", "remove"])
def test_what_was_appended_may_be_made(settings, why, change):
    async def main():
        lab = Lab(**settings)
        async with majority_cut_off(lab) as ((leader, second, _), observer):
            with pytest.raises(OutcomeUnknownError, match=why):
                if change == "add":  # of four voters three must have it
                    timeout_ms = 300 if settings is LATE else 300_000
                    await leader.add_voter(4, observer.key.directory_id, observer.endpoints, timeout_ms=timeout_ms)
                else:
                    await leader.remove_voter(2, second.key.directory_id)

    run(main)


def test_what_was_not_appended_is_refused():
    async def main():
        lab = Lab(**LATE)
        async with lab.quorum() as (leader, follower, _):
            with pytest.raises(NotLeaderError):
                await follower.add_voter(4, SOMEBODY, leader.endpoints)
            with pytest.raises(NotLeaderError):
                await follower.remove_voter(4, SOMEBODY)
            with pytest.raises(RefusedError, match="REQUEST_TIMED_OUT: New voter|REQUEST_TIMED_OUT: Aborted"):
                await leader.add_voter(4, SOMEBODY, leader.endpoints)
            lab.network.cut("n1", ["n2", "n3"])
            with pytest.raises(OutcomeUnknownError):
                await leader.remove_voter(2, follower.key.directory_id)
            with pytest.raises(RefusedError, match="REQUEST_TIMED_OUT"):  # for the other one is still in flight
                await leader.remove_voter(3, SOMEBODY)

    run(main)


def test_an_upgrade_that_was_appended_may_be_made():
    async def main():
        lab = Lab(create=None, auto_join=False, voters=[f"{number}@n{number}:9093" for number in (1, 2, 3)], **LOST)
        lab.format_static(3)
        async with lab.node(1) as first, lab.node(2) as second, lab.node(3) as third, outside(lab) as client:
            await first.read_barrier()
            while True:
                try:
                    await client.update_features({"kraft.version": 1}, validate_only=True)
                    break
                except RefusedError:  # a voter has not told its directory yet
                    await trio.sleep(0.05)
            leader = next(node for node in (first, second, third) if node.is_leader)
            lab.network.cut(f"n{leader.key.id}", [f"n{number}" for number in (1, 2, 3) if number != leader.key.id])
            with pytest.raises(OutcomeUnknownError, match="lost its leadership"):
                await leader.upgrade(1)
            with pytest.raises(NotLeaderError):
                await leader.upgrade(1)

    run(main)


def test_a_client_asks_until_it_knows():
    """The leader that appended the change loses its leadership; the next one has it, or not: the call ends well."""

    async def main():
        lab = Lab(**LOST)
        async with majority_cut_off(lab) as ((leader, second, third), observer):
            ended = trio.Event()

            async def add(client):
                await client.add_voter(4, observer.key.directory_id, observer.endpoints)
                ended.set()

            async with outside(lab) as client, trio.open_nursery() as nursery:
                nursery.start_soon(add, client)
                while not leader.status().voters.is_voter(observer.key):
                    await trio.sleep(0.01)
                while leader.is_leader:
                    await trio.sleep(0.01)
                assert not ended.is_set()
                lab.network.heal()
            await second.read_barrier()
            await third.read_barrier()
            assert second.status().voters.is_voter(observer.key)
            assert third.status().voters.is_voter(observer.key)

    run(main)


def test_ids_and_levels_that_are_no_numbers_are_refused_and_the_node_goes_on():
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            for call in (
                lambda: node.upgrade("1"),
                lambda: node.add_voter("2", Uuid.random(), node.endpoints),
                lambda: node.remove_voter("1", node.key.directory_id),
            ):
                with pytest.raises(LocalError, match="must be an int"):
                    await call()
            await node.append(b"a")

    run(main)
