"""The settings of config_store.py in asyncio. Run it three times, with 1, 2 and 3 for NUMBER, and type the same:

    python config_store_asyncio.py NUMBER [FIRST_PORT]

What is done with the settings is the same code: recipes have the same methods in trio and asyncio.
"""

import asyncio
import signal
import sys

from config_store import configuration, obey, show_changes

import kraftcore.aio
from kraftcore import NodeConfig
from kraftcore.aio import recipes


async def main(config: NodeConfig) -> None:
    async with kraftcore.aio.open_node(config, recipes.RecipeMachine()) as node:
        settings = recipes.Dict(node, "settings")
        await node.read_barrier()
        changes = asyncio.create_task(show_changes(settings))
        while line := await asyncio.to_thread(sys.stdin.readline):
            await obey(settings, line)
        changes.cancel()


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
signal.signal(signal.SIGINT, signal.SIG_DFL)
asyncio.run(main(configuration(*map(int, sys.argv[1:]))))
