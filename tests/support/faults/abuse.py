"""A quorum that commits while its listeners are abused: garbage, wrong sizes, slow senders, the wrong protocol.

The quorum is three processes; the abuse comes from this one. What is looked at: how much is committed in a window with
abuse beside windows without, the peak of each process's memory, and that the nodes hold the same in the end.
"""

from __future__ import annotations

import signal
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from struct import pack

import trio

from faults.client import Client
from faults.rounds import HOST, Member, Round

SIZES = (-(2**31), -5, -1, 0, 1, 3, 7, 8, 9, 14, 100, 2**20, 100 * 2**20, 100 * 2**20 + 1, 2**31 - 1)
SLOW = 150  # senders of a byte now and then, at a time, at most
AT_ONCE = 200  # connections of the other kinds
PATIENCE_S = 0.2  # for an answer, or to be thrown out


@dataclass
class Figures:
    """What was seen.

    Attributes:
        quiet: commits a second in the windows without abuse.
        abused: and in those with it.
        connections: of the abuse that were made.
        growth_mib: how much the largest process's peak of memory rose by the abuse.
    """

    quiet: list[float] = field(default_factory=list)
    abused: list[float] = field(default_factory=list)
    connections: int = 0
    growth_mib: float = 0.0

    def __str__(self) -> str:
        quiet, abused = (sum(rates) / len(rates) for rates in (self.quiet, self.abused))
        return (
            f"{abused:.0f} commits/s under abuse, {quiet:.0f} without ({abused / quiet:.0%}); {self.connections}"
            f" connections; memory peak +{self.growth_mib:.1f} MiB"
        )


