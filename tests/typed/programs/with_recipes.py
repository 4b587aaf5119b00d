"""Replicated objects, on trio and in threads."""

import kraftcore.blocking
import kraftcore.blocking.recipes
from kraftcore import Node, NodeConfig, open_node
from kraftcore.plugins import recipes

from counter import Counter  # isort: skip


async def settings(node: Node[recipes.RecipeMachine]) -> None:
    values = recipes.Dict(node, "settings")
    version: int = await values.set("colour", "blue")
    if await values.set_if("colour", "red", version) is None:
        print("too late")
    async for change in values.watch():
        print(change.key, change.value)
    async with recipes.Lock(node, "job", lease_ms=5000).hold() as lease:
        await recipes.Transaction(node).check_lock(recipes.Lock(node, "job"), lease.token).commit()
    await values.set("colour")  # refused
    await values.set(7, "blue")  # refused


async def of_a_counter(node: Node[Counter]) -> None:
    recipes.Dict(node, "settings")  # refused


def in_threads(node: kraftcore.blocking.Node[recipes.RecipeMachine]) -> None:
    words = kraftcore.blocking.recipes.Counter(node, "words")
    total: int = words.add(3)
    print(total)
    words.add("3")  # refused


async def main(config: NodeConfig) -> None:
    async with open_node(config, recipes.RecipeMachine()) as node:
        await settings(node)
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as blocking:
        in_threads(blocking)
    recipes.RecipeMachine(session_expiry="1 h")  # refused
