"""The connecting side: one connection for each peer, requests pipelined on it and matched by correlation id.

If a login is needed first (``Login``), requests wait for it as they wait for the connection. The login is renewed when
most of its lifetime is over: new requests wait until all requests in flight are answered and the login is complete.
"""

from __future__ import annotations

import random
import socket
from math import inf
from struct import Struct

import trio

from kraftcore.errors import AuthenticationError, LocalError
from kraftcore.ports.login import ClientSession, Login
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Address, Answer, Parts
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp.connection import Connection, Shared
from kraftcore.transports.tcp.dial import DialError, Resolve, dial
from kraftcore.transports.tcp.tls import TlsContexts, TlsPipe

_unpack_id = Struct(">i").unpack_from

# The part of a login's lifetime after which it is renewed, as in Kafka's clients; never sooner than servers allow.
_RENEWED_AFTER = (0.85, 0.95)
_RENEWED_AFTER_S = 1.0
_LOGIN_FRAME_BYTES = 512 * 1024  # longest frame before the login is complete; the limit of Kafka's servers
_REFUSALS = 1000  # addresses whose last refusal is kept; a forgotten one is logged again
_ERRORS_MAX = 1000  # addresses for which it is kept why no connection came about


class Pending:
    """A request in flight.

    Attributes:
        answer: gets the response; None once it was called: the response will be dropped.
        sent: when it was sent, seconds of trio's clock.
        due: when it times out, seconds of trio's clock.
        size: bytes of its frame.
        arrivals: the connection's ``arrivals`` when it was sent.
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

    def __init__(
        self, shared: Shared, sock: socket.socket, peer: Peer, tls: TlsPipe | None, session: ClientSession | None
    ) -> None:
        super().__init__(shared, sock, str(peer.address), tls)
        self.pending: dict[int, Pending] = {}
        self.answered = False
        self._owner = peer
        self._session = session
        self._login_began = 0.0
        self._login_due = inf  # when the login under way times out
        self._renewal_due = inf
        self._arrivals_at_login = 0

    def request(self, correlation_id: int, parts: Parts, pending: Pending) -> None:
        """Send a request, and keep ``pending`` for its answer."""
        if correlation_id in self.pending:
            raise LocalError(f"correlation id {correlation_id} is on its way to {self.peer} already")
        if self._outbox and self._outbox_bytes + pending.size > self._shared.limits.connection_memory_bytes:
            self._owner.overflow(pending, self._outbox_bytes)
            return
        self.pending[correlation_id] = pending
        pending.arrivals = self.arrivals
        self.write(parts)

    @property
    def is_established(self) -> bool:
        """Whether TLS, if there is any, is done."""
        return self._is_established

    def on_established(self) -> None:
        """Log in, or send the requests that waited for the handshake."""
        if self._session is None:
            self._owner.established(self)
        else:
            self._max_taken_bytes = min(self._max_frame_bytes, _LOGIN_FRAME_BYTES)
            self._log_in(self._session, is_first=True)

    def _log_in(self, session: ClientSession, *, is_first: bool) -> None:
        timer = self._shared.timer
        self._login_began = timer.now()
        self._login_due = self._login_began + self._shared.limits.handshake_timeout_ms / 1000
        self._renewal_due = inf
        timer.by(self._login_due)
        try:
            self.write(session.begin() if is_first else session.renew())
        except AuthenticationError as error:
            self._owner.refused(self, error)

    def _take_login(self, session: ClientSession, frame: bytes) -> None:
        """Take a frame of the login that is under way."""
        try:
            parts = session.take(frame)
        except AuthenticationError as error:
            self._owner.refused(self, error)
            return
        if parts is not None:
            self.write(parts)
            return
        self._login_due = inf
        self._max_taken_bytes = self._max_frame_bytes
        self._arrivals_at_login = self.arrivals
        lifetime_ms = session.lifetime_ms
        if lifetime_ms is not None:
            now = self._shared.timer.now()
            due = now + lifetime_ms / 1000 * random.uniform(*_RENEWED_AFTER)
            self._renewal_due = max(due, self._login_began + _RENEWED_AFTER_S)
            self._shared.timer.by(self._renewal_due)
        self._owner.established(self)

    @uninterrupted
    async def _renew(self, session: ClientSession) -> None:
        """Renew the login before its lifetime ends."""
        try:
            await session.prepare()
        except AuthenticationError as error:
            self._owner.refused(self, error)
            return
        if self.is_open:
            self._owner.paused(self)
            self._log_in(session, is_first=False)

    def on_frame(self, frame: bytes) -> None:
        """Hand a response to the request that waits for it."""
        (correlation_id,) = _unpack_id(frame)
        pending = self.pending.pop(correlation_id, None)
        if pending is None:
            if self._session is not None and self._login_due != inf and correlation_id < 0:
                self._take_login(self._session, frame)
                return
            self.break_(Failure.OTHER, f"it answered correlation id {correlation_id}, which nobody asked", "garbage")
            return
        self.answered = True
        if pending.answer is not None:
            pending.answer(frame)

    def on_broken(self, failure: Failure, why: str) -> None:
        """Fail all requests that wait."""
        if failure is Failure.RESET and self._login_due != inf and not self.answered:
            self._owner.interrupted(why)
        self._owner.broken(self, failure, why)
        pending, self.pending = self.pending, {}
        for one in pending.values():
            if one.answer is not None:
                one.answer(failure)

    def is_busy(self) -> bool:
        """Whether a request waits for its response."""
        return bool(self.pending) or self._login_due != inf

    def sweep(self, now: float) -> float:
        """Do as the base class; also time out requests, and break the connection if it is stuck."""
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
            self.break_(Failure.TIMED_OUT, "requests timed out and nothing comes any more", f"stuck {self.peer}")
            return inf
        if now >= self._login_due:
            if not self.pending:
                self.break_(Failure.OTHER, "the login took too long", "login")
                return inf
            self._login_due = now + self._shared.limits.handshake_timeout_ms / 1000  # requests in flight come first
        if now >= self._renewal_due and self._session is not None and self.is_open:
            self._renewal_due = inf
            if self.arrivals == self._arrivals_at_login and not self.pending:
                self.break_(Failure.OTHER, "nobody needs it any longer")
                return inf
            self._shared.nursery.start_soon(self._renew, self._session)
        return min(following, stuck_due, self._login_due, self._renewal_due)


class Logins:
    """The logins of a transport at all its peers, whatever the lane."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._refusals: dict[Address, str] = {}

    def session(self, address: Address) -> ClientSession:
        """Make the session of a connection to an address."""
        return self._login(address)

    def refusal(self, address: Address) -> str | None:
        """Why the last login at an address failed; None if it did not."""
        return self._refusals.get(address._replace(lane=0))

    def failed(self, address: Address, text: str) -> bool:
        """Keep why a login at an address failed; returns whether that is new."""
        if len(self._refusals) >= _REFUSALS:
            self._refusals.clear()
        key = address._replace(lane=0)
        is_news = self._refusals.get(key) != text
        self._refusals[key] = text
        return is_news

    def succeeded(self, address: Address) -> None:
        """Note that a login at an address is complete."""
        self._refusals.pop(address._replace(lane=0), None)


