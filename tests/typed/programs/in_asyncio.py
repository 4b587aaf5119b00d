"""The Counter in an asyncio program."""

import asyncio

from counter import Counter

import kraftcore.aio
from kraftcore import Appended, LeaderChanged, Missed, NodeConfig, NodeEvent


async def add(node: kraftcore.aio.Node[Counter], value: int) -> int:
    total = (await node.append(b"%d" % value)).result
    return total + node.state_machine.total


async def watch(node: kraftcore.aio.Node) -> None:
    async for change in node.events(LeaderChanged):
        if isinstance(change, LeaderChanged):
            leader: int | None = change.leader_id
            print(leader)
        else:
            print(change.count)


async def main() -> None:
    config = NodeConfig(node_id=1, directory="counter", listeners=["127.0.0.1:0"], create="standalone")
    async with kraftcore.aio.open_node(config, Counter()) as node:
        leader: int = await node.wait_leader()
        total: int = await add(node, leader)
        future: asyncio.Future[Appended[int]] = node.append_nowait(b"+1")
        total += (await future).result
        total += await node.call(node.trio_node.wait_leader)
        total += await node.call(lambda: node.state_machine.total)
        await node.call(node.trio_node.wait_applied, 3)
        with node.iterate(node.trio_node.events, max_buffered=5) as events:
            async for event in events:
                seen: NodeEvent = event
                print(seen)
        async for other in node.iterate(node.trio_node.events(LeaderChanged)):
            known: LeaderChanged | Missed = other
            print(known)
        node.iterate(5)  # refused
        await node.call(node.trio_node.wait_applied, "3")  # refused
        await node.call(node.trio_node.wait_applied)  # refused
        name: str = await node.call(lambda: node.state_machine.total)  # refused
        node.events(str)  # refused
        node.state_machine.totl  # refused
        (await node.append(b"+1")).result.upper()  # refused
        (await node.append(b"+1", forward=True)).result + 1  # refused
        print(total, name)
    async with kraftcore.aio.open_or_attach(config, Counter) as either:
        print(await add(either, 1))
    async with kraftcore.aio.attach("counter", Counter()) as attached:
        print(await add(attached, 1))
    kraftcore.aio.attach(Counter(), "counter")  # refused


asyncio.run(main())
