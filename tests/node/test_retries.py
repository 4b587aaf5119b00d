"""A numbered proposal is applied once, however often it is made."""

from __future__ import annotations

import pytest
import trio
from nodes import Lab, outside, run, values_in_log

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, RefusedError


def test_a_retry_gets_the_first_answer():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            first = await node.append(b"a", client_id="me", sequence=0)
            again = await node.append(b"a", client_id="me", sequence=0)
            other = await node.append(b"a", client_id="you", sequence=0)
            assert again == first
            assert other.offset == first.offset + 1
            assert lab.machines[1].values == [b"a", b"a"]

    run(main)


def test_retries_in_flight_together_are_applied_once():
    async def main():
        lab = Lab()
        async with lab.quorum() as (leader, *_):
            answers = []

            async def one():
                answers.append(await leader.append(b"a", client_id=7, sequence=3))

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(one)
            assert set(answers) == {answers[0]}
            assert lab.machines[1].values == [b"a"]

    run(main)


def test_an_append_from_outside_is_in_the_log_once_however_often_it_is_sent():
    async def main():
        lab = Lab()
        async with lab.quorum() as (leader, *_), outside(lab) as client:
            offsets = []

            async def one():
                offsets.append(await client.append([b"a", b"b"], client_id=7, sequence=3))

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(one)
            await one()
            assert set(offsets) == {offsets[0]}
            assert values_in_log(leader) == [b"a", b"b"]
            assert await client.append([b"c"], client_id=7, sequence=5) == offsets[0] + 2

    run(main)


def test_an_append_from_outside_that_an_earlier_leader_made_is_not_made_again():
    async def main():
        lab = Lab()
        async with lab.quorum() as nodes, outside(lab) as client:
            first = await client.append([b"a"], client_id=7, sequence=0)
            await nodes[0].transfer_leadership(2)
            assert await client.append([b"a"], client_id=7, sequence=0) == first
            assert await client.append([b"b"], client_id=7, sequence=1) is not None
            assert values_in_log(nodes[1]) == [b"a", b"b"]

    run(main)


def test_an_append_from_outside_says_what_is_wrong_with_it():
    async def main():
        lab = Lab()
        async with lab.quorum(), outside(lab) as client:
            with pytest.raises(RefusedError, match="may not be empty"):
                await client.append([b""], client_id=7, sequence=0)
            with pytest.raises(LocalError, match="another topic"):
                await client.append([b"x"], client_id=7, sequence=0, topic_id=Uuid(bytes(15) + b"\x07"))

    run(main)


def test_clients_are_remembered_by_log_and_snapshot():
    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            first = await node.append_many([b"a", b"b"], client_id="me", sequence=10)
            await node.snapshot_now()
            second = await node.append(b"c", client_id="you", sequence=0)
        async with lab.node(1) as node:
            await node.wait_leader()
            assert lab.machines[1].values == [b"a", b"b", b"c"]
            again = await node.append_many([b"a", b"b"], client_id="me", sequence=10)
            assert again.offset == first.offset
            assert (await node.append(b"c", client_id="you", sequence=0)).offset == second.offset
            assert (await node.append(b"d", client_id="me", sequence=12)).result == 4

    run(main)


def test_a_client_unheard_of_is_forgotten_by_the_log_s_time():
    async def main():
        lab = Lab(session_expiry_ms=1)
        async with lab.node(1) as node:
            await node.wait_leader()
            await node.append(b"a", client_id="me", sequence=5)
            await trio.sleep(0.01)
            await node.append(b"time passes")
            await node.append(b"a", client_id="me", sequence=0)
            assert lab.machines[1].values == [b"a", b"time passes", b"a"]

    run(main)


def test_followers_forward():
    async def main():
        lab = Lab()
        async with lab.quorum() as (_, second, third):
            answer = await second.append(b"a", forward=True)
            assert (answer.result, lab.machines[2].values) == (1, [b"a"])
            many = await third.append_many([b"b", b"c"], forward=True, client_id="me", sequence=0)
            assert many.results == [2, 3]
            assert await third.append_many([b"b", b"c"], forward=True, client_id="me", sequence=0) == many
            assert lab.machines[3].values == [b"a", b"b", b"c"]

    run(main)


def test_a_forward_outlives_its_leader():
    async def main():
        lab = Lab(fetch_timeout_ms=600, fetch_max_wait_ms=200, election_timeout_ms=300)
        async with lab.quorum() as (old, second, third):
            done = []

            async def forward(node, number):
                for turn in range(10):
                    done.append((await node.append(b"%d-%d" % (number, turn), forward=True)).offset)
                    await trio.sleep(0.01)

            async with trio.open_nursery() as nursery:
                for number, node in enumerate((second, third)):
                    nursery.start_soon(forward, node, number)
                await trio.sleep(0.05)
                lab.network.cut("n1", ["n2", "n3"])
            lab.network.heal()
            await old.read_barrier()
            wanted = {b"%d-%d" % (number, turn) for number in range(2) for turn in range(10)}
            for machine in lab.machines.values():
                assert sorted(machine.values) == sorted(wanted)
            assert len(set(done)) == 20

    run(main)


@pytest.mark.parametrize(
    ("client_id", "sequence", "words"),
    [("me", None, "come together"), (None, 1, "come together"), ("me", -1, "is not in 0"), (-1, 0, "not in 0")],
)
def test_bad_numbers_are_refused(client_id, sequence, words):
    async def main():
        async with Lab().node(1) as node:
            await node.wait_leader()
            with pytest.raises(LocalError, match=words):
                await node.append(b"a", client_id=client_id, sequence=sequence)

    run(main)