class Peer:
    """An address, the connection to it, and the requests that wait for a connection.

    Attributes:
        address: of the peer.
        connection: on which requests are sent; None: there is none, or its login is under way.
    """

    def __init__(
        self,
        shared: Shared,
        address: Address,
        resolve: Resolve,
        tls: TlsContexts | None,
        logins: Logins | None = None,
    ) -> None:
        self.address = address
        self.connection: ClientConnection | None = None
        self._logins = logins
        self._shared = shared
        self._resolve = resolve
        self._tls = tls
        self._waiting: dict[int, tuple[Parts, Pending]] = {}
        self._waiting_bytes = 0
        self._running = False
        self._backoff_ms = 0
        self._not_before = 0.0

    def request(self, correlation_id: int, parts: Parts, pending: Pending) -> None:
        """Send a request, or let it wait for a connection."""
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
            self._shared.timer.later(pending.answer, Failure.OTHER)
        self._shared.complain("full", f"{self.address} takes nothing: {waiting_bytes} bytes wait for it already")

    @uninterrupted
    async def _run(self) -> None:
        """Connect and read, as long as requests wait."""
        while self._waiting:
            await trio.sleep_until(self._not_before)
            if self._waiting:
                await self._connect_and_read()
        self._running = False

    async def _connect_and_read(self) -> None:
        session = None
        if self._logins is not None:
            session = self._logins.session(self.address)
            try:
                await session.prepare()
            except AuthenticationError as error:
                self._tell(error.text)
                self._back_off()
                self._fail_waiting(Failure.UNAUTHENTICATED)
                return
        timeout_s = self._shared.limits.handshake_timeout_ms / 1000
        try:
            sock = await dial(self.address, self._resolve, timeout_s)
        except DialError as error:
            self._failed(error.failure, str(error))
            return
        if self._shared.nursery.cancel_scope.cancel_called:
            sock.close()  # the transport has closed its connections in this very turn
            return
        try:
            pipe = None if self._tls is None else self._tls.client_pipe(self.address.host)
        except ValueError as error:
            sock.close()
            self._failed(Failure.OTHER, str(error))
            return
        connection = ClientConnection(self._shared, sock, self, pipe, session)
        with trio.move_on_after(timeout_s):
            await connection.shake_hands()
        if not connection.is_established:
            connection.break_(Failure.OTHER, "the TLS handshake took too long", "TLS")
        await connection.read()

    def _failed(self, failure: Failure, why: str) -> None:
        self._shared.complain(f"connecting to {self.address}", f"cannot connect to {self.address}: {why}")
        self._came_to_nothing(why)
        self._back_off()
        self._fail_waiting(failure)

    def established(self, connection: ClientConnection) -> None:
        """Send the requests that waited, and let later ones be sent at once."""
        self.connection = connection
        self._shared.errors.pop(self.address, None)
        if self._logins is not None:
            self._logins.succeeded(self.address)
        now = self._shared.timer.now()
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for correlation_id, (parts, pending) in waiting.items():
            pending.sent = now
            connection.request(correlation_id, parts, pending)

    def paused(self, connection: ClientConnection) -> None:
        """Let requests wait until the connection is ``established`` again."""
        if self.connection is connection:
            self.connection = None

    def refused(self, connection: ClientConnection, error: AuthenticationError) -> None:
        """Note that the login failed."""
        self._tell(error.text)
        connection.break_(Failure.UNAUTHENTICATED, error.text)

    def interrupted(self, why: str) -> None:
        """Note that the other side closed the connection during the login."""
        self._tell(f"login at {self.address} failed: {why}; it may expect another security.protocol")

    def _tell(self, text: str) -> None:
        # Once, not at every attempt.
        if self._logins is not None and self._logins.failed(self.address, text):
            self._shared.complain("login", text)

    def broken(self, connection: ClientConnection, failure: Failure, why: str) -> None:
        """Note that the connection is broken, or could not be made."""
        if connection.answered:
            self._backoff_ms = 0
            self._not_before = 0.0
        else:
            self._back_off()
        if self.connection is connection:
            self.connection = None
        else:
            self._came_to_nothing(why)
            # Only the break of an established connection shows that the process is gone.
            is_odd = failure is Failure.RESET and not connection.answered
            self._fail_waiting(Failure.OTHER if is_odd else failure)

    def sweep(self, now: float) -> float:
        """Time out requests that wait for a connection; returns the next deadline."""
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
        """Whether the peer may be forgotten."""
        return not self._running and now >= self._not_before

    def close(self) -> None:
        """Fail the requests that wait."""
        self._fail_waiting(Failure.OTHER)

    def _came_to_nothing(self, why: str) -> None:
        errors = self._shared.errors
        if len(errors) >= _ERRORS_MAX:  # messages may name any number of addresses
            errors.clear()
        errors[self.address] = why

    def _back_off(self) -> None:
        limits = self._shared.limits
        self._backoff_ms = min(max(2 * self._backoff_ms, limits.reconnect_backoff_ms), limits.reconnect_backoff_max_ms)
        self._not_before = self._shared.timer.now() + self._backoff_ms / 1000 * random.uniform(0.8, 1.2)

    def _fail_waiting(self, failure: Failure) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for _, pending in waiting.values():
            if pending.answer is not None:
                pending.answer(failure)
