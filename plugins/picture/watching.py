"""Asks and observes a quorum on trio, and feeds its picture.

Every controller that is known is asked once a second, side by side, each with patience of its own: one that is frozen
holds up nobody. The log is followed by an observer, which no quorum notices.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import trio

from kraftcore import __version__, admin
from kraftcore.admin import Timing
from kraftcore.config.login import SaslLogin, make_login
from kraftcore.errors import KraftError
from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.observer import Observer, Snapshot, observe
from kraftcore.plugins.picture.groups import look
from kraftcore.plugins.picture.picture import Picture
from kraftcore.ports.nursery import open_nursery
from kraftcore.ports.transport import Address, Admission, Answer, Parts, Serve, Transport
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.schema import Request
from kraftcore.storage.snapshot_batches import read_batches
from kraftcore.transports.tcp import TcpTransport, TlsSettings

CLIENT_ID = "kraftcore-picture"
PATIENCE_MS = 2_000
"""How long a controller may take to answer."""
PERIOD_S = 1.0
_CONTROLLERS = 2  # endpoint type of DescribeCluster (KIP-919)
_GROUPS_PERIOD_S = 10.0
_AGAIN_S = 2.0
_TURN_S = 0.01  # how long records are taken in before others have a turn
_TIMING = Timing(10_000, PATIENCE_MS)
_FIRST_LANE, _LANES = 1 << 20, 16  # beyond those of a node


@dataclass(frozen=True, slots=True)
class Carrier:
    """How a quorum is reached.

    Attributes:
        transport: carries the frames.
        controllers: controllers to begin with.
        servers: brokers to ask about groups, and for controllers where none is known.
    """

    transport: Transport
    controllers: tuple[Address, ...]
    servers: tuple[Address, ...] = ()


@asynccontextmanager
async def over(
    controllers: Iterable[Address], servers: Iterable[Address], tls: TlsSettings | None, sasl: SaslLogin | None
) -> AsyncIterator[Carrier]:
    """Reach a quorum over TCP, while the block runs."""
    login = None if sasl is None else make_login(sasl, CLIENT_ID)
    async with TcpTransport(tls=tls, login=login, log=lambda _: None) as transport:
        yield Carrier(transport, tuple(controllers), tuple(servers))


class Watching:
    """Feeds a picture, while ``run`` runs.

    Args:
        picture: to be fed.
        carrier: how to reach the quorum.

    Attributes:
        looked: set when every controller that was named, here or by another, has answered, or has not in time.
        grouped: set when consumer groups were looked at, or there is no broker to ask.
        loaded: set when the log was taken in up to where it was committed when it was opened.
    """

    def __init__(self, picture: Picture, carrier: Carrier) -> None:
        self.picture = picture
        self.looked = trio.Event()
        self.loaded = trio.Event()
        self.grouped = trio.Event()
        if not carrier.servers:
            self.grouped.set()
        self._carrier = carrier
        self._outbox = Outbox(_OwnConnections(carrier.transport, 0), CLIENT_ID, __version__, lambda _: None)
        self._began_s = time.time() - trio.current_time()

    def now_ms(self) -> int:
        """Milliseconds since 1970; never falls."""
        return int((self._began_s + trio.current_time()) * 1000)

    async def run(self) -> None:
        """Watch, until cancelled."""
        for address in self._carrier.controllers:
            self.picture.quorum.know(address, None, self.now_ms())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_again_and_again)
            nursery.start_soon(self._observe_again_and_again)
            nursery.start_soon(self._sample)
            if self._carrier.servers:
                nursery.start_soon(self._look_at_groups)

    async def _sample(self) -> None:
        while True:
            await trio.sleep(PERIOD_S)
            self.picture.sample(self.now_ms(), trio.current_time())

    # --- the controllers ----------------------------------------------------------------------------------------------

    async def _ask_again_and_again(self) -> None:
        while True:
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                asked: set[Address] = set()
                for server in self._carrier.servers:
                    nursery.start_soon(self._ask_server, server, nursery, asked)
                self._ask_all(nursery, asked)
            self.looked.set()
            await trio.sleep_until(began + PERIOD_S)

    def _ask_all(self, nursery: trio.Nursery, asked: set[Address]) -> None:
        for address in self.picture.quorum.addresses:
            if address not in asked:
                asked.add(address)
                nursery.start_soon(self._ask_one, address, nursery, asked)

    async def _ask_server(self, address: Address, nursery: trio.Nursery, asked: set[Address]) -> None:
        answer = await self._ask(address, self._describe())
        self.picture.quorum.relayed(address, answer, self.now_ms())
        self._ask_all(nursery, asked)

    def _describe(self) -> DescribeQuorumRequest:
        topics = DescribeQuorumRequest.TopicData
        part = topics.PartitionData(partition_index=0)
        return DescribeQuorumRequest(topics=[topics(topic_name=self.picture.topic, partitions=[part])])

    async def _ask_one(self, address: Address, nursery: trio.Nursery, asked: set[Address]) -> None:
        quorum = self.picture.quorum
        answer = await self._ask(address, self._describe())
        quorum.described(address, answer, self.now_ms())
        if not isinstance(answer, Failure):
            listed = await self._ask(address, DescribeClusterRequest(endpoint_type=_CONTROLLERS), min_version=1)
            if isinstance(listed, DescribeClusterResponse):
                quorum.listed(address, listed, self.now_ms())
            self._ask_all(nursery, asked)  # those that it named, without waiting for who is silent

    async def _ask(self, address: Address, request: Request, min_version: int = 0) -> Any:
        done = trio.Event()
        answers: list[Any] = []

        def answered(answer: Any) -> None:
            answers.append(answer)
            done.set()

        self._outbox.send(address.host, address.port, request, PATIENCE_MS, answered, min_version, OTHERS)
        with trio.move_on_after(PATIENCE_MS / 1000):  # of all that is asked before this
            await done.wait()
        return answers[0] if answers else Failure.TIMED_OUT

    # --- the log ------------------------------------------------------------------------------------------------------

    async def _observe_again_and_again(self) -> None:
        while True:
            if self.picture.quorum.addresses:
                try:
                    await self._observe()
                except KraftError as error:
                    self.picture.log_problem = str(error)
            await trio.sleep(_AGAIN_S)

    async def _observe(self) -> None:
        places = self.picture.quorum.addresses
        topic, topic_id = self.picture.topic, self.picture.topic_id
        async with (
            observe(
                places,
                topic=topic,
                topic_id=topic_id,
                transport=_OwnConnections(self._carrier.transport, 1),
                timing=_TIMING,
            ) as observer,
            open_nursery() as nursery,
        ):
            nursery.start_soon(self._see_progress, observer)
            self.picture.cluster.restart()
            turns = _Turns()
            async for item in observer.batches():
                if isinstance(item, Snapshot):
                    with item.open() as reader:
                        batches = (batch for _, batch in read_batches(reader.raw.file))
                        for _ in self.picture.cluster.load(batches, item.end_offset):
                            await turns.take()
                else:
                    self.picture.cluster.applied(item)
                    await turns.take()
                self._note_loaded(observer)

    def _note_loaded(self, observer: Observer) -> None:
        if observer.progress.is_caught_up and self.picture.cluster.end_offset >= observer.high_watermark:
            self.picture.log_problem = ""
            self.loaded.set()

    async def _see_progress(self, observer: Observer) -> None:
        is_new = False
        with suppress(KraftError):  # told by the observer's block
            while True:
                found = observer.progress
                is_new = is_new or found.is_caught_up
                if is_new:  # and not what was committed long ago
                    self.picture.commits.progress(trio.current_time(), found.log_end_offset, found.high_watermark)
                self.picture.log = {
                    "startOffset": found.log_start_offset,
                    "endOffset": found.log_end_offset,
                    "highWatermark": found.high_watermark,
                }
                if found.snapshot_size:
                    self.picture.log |= {
                        "snapshotBytes": found.snapshot_bytes or 0,
                        "snapshotSize": found.snapshot_size,
                    }
                self.picture.quorum.cluster_id = self.picture.quorum.cluster_id or observer.cluster_id
                self._note_loaded(observer)
                await observer.changed()

    # --- the groups ---------------------------------------------------------------------------------------------------

    async def _look_at_groups(self) -> None:
        transport = _OwnConnections(self._carrier.transport, 2)
        async with admin.connect(
            bootstrap_servers=self._carrier.servers, transport=transport, timing=_TIMING
        ) as client:
            while True:
                try:
                    self.picture.groups = await look(client)
                    self.picture.groups_problem = ""
                except KraftError as error:
                    self.picture.groups_problem = str(error)
                self.grouped.set()
                await trio.sleep(_GROUPS_PERIOD_S)


class _OwnConnections(Transport):
    """A transport whose requests have connections of their own, so that clients that share it do not meet."""

    def __init__(self, transport: Transport, number: int) -> None:
        self._transport = transport
        self._first = _FIRST_LANE + number * _LANES

    async def listen(
        self, listener: str, address: Address, serve: Serve, admission: Admission | None = None
    ) -> Address:
        """See `Transport`."""
        return await self._transport.listen(listener, address, serve, admission)

    def request(self, address: Address, parts: Parts, timeout_ms: int, answer: Answer) -> None:
        """See `Transport`."""
        self._transport.request(address._replace(lane=self._first + address.lane), parts, timeout_ms, answer)

    async def aclose(self) -> None:
        """Nothing: the transport is somebody else's."""

    def login_error(self, address: Address) -> str | None:
        """Why the last login there failed, if the transport tells."""
        why: Callable[[Address], str | None] | None = getattr(self._transport, "login_error", None)
        return None if why is None else why(address)


class _Turns:
    """Lets other tasks run after each hundredth of a second of work."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _TURN_S

    async def take(self) -> None:
        """Let others run, if it is time."""
        if time.monotonic() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = time.monotonic() + _TURN_S
