"""The accepting side: bounded, and quick to break connections of clients that do not speak Kafka's protocol."""

from __future__ import annotations

import contextlib
import errno
import socket
from math import inf
from typing import Any

import trio

from kraftcore.errors import LocalError, TransportError
from kraftcore.ownership import close_socket_in_children, no_forks
from kraftcore.ports.exchange import Responses
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Address, Admission, Origin, Parts, Serve
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp.connection import Connection, Shared
from kraftcore.transports.tcp.dial import NOT_FROM_HERE, tune
from kraftcore.transports.tcp.socket_files import bind_file, is_file
from kraftcore.transports.tcp.tls import TlsContexts

_BACKLOG = 1024
_ACCEPTS_IN_A_ROW = 8  # connections accepted before other tasks get their turn
_PORTS_TRIED = 5
_UNTAKEN_BYTES = 2**20  # of responses: further requests of the connection wait until the other side took some
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
_OUT_OF_RESOURCES_PAUSE_S = 0.1
_SAME_HOST = "a process of this host"


class ServerConnection(Connection):
    """An accepted connection.

    Attributes:
        ip: the other side's address without its port.
        is_proven: whether it was admitted, and sent a request that got a response.
        is_vital: whether it came in on a vital listener.
    """

    is_server = True

    def __init__(self, acceptor: Acceptor, listener: BoundListener, sock: socket.socket, peer: Address) -> None:
        tls = listener.tls.server_pipe() if listener.tls is not None else None
        super().__init__(acceptor.shared, sock, str(peer), tls)
        self.ip = self.host = peer.host
        self.is_proven = False
        self.is_vital = listener.is_vital
        self._acceptor = acceptor
        self._serve = listener.serve
        admission = listener.admission
        self._responses = Responses(self._respond, self._refused, self.hold)
        self._origin = Origin(
            listener.name,
            self.peer,
            None,
            admission is None,
            close=self._finish,
            wait=self._responses.wait,
            mute=self._responses.mute,
        )
        self._refusal = ("a request of its was refused", "")  # the node has logged why
        self._pause: trio.Event | None = None
        timeout_ms = acceptor.shared.limits.handshake_timeout_ms
        if admission is not None:
            timeout_ms = admission.timeout_ms
            self.min_frame_bytes = 0
            self._max_taken_bytes = min(admission.max_frame_bytes, self._max_frame_bytes)
        self._first_due = acceptor.shared.timer.now() + timeout_ms / 1000
        acceptor.shared.timer.by(self._first_due)

    def begin(self) -> bool:
        """Read the first bytes; False if they broke the connection already: most garbage needs no task."""
        self.advance_handshake()
        if self._tls is None:
            self._take()
        return self.is_open

    @uninterrupted
    async def run(self) -> None:
        """Read until the connection is broken."""
        readers = self._shared.readers
        if readers is None:
            await self.shake_hands()
            await self.read()
            return
        readers.members += 1
        try:
            await self.shake_hands()
            await self.read()
        finally:
            readers.members -= 1

    def tune(self) -> None:
        """Set the socket's options; later than ``begin``, for most garbage ends there."""
        with contextlib.suppress(OSError):  # a broken connection: the next read or write fails
            tune(self._sock)

    def on_established(self) -> None:
        """Give the origin the principal of the client's certificate."""
        if self._tls is not None:
            self._origin.subject = self._tls.principal()

    def on_frame(self, frame: bytes) -> None:
        """Have a request served."""
        if self._origin.is_admitted:
            self._first_due = inf
        self._serve(frame, self._origin, self._responses.ticket())

    def _respond(self, parts: Parts) -> None:
        try:
            if parts:
                self.write(parts)
        except LocalError as error:  # the server may serve other connections, too: only this one ends
            self.break_(Failure.OTHER, f"its response was too long: {error}", "long response")
            return
        if not self.is_proven and self._origin.is_admitted:
            self._admitted()
        if self._pause is not None:
            self.on_drained()

    def _admitted(self) -> None:
        self._first_due = inf
        self.min_frame_bytes = type(self).min_frame_bytes
        self._max_taken_bytes = self._max_frame_bytes
        self._acceptor.proven(self)

    def _finish(self) -> None:
        """See ``Origin.close``."""
        if self._responses.is_open and not self._responses.is_ending:
            self.refuse("it was told why", "")

    def refuse(self, why: str, kind: str) -> None:
        """Break the connection when the requests before are answered: Kafka answers each before it reads the next.

        A connection that is not admitted is broken at its deadline at the latest.
        """
        if self._origin.is_admitted:
            self._first_due = inf
        self._refusal = (why, kind)
        self._responses.ticket()(None)

    def _refused(self) -> None:
        self.end(Failure.OTHER, *self._refusal)

    def must_pause(self) -> bool:
        """Whether it has enough unanswered requests and untaken responses for now, or no more is to be read."""
        limits = self._shared.limits
        return (
            self._responses.is_ending
            or self._responses.is_waiting
            or len(self._responses) >= limits.max_in_flight
            or self._responses.early_bytes + self._outbox_bytes
            > min(limits.connection_memory_bytes // 2, _UNTAKEN_BYTES)
        )

    async def paused(self) -> None:
        """Wait until a response was sent."""
        self._pause = trio.Event()
        await self._pause.wait()
        self._pause = None

    def on_drained(self) -> None:
        """Read on if few enough bytes are unsent."""
        if self._pause is not None and not self.must_pause():
            self._pause.set()

    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return bool(self._responses)

    def sweep(self, now: float) -> float:
        """Do as the base class; also break the connection if its first request or its login is late."""
        if now >= self._first_due:
            what = "request" if self._origin.is_admitted else "proof of who it is"
            self.break_(Failure.TIMED_OUT, f"no {what} came in time", "silent")
            return inf
        return min(self._first_due, super().sweep(now))

    def on_broken(self, failure: Failure, why: str) -> None:
        """Forget the connection. Later replies are dropped."""
        self._responses.close()
        if self._pause is not None:
            self._pause.set()
        self._acceptor.gone(self)
        self._origin.ended()


class BoundListener:
    """A listener: its name, its sockets and its server; connections to a vital one have precedence."""

    def __init__(
        self,
        name: str,
        serve: Serve,
        sockets: list[socket.socket],
        tls: TlsContexts | None,
        admission: Admission | None,
        is_vital: bool,
    ) -> None:
        self.is_vital = is_vital
        self.name = name
        self.serve = serve
        self.sockets = sockets
        self.tls = tls
        self.admission = admission

    def close(self) -> None:
        """Accept no more connections."""
        for sock in self.sockets:
            if sock.fileno() >= 0:
                trio.lowlevel.notify_closing(sock.fileno())
                sock.close()


class Acceptor:
    """Accepts the connections of all listeners of a transport, within its limits."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._unproven: dict[ServerConnection, None] = {}  # oldest first
        self._by_ip: dict[str, int] = {}
        self._count = 0
        self._credit = 0.0  # connections that may be accepted now
        self._credited = 0.0  # when the credit was computed

    @uninterrupted
    async def accept(self, listener: BoundListener, sock: socket.socket) -> None:
        """Accept until the socket is closed."""
        while sock.fileno() >= 0:
            try:
                await trio.lowlevel.wait_readable(sock.fileno())
            except trio.ClosedResourceError:
                return
            await self._has_credit()
            for _ in range(min(_ACCEPTS_IN_A_ROW, int(self._credit))):
                try:
                    with no_forks:
                        arrived = sock.accept()
                        close_socket_in_children(arrived[0])
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno == errno.EBADF:
                        return
                    if error.errno in _OUT_OF_RESOURCES:
                        self.shared.complain("accept", f"listener {listener.name} cannot accept connections: {error}")
                        self._push_out(None)
                        await trio.sleep(_OUT_OF_RESOURCES_PAUSE_S)
                    break  # any other error: the connection that was to be accepted is broken
                sock_of_peer, peer = arrived
                self._accepted(listener, sock_of_peer, peer or (_SAME_HOST, 0))  # a Unix socket's peer has no address
                self._credit -= 1

    async def _has_credit(self) -> None:
        """Wait until a connection may be accepted."""
        rate = self.shared.limits.max_connection_creation_rate
        while True:
            now = self.shared.timer.now()
            burst = max(1.0, rate / 10)
            self._credit = min(burst, self._credit + (now - self._credited) * rate)
            self._credited = now
            if self._credit >= 1:
                return
            await trio.sleep(max(1 / rate, 0.01))

    def _accepted(self, listener: BoundListener, sock: socket.socket, peer: tuple[str, int]) -> None:
        limits = self.shared.limits
        ip = peer[0]
        has_many = self._by_ip.get(ip, 0) >= limits.max_connections_per_peer
        if has_many and not self._make_room(listener, ip):
            self._turn_away(sock, f"{ip} has {self._by_ip[ip]} connections, no more are allowed from one address")
            return
        if self._count >= limits.max_connections and not self._make_room(listener, None):
            self._turn_away(sock, f"connection from {ip}: there are {self._count} already, no more are allowed")
            return
        try:
            sock.setblocking(False)
        except OSError:  # the connection is broken already
            sock.close()
            return
        connection = ServerConnection(self, listener, sock, Address(ip, peer[1]))
        self._unproven[connection] = None
        self._by_ip[ip] = self._by_ip.get(ip, 0) + 1
        self._count += 1
        if connection.begin():
            self.shared.nursery.start_soon(connection.run)

    def _turn_away(self, sock: socket.socket, why: str) -> None:
        sock.close()
        self.shared.complain("too many connections", why)

    def _make_room(self, listener: BoundListener, ip: str | None) -> bool:
        """Break a connection (from ``ip``, if given) to make room for one to a listener; False: none may be broken."""
        return self._push_out(ip) or (listener.is_vital and self._push_out_client(ip))

    def _push_out(self, ip: str | None) -> bool:
        """Break the oldest connection (from ``ip``, if given) that is not proven; False: all are proven."""
        for connection in self._unproven:
            if ip is None or connection.ip == ip:
                connection.break_(
                    Failure.OTHER,
                    "its place was needed before it sent a request or proved itself",
                    "too many connections",
                )
                return True
        return False

    def _push_out_client(self, ip: str | None) -> bool:
        """Break a connection to a listener that is not vital, if possible the oldest without a request in progress."""
        found = [
            each
            for each in self.shared.connections
            if isinstance(each, ServerConnection) and not each.is_vital and ip in (None, each.ip)
        ]
        if not found:
            return False
        chosen = next((each for each in found if not each.is_busy()), found[0])
        chosen.break_(Failure.OTHER, "its place was needed for this process's peers", "too many connections")
        return True

    def proven(self, connection: ServerConnection) -> None:
        """Note that a connection was admitted and had a request answered."""
        connection.is_proven = True
        connection.tune()
        self._unproven.pop(connection, None)

    def gone(self, connection: ServerConnection) -> None:
        """Note that a connection was broken."""
        self._unproven.pop(connection, None)
        self._count -= 1
        left = self._by_ip[connection.ip] - 1
        if left:
            self._by_ip[connection.ip] = left
        else:
            del self._by_ip[connection.ip]


async def bind(address: Address) -> tuple[list[socket.socket], int]:
    """Sockets that listen on all addresses of a host, and their port; an empty host means every interface.

    A host that is a path (`is_file`) becomes a Unix socket there, for this user alone.

    Raises:
        TransportError: a socket cannot be bound.
    """
    if is_file(address.host):
        return [bind_file(address.host, _BACKLOG)], 0
    try:
        found = await trio.socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, ValueError, OverflowError) as error:
        raise TransportError(f"cannot listen on {address}: {error}") from error
    targets = list(dict.fromkeys((family, target) for family, _, _, _, target in found))
    tries_left = _PORTS_TRIED if address.port == 0 and len(targets) > 1 else 1
    while True:
        tries_left -= 1
        try:
            return _bind_all(targets, address.port)
        except (OSError, OverflowError) as error:
            # The port that was free on the first address is taken on another: try the next free one.
            if not tries_left or getattr(error, "errno", None) != errno.EADDRINUSE:
                raise TransportError(f"cannot listen on {address}: {error}") from error


def _bind_all(targets: list[Any], port: int) -> tuple[list[socket.socket], int]:
    """Sockets bound to the same port, and that port."""
    missing = None
    with contextlib.ExitStack() as undo:
        sockets: list[socket.socket] = []
        for family, target in targets:
            with no_forks:
                sock = undo.enter_context(close_socket_in_children(socket.socket(family, socket.SOCK_STREAM)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                sock.bind((target[0], port, *target[2:]))
            except OSError as error:
                sock.close()
                if error.errno not in NOT_FROM_HERE:
                    raise
                missing = error  # a name may have addresses of a family that this machine does not speak
                continue
            sock.listen(_BACKLOG)
            sock.setblocking(False)
            sockets.append(sock)
            port = sock.getsockname()[1]
        if missing is not None and not sockets:
            raise missing
        undo.pop_all()
    return sockets, port
