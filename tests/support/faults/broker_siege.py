"""Three brokers that acknowledge with acks=all while their listeners are abused; a scripted controller tells them
what to do.

Kinds are those of ``faults.abuse``, and what only a broker can be asked: answers of many megabytes that nobody takes,
long polls by the thousand, requests of 100 MiB that come slowly, thousands of connections that are proven and idle.
In the end all three logs are equal byte for byte, and every acknowledged value stands where the answer said.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from struct import pack
from typing import Any

import trio
from broken import Broken
from broker_rig import CONTROLLER, LISTENER, Rig
from kafka_lab import HOST, OURS, free_port

from faults.abuse import Abuse, Figures, allow_files, forget_peak, peak_mib, worked_s
from kraftcore.core.batch import iter_batches
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.transports.tcp import TcpTransport

BROKERS = (1, 2, 3)
VALUE_BYTES = 1000
PRODUCERS = 8
IDLE = 5000
CONNECTIONS_MAX = 4 * IDLE
LARGE_BYTES = 100 * 2**20
STOP_S = 60
CALM_S = 180.0  # a machine may be busy


class BrokerAbuse(Abuse):
    """Abuse of three brokers' listeners: the kinds of ``Abuse``, and those that only a broker can be asked."""

    def by_kind(self, tls: bool, sasl: bool) -> dict[str, list[Callable[[socket.socket], Awaitable[None]]]]:
        return {
            **super().by_kind(tls, sasl),
            "not read": [self._never_read],
            "long polls": [self._poll],
            "large": [self._large],
            "idle": [self._idle],
        }

    def _hold(self, sock: socket.socket) -> None:
        if len(self._held) >= IDLE:
            self._held.popleft().close()
        self._held.append(sock.dup())

    async def _never_read(self, sock: socket.socket) -> None:
        for number in range(4):
            sock.send(_fetch(number, 0))
        self._hold(sock)

    async def _poll(self, sock: socket.socket) -> None:
        for number in range(20):
            sock.send(_fetch(number, 300_000, "quiet"))
        self._hold(sock)

    async def _large(self, sock: socket.socket) -> None:
        sock.send(pack(">ihhih", LARGE_BYTES, 0, 9, 1, -1) + bytes(60_000))
        self._hold(sock)

    async def _idle(self, sock: socket.socket) -> None:
        frame = encode_request(ApiVersionsRequest(), 0, 1)
        await self._send(sock, pack(">i", len(frame)) + frame)
        self._hold(sock)


def _fetch(number: int, wait_ms: int, name: str = "t") -> bytes:
    topic = FetchRequest.FetchTopic
    asked = topic.FetchPartition(partition=0, partition_max_bytes=2**31 - 1)
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=2**31 - 1, topics=[topic(topic=name, partitions=[asked])]
    )
    frame = encode_request(request, 12, number)
    return pack(">i", len(frame)) + frame


