"""A quorum of ours in a thread, with the dashboard's plugin on its first node, and a cluster in its log."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

import trio
from nodes import Lab

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import MetadataMachine
from kraftcore.node import Node
from kraftcore.plugins.dashboard import Dashboard
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import MetadataRecord

TOPIC_ID = Uuid(bytes([7]) * 16)
PARTITIONS = 130
CLUSTER: list[MetadataRecord] = [
    *(RegisterBrokerRecord(broker_id=each, broker_epoch=each, fenced=each == 2) for each in (1, 2)),
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    *(
        PartitionRecord(
            topic_id=TOPIC_ID,
            partition_id=at,
            replicas=[1, 2],
            isr=[2] if at < 3 else [1],
            leader=-1 if at < 3 else 1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for at in range(PARTITIONS)
    ),
]
"""Broker 2 is fenced: partitions 0 to 2 are offline, all are under-replicated."""


@dataclass
class ServedDashboard:
    """The page's address, and what it shows."""

    url: str
    token: trio.lowlevel.TrioToken
    node: Node
    lost: trio.Event

    def append(self, *records: MetadataRecord) -> None:
        """Commit records, one after the other."""

        async def work() -> None:
            for each in records:
                value = encode_metadata_record(each, type(each).schema.decodable_versions[-1][1])
                await self.node.append(value, forward=True)

        trio.from_thread.run(work, trio_token=self.token)

    def lose_majority(self) -> None:
        """Stop two of the three nodes, the one with the page is left."""
        self.token.run_sync_soon(self.lost.set)


@contextmanager
def serve_dashboard() -> Iterator[ServedDashboard]:
    """Three voters until the block ends."""
    ready: queue.Queue[ServedDashboard | BaseException] = queue.Queue()
    stop, lost = trio.Event(), trio.Event()

    async def run() -> None:
        lab, page = Lab(), Dashboard(listen="127.0.0.1:0")
        lab.format(3)
        async with AsyncExitStack() as stack, AsyncExitStack() as others:
            nodes = [await stack.enter_async_context(lab.node(1, machine=MetadataMachine, plugins=[page]))]
            nodes += [await others.enter_async_context(lab.node(n, machine=MetadataMachine)) for n in (2, 3)]
            while page.address is None or not any(node.is_leader for node in nodes):
                await trio.sleep(0.01)
            url = f"http://{page.address}/"
            ready.put(ServedDashboard(url, trio.lowlevel.current_trio_token(), nodes[0], lost))
            await lost.wait()
            await others.aclose()
            await stop.wait()

    def main() -> None:
        try:
            trio.run(run)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=main)
    thread.start()
    served = ready.get(timeout=30)
    if isinstance(served, BaseException):
        raise served
    try:
        served.append(*CLUSTER)
        yield served
    finally:
        for event in (lost, stop):
            served.token.run_sync_soon(event.set)
        thread.join(30)
