"""``TcpTransport``, the transport that a node uses."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from math import inf
from struct import Struct
from types import TracebackType
from typing import Self

import trio

from kraftcore.errors import LocalError
from kraftcore.ownership import Owned, belongs_here
from kraftcore.ports.complaints import Complaints, Log
from kraftcore.ports.exchange import answer_after_end
from kraftcore.ports.login import Login
from kraftcore.ports.nursery import open_nursery, uninterrupted
from kraftcore.ports.transport import Address, Admission, Answer, Parts, Serve
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp.client import Logins, Peer, Pending
from kraftcore.transports.tcp.connection import Shared
from kraftcore.transports.tcp.dial import Resolve, resolve_name
from kraftcore.transports.tcp.limits import Limits
from kraftcore.transports.tcp.readers import make_readers
from kraftcore.transports.tcp.server import Acceptor, BoundListener, ServerConnection, bind
from kraftcore.transports.tcp.timer import Timer
from kraftcore.transports.tcp.tls import TlsContexts, TlsSettings
from kraftcore.transports.tcp.tls_reload import TlsReload

TLS_RELOAD_MS = 10_000
_logger = logging.getLogger("kraftcore.transports.tcp")
_unpack_id = Struct(">i").unpack_from


class TcpTransport(Owned):
    """Kafka's framing over TCP, plain or TLS. Use it as ``async with TcpTransport(...) as transport``.

    Each peer has one connection, made when it is first needed and made again, after a growing and jittered pause, when
    it broke; names are resolved each time and all their addresses tried. Bytes that were handed over leave at once or
    are queued, up to ``connection_memory_bytes`` a connection.

    ``serve`` and the callbacks must not raise: their exceptions are raised by the ``async with``, like any error of a
    background task.

    Args:
        tls: files, as ``TlsFiles`` or any object with its attributes; None: no TLS. For connections that are made, and
            for listeners that are not in ``listener_tls``.
        listener_tls: TLS files by name of a listener; None: no TLS.
        tls_reload_ms: how often the TLS files are looked at; those that changed are read again (`TlsReload`). 0: only
            ``reload_tls`` does.
        login: makes the login of each connection that is made; None: requests are sent without one.
        vital_listeners: names of the listeners for the process's peers: when there are ``max_connections``, or
            ``max_connections_per_peer`` from an address, a connection to another listener makes room for theirs.
        resolve: finds the addresses behind a name.
        log: takes a line about a peer that misbehaves or cannot be reached; default: a warning of the logger
            ``kraftcore.transports.tcp``. Rate-limited.
        limits: bounds on resources: the fields of ``Limits`` (``max_frame_bytes=...``).

    Attributes:
        limits: the bounds, as one value.

    Raises:
        LocalError: a limit is out of range.
        TransportError: the TLS files do not work.
    """

    def __init__(
        self,
        *,
        tls: TlsSettings | None = None,
        listener_tls: Mapping[str, TlsSettings | None] | None = None,
        tls_reload_ms: int = TLS_RELOAD_MS,
        login: Login | None = None,
        vital_listeners: Collection[str] = (),
        resolve: Resolve = resolve_name,
        log: Log | None = None,
        **limits: int,
    ) -> None:
        self._tls = None if tls is None else TlsContexts(tls)
        others = (listener_tls or {}).items()
        self._listener_tls = {name: None if each is None else TlsContexts(each) for name, each in others}
        self._reload = TlsReload(self._used_tls, tls_reload_ms / 1000, self._warn) if tls_reload_ms else None
        self._logins = None if login is None else Logins(login)
        self.limits = Limits(**limits)
        self._vital_listeners = frozenset(vital_listeners)
        self._resolve = resolve
        self._log = log
        self._listeners: list[BoundListener] = []
        self._peers: dict[Address, Peer] = {}
        self._is_open = False

    @uninterrupted
    async def __aenter__(self) -> Self:
        # Two nurseries: closing cancels the inner one, and the closing task goes on inside the outer one.
        self._manager = open_nursery()
        outer = await self._manager.__aenter__()
        ready = trio.Event()
        outer.start_soon(self._keep_nursery, ready)
        try:
            await ready.wait()
        except BaseException as error:
            await self._manager.__aexit__(type(error), error, error.__traceback__)
            raise
        self._timer = Timer(self._sweep)
        complain = Complaints(self._warn, self._timer.now)
        self._readers = make_readers()
        self._shared = Shared(self.limits, self._timer, complain, self._nursery, self._readers, {}, {}, {})
        self._acceptor = Acceptor(self._shared)
        self._token = trio.lowlevel.current_trio_token()
        self._is_open = True
        self._nursery.start_soon(self._timer.run)
        if self._readers is not None:
            self._nursery.start_soon(self._readers.run)
        if self._reload is not None and self._used_tls:
            self._nursery.start_soon(self._reload.run)
        return self

    @uninterrupted
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if not belongs_here(self):
            return None
        try:
            self._close()
        finally:
            try:
                is_over = await self._manager.__aexit__(kind, error, trace)
            finally:
                if self._readers is not None:
                    self._readers.close()
        return is_over

    async def listen(
        self, listener: str, address: Address, serve: Serve, admission: Admission | None = None
    ) -> Address:
        """See ``Transport``. A name is bound on all its addresses; an empty host means every interface."""
        self._check_open()
        tls = self._listener_tls.get(listener, self._tls)
        if tls is not None:
            tls.check_server()
        sockets, port = await bind(address)
        self._check_open()
        one = BoundListener(listener, serve, sockets, tls, admission, listener in self._vital_listeners)
        self._listeners.append(one)
        for sock in sockets:
            self._nursery.start_soon(self._acceptor.accept, one, sock)
        return Address(address.host, port)

    def request(self, address: Address, parts: Parts, timeout_ms: int, answer: Answer) -> None:
        """See ``Transport``.

        Raises:
            LocalError: the frame is too short or too long, a request with its correlation id is on its way to that peer
                already, or the transport was never opened; ``answer`` is not called.
        """
        size = 0
        for part in parts:
            size += len(part)
        if not 8 <= size <= self.limits.max_frame_bytes:
            raise LocalError(f"a request of {size} bytes: 8 to {self.limits.max_frame_bytes} are allowed")
        first = parts[0]
        (correlation_id,) = _unpack_id(first if len(first) >= 8 else b"".join(parts), 4)
        if not self._is_open:
            if not hasattr(self, "_token"):
                raise LocalError("the transport was never opened: use it as `async with TcpTransport(...)`")
            answer_after_end(self._token, answer, Failure.OTHER)
            return
        timer = self._timer
        now = timer.now()
        due = now + timeout_ms / 1000
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(self._shared, address, self._resolve, self._tls, self._logins)
        peer.request(correlation_id, parts, Pending(answer, now, due, size))
        if due < timer.next:
            timer.by(due)

    async def aclose(self) -> None:
        """See ``Transport``; leaving the ``async with`` does it."""
        self._close()
        await trio.lowlevel.checkpoint()

    @property
    def connections(self) -> tuple[int, int]:
        """Number of open connections: (accepted, made by this side)."""
        accepted = sum(isinstance(one, ServerConnection) for one in self._shared.connections)
        return accepted, len(self._shared.connections) - accepted

    def connection_error(self, address: Address) -> str | None:
        """Why the last connection to an address came to nothing, as an expired certificate; None if it did not."""
        return self._shared.errors.get(address)

    def login_error(self, address: Address) -> str | None:
        """Why the last login at an address failed; None if it did not. A request gets ``Failure.UNAUTHENTICATED``."""
        return None if self._logins is None else self._logins.refusal(address)

    def reload_tls(self) -> None:
        """Read the TLS files of all listeners again; open connections stay as they are.

        Raises:
            TransportError: a file does not work; all old ones stay in use.
            LocalError: this transport uses no TLS.
        """
        used = self._used_tls
        if not used:
            raise LocalError("this transport uses no TLS")
        loaded = [each.load() for each in used]
        for contexts, found in zip(used, loaded, strict=True):
            contexts.use(found)

    @property
    def _used_tls(self) -> list[TlsContexts]:
        return [each for each in (self._tls, *self._listener_tls.values()) if each is not None]

    def _warn(self, text: str) -> None:
        (_logger.warning if self._log is None else self._log)(text)

    def _check_open(self) -> None:
        if not self._is_open:
            raise LocalError("the transport is not open: use it as `async with TcpTransport(...)`, before it is closed")

    def _sweep(self, now: float) -> float:
        following = inf
        for connection in list(self._shared.connections):
            if connection.is_open:
                following = min(following, connection.sweep(now))
        for address, peer in list(self._peers.items()):
            following = min(following, peer.sweep(now))
            if peer.is_unused(now):
                del self._peers[address]
        return following

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        with ExitStack() as stack:  # closes all, the last first, even when a callback raises
            stack.callback(self._nursery.cancel_scope.cancel)
            stack.callback(self._timer.run_later)
            for peer in self._peers.values():
                stack.callback(peer.close)
            for connection in self._shared.connections:
                stack.callback(connection.break_, Failure.OTHER, "this side closes")
            for listener in self._listeners:
                stack.callback(listener.close)

    @uninterrupted
    async def _keep_nursery(self, ready: trio.Event) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                ready.set()
                await trio.sleep_forever()
        finally:
            self._close()
