"""The connecting side: one connection a peer, requests pipelined on it and matched by correlation id."""

from __future__ import annotations

import random
import socket
from math import inf
from struct import Struct

import trio

from kraftcore.errors import LocalError
from kraftcore.ports.transport import Address, Answer, Parts
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp.connection import Connection, Shared
from kraftcore.transports.tcp.dial import DialError, Resolve, dial
from kraftcore.transports.tcp.tls import TlsContexts, TlsPipe

_unpack_id = Struct(">i").unpack_from


class Pending:
    """A request on its way.

    Attributes:
        answer: None once it was called: the response is still to come, and will be dropped.
        sent: seconds of trio's clock.
        due: the same.
        size: bytes of its frame.
        arrivals: how often something had come on the connection when it was sent.
    """

    __slots__ = ("answer", "arrivals", "due", "sent", "size")

    def __init__(self, answer: Answer, sent: float, due: float, size: int) -> None:
        self.answer: Answer | None = answer
        self.sent = sent
        self.due = due
        self.size = size
        self.arrivals = 0


class ClientConnection(Connection):
    """The connection to a peer. ``pending`` by correlation id, in the order sent."""

    min_frame_bytes = 4

    def __init__(self, shared: Shared, sock: socket.socket, peer: Peer, tls: TlsPipe | None) -> None:
        super().__init__(shared, sock, str(peer.address), tls)
        self.pending: dict[int, Pending] = {}
        self.answered = False
        self._owner = peer

    def request(self, correlation_id: int, parts: Parts, pending: Pending) -> None:
        """Send, and remember who wants the answer."""
        if correlation_id in self.pending:
            raise LocalError(f"correlation id {correlation_id} is on its way to {self.peer} already")
        if self._outbox and self._outbox_bytes + pending.size > self._shared.limits.connection_memory_bytes:
            self._owner.overflow(pending, self._outbox_bytes)
            return
        self.pending[correlation_id] = pending
        pending.arrivals = self.arrivals
        self.write(parts)

    def on_established(self) -> None:
        """Send what waited for the handshake."""
        self._owner.established(self)

    def on_frame(self, frame: bytes) -> None:
        """Hand the response to whom it belongs."""
        (correlation_id,) = _unpack_id(frame)
        pending = self.pending.pop(correlation_id, None)
        if pending is None:
            self.break_(Failure.OTHER, f"it answered correlation id {correlation_id}, which nobody asked", "garbage")
            return
        self.answered = True
        if pending.answer is not None:
            pending.answer(frame)

    def on_broken(self, failure: Failure, why: str) -> None:
        """Tell everybody who waits."""
        self._owner.broken(self, failure)
        pending, self.pending = self.pending, {}
        for one in pending.values():
            if one.answer is not None:
                one.answer(failure)

    def is_busy(self) -> bool:
        """Whether a response is to come."""
        return bool(self.pending)

    def sweep(self, now: float) -> float:
        """As in the base class; also time out requests, and break the connection if it is stuck."""
        following = super().sweep(now)
        late: list[Answer] = []
        stuck_due, waited_for = inf, 0
        for one in self.pending.values():
            if one.answer is not None:
                if one.due > now:
                    following = min(following, one.due)
                    waited_for += 1
                    continue
                late.append(one.answer)
                one.answer = None
            if one.arrivals == self.arrivals:
                stuck_due = min(stuck_due, one.sent + self._shared.limits.stuck_timeout_ms / 1000)
        for answer in late:
            answer(Failure.TIMED_OUT)
        if now >= stuck_due or len(self.pending) - waited_for > self._shared.limits.max_in_flight:
            self.break_(Failure.TIMED_OUT, "requests timed out and nothing comes any more", "stuck")
            return inf
        return min(following, stuck_due)


