"""Servers of an application's own that share partitions out among themselves, with a KRaft controller inside.

Run it three times, with 1, 2 and 3 for NUMBER; kill any of them, and start it again:

    python shard_servers.py NUMBER [FIRST_PORT]

Each process is a controller of the quorum and, beside it, a server that registers as a broker does: server 101, 102 or
103. The topic ``shards`` has six partitions with a replica on every server. Whoever leads a partition would serve that
shard; here it only says so, and which servers are in sync with it. When a server falls silent the controller fences it,
and others lead: of those that were in sync. Kill the only one that is, and its shards wait for it.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from kraftcore import Endpoint, KraftError, NodeConfig, RefusedError, admin, observe, open_node
from kraftcore.metadata import Image, MetadataMachine
from kraftcore.observer import Observer, Snapshot
from kraftcore.plugins.controller import Controller
from kraftcore.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from kraftcore.protocol.schema import MetadataRecord

SHARDS = 6
PROPERTIES = {"broker.session.timeout.ms": "3000"}  # what Kafka's server.properties would say


class Shards:
    """What this server knows of the cluster: an image of its own, made of the records that the observer hands out."""

    def __init__(self, server: admin.Server, tell: Callable[[str], object]) -> None:
        self._server = server
        self._tell = tell
        self._mine: dict[int, list[int]] = {}  # the servers in sync, by shard
        self.image = Image()
        self.offset = -1

    async def follow(self, observer: Observer) -> None:
        async for item in observer.records():
            if isinstance(item, Snapshot):
                self.image = Image()  # the records of a snapshot replace all that came before
                continue
            if isinstance(item.data, MetadataRecord):
                self.image.apply(item.data, item.offset)
            self.offset = item.offset if item.snapshot is None else item.snapshot.end_offset - 1
            if item.type in ("PartitionRecord", "PartitionChangeRecord"):
                self._look()

    def led(self):
        topic = self.image.topics.by_name("shards")
        partitions = [] if topic is None else self.image.partitions.of_topic(topic.id)
        return [(topic, number, each) for number, each in partitions if each.leader == self._server.id]

    def _look(self) -> None:
        now = {number: sorted(each.isr) for _, number, each in self.led()}
        for number, in_sync in sorted(now.items()):
            if in_sync != self._mine.get(number):
                self._tell(f"server {self._server.id} leads shard {number}, in sync: {in_sync}")
        for number in sorted(self._mine.keys() - now):
            self._tell(f"server {self._server.id} leaves shard {number}")
        self._mine = now

    async def keep_in_sync(self) -> None:
        """As a leader: let every replica that is alive into the ISR. A real server would see that it has the data."""
        while True:
            await trio.sleep(0.5)
            brokers = self.image.brokers
            wanted = []
            for topic, number, each in self.led():
                alive = {one: brokers[one].epoch for one in each.replicas if one in brokers and brokers[one].is_active}
                if alive.keys() > set(each.isr):
                    wanted.append(admin.Isr(topic.id, number, alive, each.leader_epoch, each.partition_epoch))
            with suppress(KraftError):  # it has changed meanwhile: the next look knows
                if wanted:
                    await self._server.alter_isr(wanted)


async def create_shards(client: admin.AdminClient) -> None:
    """Once, by whoever comes first when all three servers are there."""
    wanted = CreateTopicsRequest.CreatableTopic(name="shards", num_partitions=SHARDS, replication_factor=3)
    while True:
        with suppress(RefusedError):
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=5000)
            answer = await client.ask_controller("createTopics", request, CreateTopicsResponse)
            if answer.topics[0].error_code in (0, 36):  # 36: TOPIC_ALREADY_EXISTS
                return
        await trio.sleep(0.5)


def controllers(first_port: int) -> dict[int, str]:
    return {number: f"127.0.0.1:{first_port + number - 1}" for number in (1, 2, 3)}


def configuration(number: int, first_port: int = 9191) -> NodeConfig:
    return NodeConfig(
        node_id=number,
        directory=f"shards-{number}",
        cluster_id="shards",
        listeners=[controllers(first_port)[number]],
        voters=[f"{other}@{address}" for other, address in controllers(first_port).items()],
        create="join",  # formats an empty directory
    )


async def serve(tell: Callable[[str], object], number: int, first_port: int = 9191) -> None:
    """Be a server, for ever; what happens to its shards is told as it happens."""
    servers = controllers(first_port).values()
    timing = admin.Timing(call_timeout_ms=10_000, request_timeout_ms=1000)
    async with (
        admin.connect(bootstrap_controllers=servers, timing=timing) as client,
        observe(servers) as observer,
        trio.open_nursery() as nursery,
    ):
        listener = Endpoint("APP", "127.0.0.1", 7000 + number)
        server = admin.Server(client, 100 + number, "shards", listeners=[listener], heartbeat_ms=500)
        shards = Shards(server, tell)
        nursery.start_soon(shards.follow, observer)
        nursery.start_soon(server.run, lambda: shards.offset)
        nursery.start_soon(shards.keep_in_sync)
        await create_shards(client)
        tell(f"server {server.id} is ready")


async def main(*numbers: int) -> None:
    async with open_node(configuration(*numbers), MetadataMachine(), plugins=[Controller(PROPERTIES)]):
        await serve(partial(print, flush=True), *numbers)


if __name__ == "__main__":
    if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
        sys.exit(__doc__)
    try:
        trio.run(main, *map(int, sys.argv[1:]))
    except* KeyboardInterrupt:  # out of the nursery
        pass
