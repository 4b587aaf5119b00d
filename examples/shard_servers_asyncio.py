"""The servers of shard_servers.py in asyncio. Run it three times, and kill any of them:

    python shard_servers_asyncio.py NUMBER [FIRST_PORT]

Clients of a controller are made for trio. An application in asyncio has such a function run by ``node.call``, on its
own event loop, and hears of its shards from a queue.
"""

import asyncio
import sys
from contextlib import suppress

from shard_servers import PROPERTIES, configuration, serve

import kraftcore.aio
from kraftcore.metadata import MetadataMachine
from kraftcore.plugins.controller import Controller


async def main(*numbers: int) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    plugins = [Controller(PROPERTIES)]
    async with (
        kraftcore.aio.open_node(configuration(*numbers), MetadataMachine(), plugins=plugins) as node,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(node.call(serve, told.put_nowait, *numbers))
        while True:
            print(await told.get(), flush=True)


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
with suppress(KeyboardInterrupt):
    asyncio.run(main(*map(int, sys.argv[1:])))
