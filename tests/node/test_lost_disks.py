"""A lost disk and a directory that formats itself again: nothing committed is lost, and what is in the way is said."""

from __future__ import annotations

import logging
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from random import Random

import pytest
import trio
from nodes import CLUSTER_ID, Lab, run

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError, LocalError
from kraftcore.storage.meta_properties import MetaProperties, write_meta_properties

QUICK = {
    "election_timeout_ms": 100,
    "fetch_timeout_ms": 300,
    "election_backoff_max_ms": 50,
    "request_timeout_ms": 300,
    "fetch_max_wait_ms": 100,
}


async def until(condition) -> None:
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.01)


async def append_all(nodes, values) -> None:
    client_id = uuid.uuid4().hex  # what is asked for again is applied once
    for number, value in enumerate(values):
        with trio.fail_after(60):
            while True:
                leader = next((node for node in nodes if node.is_leader), None)
                if leader is not None:
                    try:
                        await leader.append(value, client_id=client_id, sequence=number)
                        break
                    except KraftError:
                        pass
                await trio.sleep(0.01)


def new_disk(lab: Lab, number: int) -> None:
    lab.disks[number] = SimulatedDisk(Random(f"new {number}"))


@asynccontextmanager
async def opened(lab: Lab, *numbers: int):
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(lab.node(number)) for number in numbers]


VALUES = [b"%d" % number for number in range(20)]


def test_a_node_that_begins_anew_alone_takes_nothing_from_those_that_remember():
    lab = Lab(**QUICK)  # the first node knows nobody whom it could ask

    async def main():
        async with opened(lab, 1, 2, 3) as nodes:
            await until(lambda: len(nodes[0].status().voters) == 3)
            await append_all(nodes, VALUES)
            await until(lambda: all(lab.machines[n].values == VALUES for n in (1, 2, 3)))
        new_disk(lab, 1)
        async with opened(lab, 1) as (alone,):
            await until(lambda: alone.is_leader)
            async with opened(lab, 2, 3) as others:
                await append_all(others, [b"after"])
                for number in (2, 3):
                    await until(lambda number=number: lab.machines[number].values == [*VALUES, b"after"])

    run(main, limit_s=120)


def test_who_is_to_begin_a_quorum_asks_and_joins_the_one_that_is_there(caplog):
    lab = Lab(bootstrap_servers=["n1:9093", "n2:9093", "n3:9093"], auto_join=True, **QUICK)

    async def main():
        async with AsyncExitStack() as stack:
            nodes: dict[int, object] = {}

            async def start(number, task_status=trio.TASK_STATUS_IGNORED):
                async with lab.node(number) as node:
                    nodes[number] = node
                    task_status.started()
                    await trio.sleep_forever()

            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(start, 1)  # it waits for the others
            await nursery.start(start, 2)
            assert 1 not in nodes
            await nursery.start(start, 3)
            await until(lambda: len(nodes) == 3 and len(nodes[1].status().voters) == 3)
            await append_all(nodes.values(), VALUES)
            await until(lambda: all(lab.machines[n].values == VALUES for n in (1, 2, 3)))
            nursery.cancel_scope.cancel()
        new_disk(lab, 1)
        async with opened(lab, 2, 3), opened(lab, 1) as (again,):
            await until(lambda: lab.machines[1].values == VALUES)
            await until(lambda: again.status().is_voter and len(again.status().voters) == 3)
            assert again.status().epoch > 1

    with caplog.at_level(logging.WARNING):
        run(main, limit_s=120)
    assert "joins it instead of beginning one" in caplog.text


def test_who_is_to_begin_a_quorum_waits_for_those_that_are_silent_and_says_so(caplog):
    lab = Lab(bootstrap_servers=["n2:9093"], **QUICK)

    async def main():
        async with trio.open_nursery() as nursery:

            async def start():
                async with lab.node(1):
                    pytest.fail("it began a quorum without an answer")

            nursery.start_soon(start)
            await until(lambda: "no word from n2:9093" in caplog.text)
            nursery.cancel_scope.cancel()

    with caplog.at_level(logging.ERROR):
        run(main, limit_s=120)
    assert "kraftcore storage format --standalone" in caplog.text
    assert not lab.disks[1].exists("/data/meta.properties")


