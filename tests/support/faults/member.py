"""One node of a fault round, in a process of its own: registers and counters behind a line of JSON each.

``python member.py JSON``: the settings of the node, and the port where clients ask. A request is ``[id, client,
sequence, name, arguments]``; with a sequence the proposal may be repeated anywhere and is applied once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial

import trio

from kraftcore.config import NodeConfig, TlsConfig
from kraftcore.config.login import SaslLogin
from kraftcore.config.security import SaslConfig
from kraftcore.errors import KraftError, NotLeaderError
from kraftcore.node import Node, open_node
from kraftcore.state_machine import StateMachine

LOAD = b"x" * 100


class Registers(StateMachine):
    """Values by key, and how often each operation was applied."""

    def __init__(self):
        self.values = {}
        self.applied = {}

    def apply(self, batch):  # None is no result, [None] is one
        return [[None if value == LOAD else self._apply(*json.loads(value))] for value in batch.values()]

    def _apply(self, number, name, key, *arguments):
        self.applied[number] = self.applied.get(number, 0) + 1
        before = self.values.get(key)
        if name == "set":
            self.values[key] = arguments[0]
            return None
        if name == "cas":
            if before == arguments[0]:
                self.values[key] = arguments[1]
                return True
            return False
        self.values[key] = (before or 0) + arguments[0]  # add
        return self.values[key]

    def read(self, name, key):
        return self.values.get(key, 0 if name == "sum" else None)

    def snapshot(self, sink):
        sink.append([b"v" + json.dumps(item).encode() for item in self.values.items()])
        sink.append([b"a" + json.dumps(item).encode() for item in self.applied.items()])

    def restore(self, values):
        self.values, self.applied = {}, {}
        for value in values:
            key, item = json.loads(value[1:])
            if value[:1] == b"v":
                self.values[key] = item
            else:
                self.applied[int(key)] = item


async def answer(node: Node, machine: Registers, request: list) -> dict:
    """Do what a client asks."""
    number, client, sequence, name, arguments = request
    if name == "status":
        status = node.status()
        return {"applied": status.applied_offset, "end": status.log_end_offset, "leads": node.is_leader}
    if name == "applied":
        return {"ok": list(machine.applied.items())}
    if name == "load":
        return {"ok": await load(node, *arguments)}
    try:
        if name in ("get", "sum"):
            await node.read_barrier()
            return {"ok": machine.read(name, *arguments)}
        value = json.dumps([number, name, *arguments]).encode()
        if sequence is None:
            found = await node.append(value)
        else:
            found = await node.append(value, client_id=client, sequence=sequence, forward=True)
    except NotLeaderError as error:
        return {"not leader": error.leader_id}
    except KraftError as error:
        return {"unknown": str(error)}
    if found.result is None:  # the record came here in a snapshot, or was applied before a restart
        return {"done": found.offset}
    return {"done": found.offset, "ok": found.result[0]}


async def load(node: Node, seconds: float, in_flight: int) -> int:
    """Append records, each awaited on its own; how many were committed."""
    committed = 0

    async def caller() -> None:
        nonlocal committed
        while trio.current_time() < end:
            try:
                await node.append(LOAD)
                committed += 1
            except KraftError:
                await trio.sleep(0.01)

    end = trio.current_time() + seconds
    async with trio.open_nursery() as nursery:
        for _ in range(in_flight):
            nursery.start_soon(caller)
    return committed


async def converse(node: Node, machine: Registers, stream: trio.SocketStream) -> None:
    """Answer one client, one request after the other."""
    waiting = b""
    try:
        async with stream:
            async for data in stream:
                *lines, waiting = (waiting + data).split(b"\n")
                for line in lines:
                    await stream.send_all(json.dumps(await answer(node, machine, json.loads(line))).encode() + b"\n")
    except trio.BrokenResourceError:
        pass


async def end_with_parent() -> None:
    """Whoever started this process holds the other end of its input until it ends."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        async for _ in stream:
            pass
    os.kill(os.getpid(), signal.SIGKILL)


async def run(settings: dict, port: int) -> None:
    machine = Registers()
    if settings.get("tls"):
        settings["tls"] = TlsConfig(**settings["tls"])
    if settings.get("sasl"):
        settings["sasl"] = SaslLogin(**settings["sasl"])
        settings["listener_sasl"] = {name: SaslConfig(**each) for name, each in settings["listener_sasl"].items()}
    async with open_node(NodeConfig(**settings), machine) as node, trio.open_nursery() as nursery:
        nursery.start_soon(end_with_parent)
        nursery.start_soon(partial(trio.serve_tcp, partial(converse, node, machine), port, host="127.0.0.1"))
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                break
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    trio.run(run, given["settings"], given["port"])
