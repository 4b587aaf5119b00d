"""The counter of embed.py in asyncio. Run it three times: python embed_asyncio.py 1, and with 2 and 3."""

import asyncio
import signal
import sys
from contextlib import suppress

from embed import Counter, configuration

import kraftcore.aio
from kraftcore import NodeConfig


async def main(config: NodeConfig) -> None:
    async with kraftcore.aio.open_node(config, Counter()) as node:
        while True:
            found = await node.append(b"+1", forward=True)
            print(f"{found.result} (offset {found.offset}, node {await node.wait_leader()} leads)", flush=True)
            await asyncio.sleep(1)


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
with suppress(KeyboardInterrupt):
    asyncio.run(main(configuration(*map(int, sys.argv[1:]))))
