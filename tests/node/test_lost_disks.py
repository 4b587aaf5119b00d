"""A lost disk and a directory that formats itself again: nothing committed is lost, and what is in the way is said."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import trio
from nodes import Lab, run

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.errors import KraftError

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
    for value in values:
        with trio.fail_after(60):
            while True:
                leader = next((node for node in nodes if node.is_leader), None)
                if leader is not None:
                    try:
                        await leader.append(value)
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