class Abuse:
    """Makes connections, ``count`` in all, at most ``rate`` a second, until it is cancelled or done."""

    def __init__(self, ports: list[int], count: int, rate: float, seed: int) -> None:
        self._ports = cycle(ports)
        self._left = count
        self._slow_ones = min(SLOW, count // 10)
        self._pause_s = 1 / rate
        self._rng = Random(seed)
        self._next = 0.0
        self.connections = 0
        self._kinds: Iterator[Callable[[trio.SocketStream], Awaitable[None]]] = cycle(
            [self._garbage, self._wrong_size, self._hello, self._cut_off, self._garbage]
        )

    async def run(self) -> None:
        """All of it."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._slow_ones):
                nursery.start_soon(self._slow)
            async with trio.open_nursery() as quick:
                for _ in range(AT_ONCE):
                    quick.start_soon(self._quick)
            nursery.cancel_scope.cancel()

    async def _quick(self) -> None:
        while self._left > 0:
            self._left -= 1
            self._next = max(self._next + self._pause_s, trio.current_time())
            await trio.sleep_until(self._next)
            await self._connect(next(self._kinds))

    async def _connect(self, act: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
        with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(5):
            stream = await trio.open_tcp_stream(HOST, next(self._ports))
            self.connections += 1
            try:
                await act(stream)
            finally:
                stream.socket.close()

    async def _garbage(self, stream: trio.SocketStream) -> None:
        await stream.send_all(self._rng.randbytes(self._rng.randrange(1, 3000)))
        with trio.move_on_after(PATIENCE_S):
            await stream.receive_some(100)

    async def _wrong_size(self, stream: trio.SocketStream) -> None:
        size = self._rng.choice(SIZES)
        await stream.send_all(pack(">i", size) + self._rng.randbytes(min(max(size, 0) + 3, 5000)))
        with trio.move_on_after(PATIENCE_S):
            await stream.receive_some(100)

    async def _cut_off(self, stream: trio.SocketStream) -> None:
        # A request of some kind whose body ends too early, or is not one.
        key, version = self._rng.choice((0, 1, 2, 18, 52, 53, 54, 55, 59, 80, 81, 82)), self._rng.randrange(20)
        frame = pack(">hhih", key, version, 1, -1) + self._rng.randbytes(self._rng.randrange(200))
        await stream.send_all(pack(">i", len(frame)) + frame)
        with trio.move_on_after(PATIENCE_S):
            await stream.receive_some(100)

    async def _hello(self, stream: trio.SocketStream) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        pipe = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="nobody")
        with suppress(ssl.SSLWantReadError):
            pipe.do_handshake()
        await stream.send_all(outgoing.read())
        with trio.move_on_after(PATIENCE_S):
            await stream.receive_some(100)

    async def _slow(self) -> None:
        while True:
            await self._connect(self._drip)
            await trio.sleep(0.05)

    async def _drip(self, stream: trio.SocketStream) -> None:
        for byte in pack(">ihhi", 2000, 18, 4, 1) + bytes(1000):
            await stream.send_all(bytes([byte]))
            await trio.sleep(self._rng.uniform(0.1, 0.5))


def peak_mib(member: Member) -> float:
    """The most memory that a process has had (VmHWM), MiB."""
    if member.process is None:
        return 0.0
    for line in Path(f"/proc/{member.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Siege(Round):
    """A quorum without proxies.

    Args:
        folder: an empty one.
        tls: fields of ``TlsConfig``; None: plain.
    """

    def __init__(self, folder: Path, tls: dict[str, object] | None = None) -> None:
        super().__init__(1, folder, 0.0)
        for member in self.members:
            member.proxy_port = member.port
        self.settings = {"tls": tls} if tls else {}
        self.figures = Figures()

    async def besiege(self, windows: int, window_s: float, connections: int, in_flight: int) -> Figures:
        """Alternate windows without and with abuse.

        Args:
            windows: of each kind.
            window_s: length of one.
            connections: of abuse in all.
            in_flight: proposals at a time.

        Raises:
            Broken: a node ended, or they do not hold the same.
        """
        self.format()
        try:
            for member in self.members:
                self.start(member)
            ports = {member.number: member.client_port for member in self.members}
            client = Client(1, ports, self.rng, self.outcomes)
            await self._load(client, 2.0, in_flight)  # until somebody leads, and everything is warm
            before = max(map(peak_mib, self.members))
            for number in range(windows):
                self.figures.quiet.append(await self._load(client, window_s, in_flight))
                count = connections // windows
                abuse = Abuse([member.port for member in self.members], count, 1.1 * count / window_s, number)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(abuse.run)
                    self.figures.abused.append(await self._load(client, window_s, in_flight))
                self.figures.connections += abuse.connections
                self.check_alive()
            self.figures.growth_mib = max(map(peak_mib, self.members)) - before
            client.close()
            await self._applied_by_all()
            async with trio.open_nursery() as ends:
                for member in self.members:
                    ends.start_soon(self._end, member, signal.SIGTERM)
        finally:
            for member in self.members:
                if member.process is not None:
                    member.process.kill()
                    member.process.wait()
        self._compare_logs()
        return self.figures

    async def _load(self, client: Client, seconds: float, in_flight: int) -> float:
        while True:
            for member in self.members:
                status = await client.ask(member.number, [0, 0, None, "status", []])
                if status is not None and status.get("leads"):
                    answer = await client.ask(
                        member.number, [0, 0, None, "load", [seconds, in_flight]], limit_s=seconds + 30
                    )
                    if answer is not None:
                        return answer["ok"] / seconds
            self.check_alive()
            await trio.sleep(0.1)


def certificates(folder: Path) -> dict[str, object]:
    """A certificate for the loopback interface, as fields of ``TlsConfig``."""
    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    folder.mkdir(parents=True, exist_ok=True)
    names = {name: str(folder / f"{name}.pem") for name in ("certificate", "ca")}
    issued.private_key_and_cert_chain_pem.write_to_path(names["certificate"])
    authority.cert_pem.write_to_path(names["ca"])
    return names


def run_siege(folder: Path, *, tls: bool, **how: float) -> Figures:
    """Run one; see ``Siege.besiege``."""
    files = certificates(folder / "tls") if tls else None
    return trio.run(partial(Siege(folder, files).besiege, **how))
