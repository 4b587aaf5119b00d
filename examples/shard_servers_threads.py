"""The servers of shard_servers.py in threads. Run it three times, and kill any of them:

    python shard_servers_threads.py NUMBER [FIRST_PORT]

Clients of a controller are made for trio. An application in threads has such a function run by ``node.submit``, in the
node's thread, and hears of its shards from a queue.
"""

import sys
from contextlib import suppress
from queue import SimpleQueue

from shard_servers import PROPERTIES, configuration, serve

import kraftcore.blocking
from kraftcore.metadata import MetadataMachine
from kraftcore.plugins.controller import Controller


def main(*numbers: int) -> None:
    told: SimpleQueue[str | None] = SimpleQueue()
    plugins = [Controller(PROPERTIES)]
    with kraftcore.blocking.open_node(configuration(*numbers), MetadataMachine(), plugins=plugins) as node:
        serving = node.submit(serve, told.put, *numbers)
        serving.add_done_callback(lambda _: told.put(None))
        while (what := told.get()) is not None:
            print(what, flush=True)
        serving.result()  # raises why it ended


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
with suppress(KeyboardInterrupt):
    main(*map(int, sys.argv[1:]))
