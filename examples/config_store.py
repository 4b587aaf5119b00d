"""Settings that every process of an application shares: set anywhere, seen everywhere as they change.

Run it three times, with 1, 2 and 3 for NUMBER, and type `set colour blue`, `get colour`, `delete colour`, `all`; Ctrl-D
or Ctrl-C ends it:

    python config_store.py NUMBER [FIRST_PORT]

Needs `pip install 'kraftcore[recipes]'`.
"""

import signal
import sys

import trio

import kraftcore.aio.recipes
from kraftcore import LocalError, NodeConfig, open_node, recipes

# Recipes have the same methods in trio and asyncio.
Settings = recipes.Dict[str, str] | kraftcore.aio.recipes.Dict[str, str]


async def show_changes(settings: Settings) -> None:
    """What an application would do here: take over the new value."""
    with settings.watch() as changes:
        print(f"now: {settings.peek_items()}", flush=True)
        async for change in changes:
            print(f"change: {change.key} = {change.value} (version {change.version})", flush=True)


async def answer(settings: Settings, line: str) -> object:
    match line.split():
        case ["set", key, value]:
            return f"version {await settings.set(key, value)}"
        case ["set", key, value, "if", version]:  # nobody else's change is overwritten by mistake
            found = await settings.set_if(key, value, int(version))
            return "it has another version" if found is None else f"version {found}"
        case ["get", key]:
            return await settings.get_versioned(key)  # linearizable: not older than any change that was confirmed
        case ["delete", key]:
            return await settings.delete(key)
        case ["all"]:
            return await settings.items()
    raise LocalError("say: set KEY VALUE [if VERSION], get KEY, delete KEY, or all")


async def obey(settings: Settings, line: str) -> None:
    try:
        print(f"answer: {await answer(settings, line)}", flush=True)
    except (LocalError, ValueError) as error:
        print(f"error: {error}", flush=True)


def configuration(number: int, first_port: int = 9191) -> NodeConfig:
    servers = {other: f"127.0.0.1:{first_port + other - 1}" for other in (1, 2, 3)}
    return NodeConfig(
        node_id=number,
        directory=f"settings-{number}",
        cluster_id="settings",
        listeners=[servers[number]],
        voters=[f"{other}@{server}" for other, server in servers.items()],
        create="join",
    )


async def main(config: NodeConfig) -> None:
    async with open_node(config, recipes.RecipeMachine()) as node, trio.open_nursery() as nursery:
        settings = recipes.Dict(node, "settings")
        await node.read_barrier()  # from here on this replica has what the others had when it started
        nursery.start_soon(show_changes, settings)
        async for line in trio.wrap_file(sys.stdin):
            await obey(settings, line)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
        sys.exit(__doc__)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C need not wait for the next line: no end loses anything
    trio.run(main, configuration(*map(int, sys.argv[1:])))