def test_who_begins_a_quorum_without_asking_is_warned_unless_nobody_else_can_have_its_id(caplog):
    async def first_start(**settings):
        lab = Lab(**QUICK, **settings)
        caplog.clear()
        async with opened(lab, 1) as (node,):
            await node.wait_leader()
            first = [record.getMessage() for record in caplog.records if "without asking" in record.getMessage()]
            caplog.clear()
        async with opened(lab, 1) as (node,):
            await node.wait_leader()
        assert "without asking" not in caplog.text  # it has a log now
        return first

    async def main():
        (text,) = await first_start()
        assert "set bootstrap_servers to their addresses (docs/damage.md)" in text
        assert await first_start(cluster_id=None) == []

    with caplog.at_level(logging.WARNING):
        run(main, limit_s=120)


def test_a_node_whose_other_directories_are_formatted_is_not_new():
    lab = Lab(log_directories=["/other"], **QUICK)

    async def main():
        write_meta_properties(lab.disks[1], "/other", MetaProperties(CLUSTER_ID, 1, Uuid.random()), datetime.now(UTC))
        with pytest.raises(LocalError, match=r"/data is empty, but /other is formatted.*bootstrap_servers"):
            async with opened(lab, 1):
                pytest.fail("it began a quorum")

    lab.disks[1].make_folder("/other")
    run(main, limit_s=120)
    assert not lab.disks[1].exists("/data/meta.properties")


def test_joining_needs_the_cluster_id():
    lab = Lab(bootstrap_servers=["n2:9093"], **QUICK)

    async def main():
        lab.format(2)
        async with opened(lab, 1, 2) as nodes:
            await append_all(nodes, VALUES[:1])
        new_disk(lab, 1)
        async with opened(lab, 2):
            with pytest.raises(LocalError, match="give cluster_id to join it"):
                async with lab.node(1, cluster_id=None):
                    pass
            with pytest.raises(LocalError, match="another cluster than"):
                async with lab.node(1, cluster_id="AAAAAAAAAAAAAAAAAAAAAQ"):
                    pass

    run(main, limit_s=120)
    assert not lab.disks[1].exists("/data/meta.properties")


@asynccontextmanager
async def static(lab: Lab, *numbers: int):
    """Static voters that format themselves, in the order of their numbers."""
    async with trio.open_nursery() as nursery:
        nodes = {}

        async def start(number):
            async with lab.node(number) as node:
                nodes[number] = node
                await trio.sleep_forever()

        for number in numbers:
            nursery.start_soon(start, number)
        await until(lambda: len(nodes) == len(numbers))
        yield [nodes[number] for number in numbers]
        nursery.cancel_scope.cancel()


def static_lab() -> Lab:
    voters = [f"{number}@n{number}:9093" for number in (1, 2, 3)]
    return Lab(create="join", auto_join=False, bootstrap_servers=(), voters=voters, **QUICK)


@pytest.mark.deep
def test_a_static_voter_that_lost_its_disk_does_not_elect_one_that_lacks_committed_records():
    lab = static_lab()

    async def main():
        async with static(lab, 1, 2, 3) as nodes:
            await append_all(nodes, VALUES[:1])
            await until(lambda: not any(node.status().is_on_probation for node in nodes))
        async with static(lab, 1, 2) as nodes:  # 3 does not get these
            await append_all(nodes, VALUES[1:])
        new_disk(lab, 1)
        async with static(lab, 1, 3) as (first, third):
            await until(lambda: first.status().is_on_probation and third.status().epoch > 0)  # both have begun
            before = third.status().epoch
            await until(lambda: third.status().epoch > before + 2)  # so many times it ran for leader
            assert first.status().is_on_probation
            assert not first.is_leader and not third.is_leader
            async with static(lab, 2):
                for number in (1, 2, 3):
                    await until(lambda number=number: lab.machines[number].values == VALUES)
                await until(lambda: not first.status().is_on_probation)
        async with static(lab, 1, 3) as nodes:  # now it counts
            await append_all(nodes, [b"after"])

    run(main, limit_s=180)
