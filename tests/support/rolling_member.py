"""One node of a quorum that is upgraded node by node: it writes all the time, and says what was acknowledged.

``python rolling_member.py JSON``: the node's settings, and a name for this start. An earlier version of kraftcore runs
it, too, so it uses stable names alone. It prints JSON lines: ``["runs", file]``, the module that it imported;
``["done", key]`` for each write that was acknowledged. Lines on standard input: ``pause`` ends the writes and prints
``["paused"]``; ``state`` prints ``["state", keys, count, snapshots]``. The end of standard input ends it at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import trio

import kraftcore
from kraftcore.plugins import recipes

WRITERS = 4
PAUSE_S = 0.02  # of each writer between two writes


def say(*what: object) -> None:
    print(json.dumps(what), flush=True)


async def write(node: kraftcore.Node, name: str) -> None:
    """Set a key and count it, in one record; applied twice, it would count twice."""
    number = 0
    while True:
        number += 1
        key = f"{name}-{number}"
        change = recipes.Transaction(node).set(recipes.Dict(node, "keys"), key, number)
        await change.add(recipes.Counter(node, "count")).commit()
        say("done", key)
        await trio.sleep(PAUSE_S)


async def obey(node: kraftcore.Node, writers: trio.Nursery) -> None:
    """Do what standard input says."""
    waiting = b""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        async for data in stream:
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                if line == b"pause":
                    writers.cancel_scope.cancel()
                else:
                    keys = sorted(await recipes.Dict(node, "keys").items())
                    count = await recipes.Counter(node, "count").get()
                    say("state", keys, count, len(node.status().snapshots))
    os.kill(os.getpid(), signal.SIGKILL)


async def work(node: kraftcore.Node, name: str, nursery: trio.Nursery) -> None:
    """Write until told to pause."""
    async with trio.open_nursery() as writers:
        nursery.start_soon(obey, node, writers)
        await node.wait_leader()
        for number in range(WRITERS):
            writers.start_soon(write, node, f"{name}-{number}")
    say("paused")


async def run(settings: dict, name: str) -> None:
    config = kraftcore.NodeConfig(**settings)
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with kraftcore.open_node(config, recipes.RecipeMachine()) as node, trio.open_nursery() as nursery:
            nursery.start_soon(work, node, name, nursery)
            async for _ in signals:
                nursery.cancel_scope.cancel()


if __name__ == "__main__":
    say("runs", kraftcore.__file__)
    given = json.loads(sys.argv[1])
    trio.run(run, given["settings"], given["name"])
