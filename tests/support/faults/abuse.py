"""A quorum that commits while its listeners are abused: garbage, wrong sizes, slow senders, the wrong protocol, logins
that are begun and left.

The quorum is three processes; the abuse comes from this one, one kind after the other and then all at once. What is
looked at: how much is committed in windows with abuse beside windows without, the peak of memory in both, and that the
nodes hold the same in the end.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from struct import pack

import trio

from faults.client import Client
from faults.rounds import HOST, Member, Round
from faults.standing import GIVEN_UP_MS, StandingLogins
from kraftcore.protocol.frames import encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest

SIZES = (-(2**31), -5, -1, 0, 1, 3, 7, 8, 9, 14, 100, 2**20, 100 * 2**20, 100 * 2**20 + 1, 2**31 - 1)
SLOW = 300  # senders of a byte now and then, at a time, at most
AT_ONCE = 200  # connections of the other kinds
PATIENCE_S = 0.2  # for an answer, or to be thrown out
EVERYTHING = "all at once"
HELD = 10_000  # logins that were begun and left, at a time
FILES = HELD + 2000
STANDING = "standing"
SASL = {"mechanisms": ["PLAIN", "SCRAM-SHA-256"], "users": {"node": "secret"}}
LOGIN = {"mechanism": "PLAIN", "username": "node", "password": "secret"}


@dataclass
class Figures:
    """What was seen of one kind of abuse; the largest process's memory.

    Attributes:
        kind: which.
        connections: that were made.
        quiet: commits a second in the windows without abuse, before each with it.
        abused: and in those with it.
        quiet_cpu: seconds of processor time that the three nodes took in the windows without.
        abused_cpu: and in those with it.
        quiet_mib: peak of memory in the windows without.
        abused_mib: and in those with it.
        attacker: share of a core that the abuse's own side took.
        standing: half-open logins that were open at the end of each window with abuse, at least; None of other kinds.
    """

    kind: str
    connections: int = 0
    quiet: float = 0.0
    abused: float = 0.0
    quiet_cpu: float = 0.0
    abused_cpu: float = 0.0
    quiet_mib: float = 0.0
    abused_mib: float = 0.0
    attacker: float = 0.0
    standing: int | None = None

    @property
    def ratio(self) -> float:
        """What abuse leaves of the rate."""
        return self.abused / self.quiet if self.quiet else 0.0

    def row(self) -> dict[str, object]:
        """For JSON."""
        rounded = {name: round(value, 2) if type(value) is float else value for name, value in vars(self).items()}
        return {**rounded, "ratio": round(self.ratio, 3), "cost_us": self.cost_us and round(self.cost_us)}

    @property
    def cost_us(self) -> float | None:
        """Processor time of the nodes a connection, beyond what their commits take; other programs are not in it.

        None of connections that last: theirs is a matter of how long.
        """
        if self.kind in ("slow senders", STANDING) or not self.quiet or not self.connections:
            return None
        return 1e6 * (self.abused_cpu - self.ratio * self.quiet_cpu) / self.connections

    def add_abused(self, rate: float, work: float, peak: float, windows: int) -> None:
        """Take in what was seen in one of so many windows with abuse."""
        self.abused += rate / windows
        self.abused_cpu += work
        self.abused_mib = max(self.abused_mib, peak)

    HEAD = (
        f"{'':14}{'connections':>12}{'commits/s':>11}{'abused':>9}{'ratio':>7}{'us each':>9}{'MiB':>7}{'abused':>8}"
        f"{'attacker':>10}"
    )

    def __str__(self) -> str:
        cost = "-" if self.cost_us is None else f"{self.cost_us:.0f}"
        return (
            f"{self.kind:14}{self.connections:12,}{self.quiet:11,.0f}{self.abused:9,.0f}{self.ratio:7.2f}"
            f"{cost:>9}{self.quiet_mib:7.1f}{self.abused_mib:8.1f}{self.attacker:10.0%}"
        )


class Abuse:
    """Makes connections, ``count`` in all, at most ``rate`` a second, until it is cancelled or done.

    Args:
        kind: one of `kinds`.
        ports: where.
        count: how many; slow senders come anew as long as it lasts.
        rate: a second.
        seed: of what is drawn.
        tls: whether the ports speak TLS.
        sasl: whether they want a login.

    Attributes:
        connections: that were made.
        has_end: whether it ends by itself.
    """

    def __init__(
        self, kind: str, ports: list[int], count: int, rate: float, seed: int, *, tls: bool, sasl: bool = False
    ) -> None:
        self._ports = cycle(ports)
        self._pause_s = 1 / rate
        self._rng = Random(seed)
        self._next = 0.0
        self.connections = 0
        self._greetings = cycle(_requests() if tls else _client_hellos())
        self._held: deque[socket.socket] = deque()
        self._begun = _begun_login() if sasl else b""
        by_kind = self.by_kind(tls, sasl)
        acts = [act for name, acts in by_kind.items() for act in acts if kind in (name, EVERYTHING)]
        slow = by_kind["slow senders"][0]
        self._slow_ones = min(SLOW, count // 10) if slow in acts else 0
        quick = [act for act in acts if act != slow]
        self._acts: Iterator[Callable[[socket.socket], Awaitable[None]]] = cycle(quick)
        self._left = count if quick else 0
        self.has_end = bool(quick)

    def by_kind(self, tls: bool, sasl: bool) -> dict[str, list[Callable[[socket.socket], Awaitable[None]]]]:
        return {
            "garbage": [self._garbage, self._cut_off],
            "wrong sizes": [self._wrong_size],
            "slow senders": [self._drip],
            ("plain to TLS" if tls else "TLS to plain"): [self._greet],
            **({"half-open": [self._begin_login]} if sasl else {}),
        }

    @classmethod
    def kinds(cls, tls: bool, sasl: bool) -> list[str]:
        """What there is for listeners that speak TLS, or do not, and want a login, or do not."""
        return [*cls("", [0], 0, 1, 0, tls=tls).by_kind(tls, sasl), EVERYTHING]

    async def run(self) -> None:
        """All of it."""
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(self._slow_ones):
                    nursery.start_soon(self._slow)
                if self.has_end:
                    async with trio.open_nursery() as quick:
                        for _ in range(AT_ONCE):
                            quick.start_soon(self._quick)
                    nursery.cancel_scope.cancel()
        finally:
            while self._held:
                self._held.pop().close()

    async def _quick(self) -> None:
        while self._left > 0:
            self._left -= 1
            self._next = max(self._next + self._pause_s, trio.current_time())
            await trio.sleep_until(self._next)
            await self._connect(next(self._acts))

    async def _connect(self, act: Callable[[socket.socket], Awaitable[None]]) -> None:
        # Bare sockets: what the abuse takes of the processors is missing in the quorum's figures.
        sock = socket.socket()
        with suppress(OSError), sock, trio.move_on_after(5):
            sock.setblocking(False)
            if sock.connect_ex((HOST, next(self._ports))) == errno.EINPROGRESS:
                await trio.lowlevel.wait_writable(sock)
            self.connections += 1
            await act(sock)

    async def _send(self, sock: socket.socket, data: bytes) -> None:
        sock.send(data)
        with trio.move_on_after(PATIENCE_S):
            await trio.lowlevel.wait_readable(sock)

    async def _garbage(self, sock: socket.socket) -> None:
        await self._send(sock, self._rng.randbytes(self._rng.randrange(1, 3000)))

    async def _wrong_size(self, sock: socket.socket) -> None:
        size = self._rng.choice(SIZES)
        await self._send(sock, pack(">i", size) + self._rng.randbytes(min(max(size, 0) + 3, 5000)))

    async def _cut_off(self, sock: socket.socket) -> None:
        # A request of some kind whose body ends too early, or is not one.
        key, version = self._rng.choice((0, 1, 2, 18, 52, 53, 54, 55, 59, 80, 81, 82)), self._rng.randrange(20)
        frame = pack(">hhih", key, version, 1, -1) + self._rng.randbytes(self._rng.randrange(200))
        await self._send(sock, pack(">i", len(frame)) + frame)

    async def _greet(self, sock: socket.socket) -> None:
        await self._send(sock, next(self._greetings))

    async def _begin_login(self, sock: socket.socket) -> None:
        # Up to the point where the server waits for the proof; then it is left there.
        sock.send(self._begun)
        if len(self._held) >= HELD:
            self._held.popleft().close()
        self._held.append(sock.dup())

    async def _slow(self) -> None:
        while True:
            await self._connect(self._drip)
            await trio.sleep(0.05)

    async def _drip(self, sock: socket.socket) -> None:
        for byte in pack(">ihhi", 2000, 18, 4, 1) + bytes(1000):
            sock.send(bytes([byte]))
            await trio.sleep(self._rng.uniform(0.2, 1.0))


def _client_hellos() -> list[bytes]:
    """What clients of TLS say first; made beforehand, as a context is dear."""
    context = ssl.create_default_context()
    hellos = []
    for _ in range(20):
        outgoing = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="nobody").do_handshake()
        hellos.append(outgoing.read())
    return hellos


def _requests() -> list[bytes]:
    """Sound requests, only not in TLS."""
    request = ApiVersionsRequest(client_software_name="plain", client_software_version="1")
    frames = [encode_request(request, 4, correlation_id=number) for number in range(20)]
    return [pack(">i", len(frame)) + frame for frame in frames]


def _begun_login() -> bytes:
    """Versions, the handshake, and SCRAM's first message."""
    requests = (
        (ApiVersionsRequest(), 0),
        (SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
        (SaslAuthenticateRequest(auth_bytes=b"n,,n=nobody,r=abcdefgh"), 2),
    )
    frames = [encode_request(request, version, number) for number, (request, version) in enumerate(requests)]
    return b"".join(pack(">i", len(frame)) + frame for frame in frames)


def worked_s(member: Member) -> float:
    """Processor time that a process has taken, user and system, seconds."""
    if member.process is None:
        return 0.0
    fields = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_peak(member: Member) -> None:
    """Let `peak_mib` begin anew."""
    if member.process is not None:
        with suppress(OSError):  # no such file in some containers: the peak is that of its life
            Path(f"/proc/{member.process.pid}/clear_refs").write_text("5")


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
        sasl: whether nodes log in at each other.
        standing: half-open logins that stay are all of the abuse; the nodes have places for them.
    """

    def __init__(
        self, folder: Path, tls: dict[str, object] | None = None, *, sasl: bool = False, standing: bool = False
    ) -> None:
        super().__init__(1, folder, 0.0)
        for member in self.members:
            member.proxy_port = member.port
        self.settings = {"tls": tls} if tls else {}
        if sasl:
            self.settings |= {"listener_sasl": {"CONTROLLER": SASL}, "sasl": LOGIN}
        if standing:
            self.settings |= {"max_connections": FILES, "max_connections_per_peer": FILES}
            self.settings["handshake_timeout_ms"] = GIVEN_UP_MS
        self._tls, self._sasl = tls is not None, sasl
        self._kinds = [STANDING] if standing else Abuse.kinds(self._tls, self._sasl)

    async def besiege(self, windows: int, window_s: float, connections: int, in_flight: int) -> list[Figures]:
        """Alternate windows without and with abuse, one kind after the other.

        Args:
            windows: of each, for each kind.
            window_s: length of one.
            connections: of each kind.
            in_flight: proposals at a time.

        Returns:
            Figures of each kind.

        Raises:
            Broken: a node ended, or they do not hold the same.
        """
        self.format()
        found = [Figures(kind) for kind in self._kinds]
        try:
            for member in self.members:
                self.start(member)
            ports = {member.number: member.client_port for member in self.members}
            client = Client(1, ports, self.rng, self.outcomes)
            await self._load(client, 2.0, in_flight)  # until somebody leads, and everything is warm
            for figures in found:
                for number in range(windows):
                    quiet, work, peak = await self._window(client, window_s, in_flight)
                    figures.quiet += quiet / windows
                    figures.quiet_cpu += work
                    figures.quiet_mib = max(figures.quiet_mib, peak)
                    if figures.kind == STANDING:
                        await self._window_among_standing(figures, client, windows, window_s, connections, in_flight)
                    else:
                        await self._abused_window(figures, client, windows, window_s, connections, in_flight, number)
                    self.check_alive()
            client.close()
            await self._applied_by_all()
            async with trio.open_nursery() as ends:
                for member in self.members:
                    ends.start_soon(self._end, member, signal.SIGTERM)
        finally:
            self.kill_all()
        self.compare_logs()
        return found

    async def _abused_window(
        self,
        figures: Figures,
        client: Client,
        windows: int,
        window_s: float,
        connections: int,
        in_flight: int,
        number: int,
    ) -> None:
        count = connections // windows
        rate = 1.1 * count / window_s
        ports = [member.port for member in self.members]
        abuse = Abuse(figures.kind, ports, count, rate, number, tls=self._tls, sasl=self._sasl)
        begin, worked = time.monotonic(), time.process_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abuse.run)
            seen = await self._window(client, window_s, in_flight)
            figures.attacker += (time.process_time() - worked) / (time.monotonic() - begin) / windows
            if not abuse.has_end:
                nursery.cancel_scope.cancel()
        figures.add_abused(*seen, windows)
        figures.connections += abuse.connections

    async def _window_among_standing(
        self, figures: Figures, client: Client, windows: int, window_s: float, count: int, in_flight: int
    ) -> None:
        """They are all there before the window begins, and are renewed in it; they go before the next one does."""
        logins = StandingLogins(HOST, [member.port for member in self.members], count, _begun_login())
        try:
            await logins.fill()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(logins.run)
                await self._load(client, window_s, in_flight)
                begin, worked = time.monotonic(), time.process_time()
                seen = await self._window(client, window_s, in_flight)
                figures.attacker += (time.process_time() - worked) / (time.monotonic() - begin) / windows
                nursery.cancel_scope.cancel()
            standing = logins.open_now()
        finally:
            logins.close()
        await self._load(client, window_s, in_flight)
        figures.add_abused(*seen, windows)
        figures.connections += logins.connections
        figures.standing = standing if figures.standing is None else min(figures.standing, standing)

    async def _window(self, client: Client, seconds: float, in_flight: int) -> tuple[float, float, float]:
        """Commits a second, processor time of all nodes, and the peak of memory, MiB."""
        for member in self.members:
            forget_peak(member)
        before = sum(map(worked_s, self.members))
        rate = await self._load(client, seconds, in_flight)
        return rate, sum(map(worked_s, self.members)) - before, max(map(peak_mib, self.members))

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


def allow_files() -> None:
    """As many open files as there may be connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(hard, FILES), hard)
        )


def run_siege(folder: Path, *, tls: bool, sasl: bool = False, standing: bool = False, **how: float) -> list[Figures]:
    """Run one; see ``Siege.besiege``."""
    allow_files()
    files = certificates(folder / "tls") if tls else None
    return trio.run(partial(Siege(folder, files, sasl=sasl, standing=standing).besiege, **how))
