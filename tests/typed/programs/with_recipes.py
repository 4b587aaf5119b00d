"""Replicated objects, on trio, on asyncio and in threads."""

import pydantic

import kraftcore.aio
import kraftcore.aio.recipes
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


class Service(pydantic.BaseModel):
    port: int


async def of_a_model(node: Node[recipes.RecipeMachine]) -> None:
    services = recipes.Dict(node, "services", model=Service)
    port: int = (await services.set_default("web", Service(port=80))).port
    found: Service | None = await services.get("web")
    async for change in services.watch():
        if change.value is not None:
            port = change.value.port
    jobs = recipes.PriorityQueue(node, "jobs", model=Service)
    text: str = services["web"].port  # refused
    print(port, found, text, (await jobs.get(5)).port)
    await services.set("web", "80")  # refused


async def of_a_model_in_asyncio(node: kraftcore.aio.Node[recipes.RecipeMachine]) -> None:
    services = kraftcore.aio.recipes.Dict(node, "services", model=Service)
    with services.watch() as changes:
        async for change in changes:
            print(change.key.upper(), change.value.port if change.value is not None else 0)
    async with kraftcore.aio.recipes.Semaphore(node, "places", 3).hold() as lease:
        token: int = lease.token
    jobs = kraftcore.aio.recipes.Queue(node, "jobs", model=Service)
    taken: list[Service] = [await jobs.get(), services["web"]]
    print(taken, token, await kraftcore.aio.recipes.Transaction(node).get(jobs).commit())
    port: str = (await jobs.get()).port  # refused
    kraftcore.aio.recipes.Dict(node.trio_node, "services")  # refused
    print(port)


def of_a_model_in_threads(node: kraftcore.blocking.Node[recipes.RecipeMachine]) -> None:
    services = kraftcore.blocking.recipes.Dict(node, "services", model=Service)
    for change in services.watch():
        print(change.key.upper(), change.value.port if change.value is not None else 0)
    with kraftcore.blocking.recipes.Election(node, "boss").campaign() as term:
        print(term.is_valid + 1)
    ports: list[int] = [each.port for each in kraftcore.blocking.recipes.List(node, "all", model=Service)]
    led: int = kraftcore.blocking.recipes.Election(node, "boss").run(lambda term: term.token)
    print(ports, led, services["web"].colour)  # refused


async def main(config: NodeConfig) -> None:
    async with open_node(config, recipes.RecipeMachine()) as node:
        await settings(node)
        await of_a_model(node)
    async with kraftcore.aio.open_node(config, recipes.RecipeMachine()) as there:
        await of_a_model_in_asyncio(there)
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as blocking:
        in_threads(blocking)
        of_a_model_in_threads(blocking)
    recipes.RecipeMachine(session_expiry="1 h")  # refused
