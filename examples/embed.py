"""A replicated counter. Run it three times: python embed.py 1, python embed.py 2, python embed.py 3."""

import signal
import sys
from contextlib import suppress

import trio

from kraftcore import NodeConfig, StateMachine, open_node


class Counter(StateMachine):
    total = 0

    def apply(self, batch):  # committed records, the same ones in the same order everywhere
        results = []
        for value in batch.values():
            self.total += int(value)
            results.append(self.total)
        return results

    def snapshot(self, sink):
        sink.append([b"%d" % self.total])

    def restore(self, values):
        self.total = sum(map(int, values))


def configuration(number: int, first_port: int = 9191) -> NodeConfig:
    servers = {other: f"127.0.0.1:{first_port + other - 1}" for other in (1, 2, 3)}
    return NodeConfig(
        node_id=number,
        directory=f"counter-{number}",
        cluster_id="counter",
        listeners=[servers[number]],
        voters=[f"{other}@{server}" for other, server in servers.items()],
        create="join",  # formats an empty directory
    )


async def main(config: NodeConfig) -> None:
    async with open_node(config, Counter()) as node:
        while True:
            found = await node.append(b"+1", forward=True)  # durable on a majority, and applied here
            print(f"{found.result} (offset {found.offset}, node {await node.wait_leader()} leads)", flush=True)
            await trio.sleep(1)


if __name__ == "__main__":
    if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # leaves in order, as Ctrl-C does
    with suppress(KeyboardInterrupt):
        trio.run(main, configuration(*map(int, sys.argv[1:])))
