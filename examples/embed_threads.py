"""The counter of embed.py without an event loop. Run it three times: python embed_threads.py 1, and with 2 and 3."""

import signal
import sys
import time
from contextlib import suppress

from embed import Counter, configuration

import kraftcore.blocking
from kraftcore import NodeConfig


def main(config: NodeConfig) -> None:
    with kraftcore.blocking.open_node(config, Counter()) as node:  # it runs in a thread of its own
        while True:
            found = node.append(b"+1", forward=True)
            print(f"{found.result} (offset {found.offset}, node {node.wait_leader()} leads)", flush=True)
            time.sleep(1)


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
with suppress(KeyboardInterrupt):
    main(configuration(*map(int, sys.argv[1:])))