class Peer:
    """An address, the connection to it, and the requests that wait for a connection."""

    def __init__(self, shared: Shared, address: Address, resolve: Resolve, tls: TlsContexts | None) -> None:
        self.address = address
        self.connection: ClientConnection | None = None
        self._shared = shared
        self._resolve = resolve
        self._tls = tls
        self._waiting: dict[int, tuple[Parts, Pending]] = {}
        self._waiting_bytes = 0
        self._running = False
        self._backoff_ms = 0
        self._not_before = 0.0

    def request(self, correlation_id: int, parts: Parts, pending: Pending) -> None:
        """Send it, or let it wait for a connection."""
        if self.connection is not None:
            self.connection.request(correlation_id, parts, pending)
            return
        if correlation_id in self._waiting:
            raise LocalError(f"correlation id {correlation_id} waits for a connection to {self.address} already")
        if self._waiting and self._waiting_bytes + pending.size > self._shared.limits.connection_memory_bytes:
            self.overflow(pending, self._waiting_bytes)
            return
        self._waiting[correlation_id] = parts, pending
        self._waiting_bytes += pending.size
        if not self._running:
            self._running = True
            self._shared.nursery.start_soon(self._run)

    def overflow(self, pending: Pending, waiting_bytes: int) -> None:
        """Fail a request that would take more memory than one peer may have."""
        if pending.answer is not None:
            self._shared.watch.later(pending.answer, Failure.OTHER)
        self._shared.complain("full", f"{self.address} takes nothing: {waiting_bytes} bytes wait for it already")

    async def _run(self) -> None:
        """Connect and read, as long as somebody waits for it."""
        while self._waiting:
            await trio.sleep_until(self._not_before)
            if self._waiting:
                await self._connect_and_read()
        self._running = False

    async def _connect_and_read(self) -> None:
        timeout_s = self._shared.limits.handshake_timeout_ms / 1000
        try:
            sock = await dial(self.address, self._resolve, timeout_s)
        except DialError as error:
            self._failed(error.failure, str(error))
            return
        try:
            pipe = None if self._tls is None else self._tls.client_pipe(self.address.host)
        except ValueError as error:
            sock.close()
            self._failed(Failure.OTHER, str(error))
            return
        connection = ClientConnection(self._shared, sock, self, pipe)
        with trio.move_on_after(timeout_s):
            await connection.shake_hands()
        if self.connection is not connection:
            connection.break_(Failure.OTHER, "the TLS handshake took too long", "TLS")
        await connection.read()

    def _failed(self, failure: Failure, why: str) -> None:
        self._shared.complain(f"connecting to {self.address}", f"cannot connect to {self.address}: {why}")
        self._back_off()
        self._fail_waiting(failure)

    def established(self, connection: ClientConnection) -> None:
        """Requests may be sent from now on; those that waited go first."""
        self.connection = connection
        now = self._shared.watch.now()
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for correlation_id, (parts, pending) in waiting.items():
            pending.sent = now
            connection.request(correlation_id, parts, pending)

    def broken(self, connection: ClientConnection, failure: Failure) -> None:
        """The connection is gone, or never came about."""
        if connection.answered:
            self._backoff_ms = 0
            self._not_before = 0.0
        else:
            self._back_off()
        if self.connection is connection:
            self.connection = None
        else:
            self._fail_waiting(failure)

    def sweep(self, now: float) -> float:
        """Time out what waits for a connection. Returns the next deadline."""
        late = [correlation_id for correlation_id, (_, pending) in self._waiting.items() if pending.due <= now]
        answers = []
        for correlation_id in late:
            _, pending = self._waiting.pop(correlation_id)
            self._waiting_bytes -= pending.size
            answers.append(pending.answer)
        following = min((pending.due for _, pending in self._waiting.values()), default=inf)
        for answer in answers:
            if answer is not None:
                answer(Failure.TIMED_OUT)
        return following

    def is_unused(self, now: float) -> bool:
        """Whether it may be forgotten."""
        return not self._running and now >= self._not_before

    def close(self) -> None:
        """Fail what waits."""
        self._fail_waiting(Failure.OTHER)

    def _back_off(self) -> None:
        limits = self._shared.limits
        self._backoff_ms = min(max(2 * self._backoff_ms, limits.reconnect_backoff_ms), limits.reconnect_backoff_max_ms)
        self._not_before = self._shared.watch.now() + self._backoff_ms / 1000 * random.uniform(0.8, 1.2)

    def _fail_waiting(self, failure: Failure) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for _, pending in waiting.values():
            if pending.answer is not None:
                pending.answer(failure)
