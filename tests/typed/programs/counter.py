"""README's Counter with types, on trio; the other programs import it."""

from collections.abc import Iterable

import trio

from kraftcore import NodeConfig, RecordBatch, SnapshotSink, StateMachine, attach, open_node, open_or_attach


class Counter(StateMachine[int]):
    total = 0

    def apply(self, batch: RecordBatch[bytes]) -> list[int]:
        results: list[int] = []
        for value in batch.values():
            self.total += int(value)
            results.append(self.total)
        return results

    def snapshot(self, sink: SnapshotSink) -> None:
        sink.append([b"%d" % self.total])

    def restore(self, values: Iterable[bytes]) -> None:
        self.total = sum(map(int, values))


async def main() -> None:
    config = NodeConfig(node_id=1, directory="counter", listeners=["127.0.0.1:0"], create="standalone")
    async with open_node(config, Counter()) as node:
        leader: int = await node.wait_leader()
        found = await node.append(b"+1")
        total: int = found.result + found.offset + leader
        total += node.state_machine.total
        node.state_machine.totl  # refused
        node.state_machine = Counter()  # refused
        await node.append("+1")  # refused
        await node.append(b"+1", client=3)  # refused
        forwarded = await node.append(b"+1", forward=True)
        forwarded.result + 1  # refused
        if forwarded.result is not None:
            total += forwarded.result
        many = await node.append_many([b"+1", b"+1"], client_id="me", sequence=0)
        if many.results is not None:
            total += many.results[0]
        waited = await node.append_nowait(b"+1").wait()
        total += waited.result
        offset: int = await node.read_barrier()
        print(total, offset, node.status().high_watermark)
    with open_node(config, Counter()):  # refused
        pass
    async with open_or_attach(config, Counter) as either:
        total += (await either.append(b"+1")).result + either.state_machine.total
        either.state_machine.totl  # refused
    async with attach(config.directory, Counter()) as attached:
        total += (await attached.append(b"+1")).result + attached.state_machine.total
        attached.state_machine.totl  # refused
    open_or_attach(config, Counter())  # refused


def with_a_class() -> None:
    open_node(NodeConfig(node_id=1, directory="counter", listeners=["127.0.0.1:0"]), Counter)  # refused


if __name__ == "__main__":
    trio.run(main)