class BrokerProcess:
    """A broker's place: its properties, its folder, its process."""

    def __init__(self, folder: Path, broker_id: int) -> None:
        self.id, self.port = broker_id, free_port()
        self.folder = folder / f"d{broker_id}"
        self.file = folder / f"{broker_id}.properties"
        self.output = folder / f"{broker_id}.out"
        self.file.write_text(
            f"node.id={broker_id}\npartition.control=requests\nlisteners={LISTENER}://{HOST}:{self.port}\n"
            f"listener.security.protocol.map={LISTENER}:PLAINTEXT\nlog.dirs={self.folder}\n"
            f"min.insync.replicas=2\nmax.connections={CONNECTIONS_MAX}\nreplica.lag.time.max.ms=10000\n"
            f"replica.fetch.backoff.ms=100\nlog.retention.ms=-1\n"  # the records say that they are of 1970
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*OURS, "server", "start", str(self.file)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def check(self) -> None:
        if self.process is None or self.process.poll() is not None:
            raise Broken(f"broker {self.id} ended: {self.output.read_text()[-1000:]}")

    @property
    def log_size(self) -> int:
        return sum(file.stat().st_size for file in (self.folder / "t-0").glob("*.log"))

    def log_bytes(self) -> bytes:
        return b"".join(file.read_bytes() for file in sorted((self.folder / "t-0").glob("*.log")))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class BrokerSiege(Rig):
    """Brokers as processes, a controller and producers in this one."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        super().__init__(folder, nursery)
        self.processes = {broker_id: BrokerProcess(folder, broker_id) for broker_id in BROKERS}
        self.acknowledged: dict[int, bytes] = {}
        self._numbered = 0

    def address(self, broker_id: int) -> Address:
        if broker_id == CONTROLLER:
            return self.controller_at
        return Address(HOST, self.processes[broker_id].port)

    async def begin(self, transport: TcpTransport) -> None:
        """Start them, with a partition that all three have."""
        self.transport = transport
        self.controller_at = await transport.listen(LISTENER, Address(HOST, 0), self.serve)
        for broker_id, each in self.processes.items():
            each.start()
            self.brokers[broker_id] = each  # type: ignore[assignment]
        for broker_id in BROKERS:
            with trio.fail_after(60):
                while isinstance(await self.ask(broker_id, ApiVersionsRequest(), 0, 0), Failure):
                    self.processes[broker_id].check()
                    await trio.sleep(0.05)
        await self.announce()
        await self.assign(1, 0, BROKERS)
        await self.assign(1, 0, BROKERS, topic="quiet")

    async def besiege(self, windows: int, window_s: float, connections: int) -> list[Figures]:
        """Alternate windows without and with abuse, one kind after the other.

        Raises:
            Broken: a broker ended, nothing more was acknowledged, or something acknowledged is lost.
        """
        found = [Figures(kind) for kind in BrokerAbuse.kinds(tls=False, sasl=False)]
        await self._window(1.0)
        for figures in found:
            for number in range(windows):
                quiet, work, peak = await self._window(window_s)
                figures.quiet += quiet / windows
                figures.quiet_cpu += work
                figures.quiet_mib = max(figures.quiet_mib, peak)
                await self._abused_window(figures, windows, window_s, connections, number)
        await self._recovers()
        return found

    async def _abused_window(
        self, figures: Figures, windows: int, window_s: float, connections: int, number: int
    ) -> None:
        count = connections // windows
        ports = [each.port for each in self.processes.values()]
        abuse = BrokerAbuse(figures.kind, ports, count, 1.1 * count / window_s, number, tls=False)
        begin, worked = time.monotonic(), time.process_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abuse.run)
            seen = await self._window(window_s)
            figures.attacker += (time.process_time() - worked) / (time.monotonic() - begin) / windows
            if not abuse.has_end:
                nursery.cancel_scope.cancel()
        figures.add_abused(*seen, windows)
        figures.connections += abuse.connections

    async def _window(self, seconds: float) -> tuple[float, float, float]:
        """Acknowledged records a second, processor time of all brokers, and the peak of memory, MiB."""
        members: list[Any] = list(self.processes.values())
        for member in members:
            forget_peak(member)
        worked, before = sum(map(worked_s, members)), len(self.acknowledged)
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            for lane in range(1, PRODUCERS + 1):
                nursery.start_soon(self._produce_until, begin + seconds, lane)
        rate = (len(self.acknowledged) - before) / (trio.current_time() - begin)
        self._check()
        return rate, sum(map(worked_s, members)) - worked, max(map(peak_mib, members))

    async def _produce_until(self, end: float, lane: int) -> None:
        while trio.current_time() < end:
            await self.put(lane)

    async def put(self, lane: int) -> bool:
        """Produce one record with acks=all; whether it was acknowledged."""
        self._numbered += 1
        value = b"%d " % self._numbered + bytes(VALUE_BYTES)
        answer = await self.produce(1, value, lane=lane)
        if isinstance(answer, Failure) or answer.error_code:
            await trio.sleep(0.02)
            return False
        self.acknowledged[answer.base_offset] = value
        return True

    async def _recovers(self) -> None:
        """A record more is acknowledged, all have it, and nothing is lost."""
        with trio.move_on_after(CALM_S) as limit:
            while not await self.put(1):
                self._check()
            while len({each.log_size for each in self.processes.values()}) > 1:
                self._check()
                await trio.sleep(0.1)
        sizes = {each.id: each.log_size for each in self.processes.values()}
        if limit.cancelled_caught:
            raise Broken(f"{CALM_S:g} s after the abuse the brokers do not hold the same: {sizes} bytes")
        logs = [each.log_bytes() for each in self.processes.values()]
        if not logs[0] == logs[1] == logs[2]:
            raise Broken(f"the logs differ, each of {sizes} bytes")
        values = {record.offset: record.value for batch in iter_batches(logs[0]) for record in batch}
        lost = [offset for offset, value in self.acknowledged.items() if values.get(offset) != value]
        if lost:
            raise Broken(f"acknowledged records are lost: {lost[:10]} of {len(self.acknowledged)}")

    def _check(self) -> None:
        for each in self.processes.values():
            each.check()

    async def end(self) -> None:
        """Stop them in order.

        Raises:
            Broken: one does not stop, or not well.
        """
        for each in self.processes.values():
            assert each.process is not None
            each.process.send_signal(signal.SIGTERM)
        for each in self.processes.values():
            assert each.process is not None
            try:
                status = await trio.to_thread.run_sync(partial(each.process.wait, STOP_S))
            except subprocess.TimeoutExpired:
                raise Broken(f"broker {each.id} does not stop") from None
            if status:
                raise Broken(f"broker {each.id} ended with {status}: {each.output.read_text()[-1000:]}")


def run_broker_siege(folder: Path, *, windows: int, window_s: float, connections: int) -> list[Figures]:
    """Run one; see ``BrokerSiege.besiege``."""
    allow_files()

    async def main() -> list[Figures] | Broken:
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            transport = await stack.enter_async_context(TcpTransport(log=lambda line: None))
            siege = BrokerSiege(folder, nursery)
            for each in siege.processes.values():
                stack.callback(each.kill)
            try:
                await siege.begin(transport)
                found = await siege.besiege(windows, window_s, connections)
                await siege.end()
            except Broken as error:  # raised outside the nursery, which would wrap it in a group
                return error
            return found

    found = trio.run(main)
    if isinstance(found, Broken):
        raise found
    return found
