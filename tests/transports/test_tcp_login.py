"""Connections that log in before anything else, and again before the login ends; refusals; servers that break off."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from transport_rig import LOOPBACK, SentRequest, ask, in_trio, request_frame, until

from kraftcore.errors import AuthenticationError
from kraftcore.ports.transport import Address, Origin, Reply
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp import Limits, TcpTransport

LOGIN, LONG_MS = -1, 600_000


class Steps:
    """A login of two frames."""

    def __init__(self, secret: bytes = b"secret") -> None:
        self.lifetime_ms: int | None = None
        self._secret = secret

    async def prepare(self):
        await trio.lowlevel.checkpoint()
        if self._secret == b"":
            raise AuthenticationError("there is no secret")

    def begin(self):
        return [request_frame(LOGIN, b"hello")]

    def renew(self):
        return [request_frame(LOGIN, b"again")]

    def take(self, frame):
        answer = frame[4:]
        if answer == b"who?":
            return [request_frame(LOGIN, self._secret)]
        if answer == b"no":
            raise AuthenticationError("login refused")
        self.lifetime_ms = int(answer) or None
        return None


class Server:
    """Answers requests of those who logged in, and nothing while a login is under way."""

    def __init__(self) -> None:
        self.lifetime_ms = 0
        self.secret = b"secret"
        self.logins = 0
        self.refused = 0
        self.served: list[bytes] = []
        self.errors: list[str] = []
        self.held: list[tuple[bytes, Reply]] | None = None
        self.goes_silent = False
        self.goes_away = False
        self._states: dict[str, str] = {}

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        number, body = frame[4:8], frame[8:]
        state = self._states.get(origin.peer, "new")
        if int.from_bytes(number, signed=True) == LOGIN:
            self._log_in(state, body, origin, reply)
        elif state != "in":
            self.errors.append(f"{body!r} in the state {state}")
            reply(None)
        else:
            self.served.append(body)
            if self.held is not None:
                self.held.append((number + body, reply))
            else:
                reply([number, body])

    def _log_in(self, state: str, body: bytes, origin: Origin, reply: Reply) -> None:
        number = LOGIN.to_bytes(4, signed=True)
        if self.goes_away:
            reply(None)
        elif self.goes_silent:
            pass
        elif body in (b"hello", b"again"):
            if (body == b"again") != (state == "in"):
                self.errors.append(f"{body!r} in the state {state}")
            self._states[origin.peer] = "asked"
            reply([number, b"who?"])
        elif body == self.secret:
            self._states[origin.peer] = "in"
            self.logins += 1
            reply([number, b"%d" % self.lifetime_ms])
        else:
            self.refused += 1
            reply([number, b"no"])


@asynccontextmanager
async def pair(secret: bytes = b"secret", lines: list[str] | None = None, tls=None, **limits: int):
    """A transport that logs in, the server, and its address."""
    server = Server()
    async with (
        TcpTransport(log=lambda line: None, tls=tls, idle_timeout_ms=LONG_MS) as accepting,
        TcpTransport(
            login=lambda address: Steps(secret),
            log=lambda line: lines.append(line) if lines is not None else None,
            tls=tls,
            **{"idle_timeout_ms": LONG_MS, **limits},
        ) as connecting,
    ):
        address = await accepting.listen("L", LOOPBACK, server.serve)
        yield connecting, server, address
    assert not server.errors


@pytest.fixture
def clock():
    return trio.testing.MockClock(autojump_threshold=0.02)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_requests_wait_for_the_login_and_keep_their_order(certificates, is_encrypted):
    @in_trio
    async def run():
        async with pair(tls=certificates.files() if is_encrypted else None) as (transport, server, address):
            asked = [SentRequest(transport, address, b"%d" % number) for number in range(100)]
            assert [await one.result() for one in asked] == [b"%d" % number for number in range(100)]
            assert server.served == [b"%d" % number for number in range(100)]
            assert await ask(transport, address._replace(lane=1), b"x") == b"x"
            assert server.logins == 2
            assert transport.login_error(address) is None

    run()


@in_trio
async def test_a_refused_login_is_said_once_and_forgotten_when_one_succeeds():
    lines: list[str] = []
    limits = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
    async with pair(b"wrong", lines, **limits) as (transport, server, address):
        for lane in (0, 1, 0, 0, 1):
            assert await ask(transport, address._replace(lane=lane)) is Failure.UNAUTHENTICATED
        assert server.refused == 5
        assert lines == ["login refused"]
        assert transport.login_error(address) == transport.login_error(address._replace(lane=1)) == "login refused"
        server.secret = b"wrong"
        assert await ask(transport, address, b"x") == b"x"
        assert transport.login_error(address) is None
    async with pair(b"", lines) as (transport, server, address):
        assert await ask(transport, address) is Failure.UNAUTHENTICATED
        assert lines[1:] == ["there is no secret"]


@in_trio
async def test_attempts_after_refusals_come_ever_less_often(clock):
    began = trio.current_time()
    async with pair(b"wrong") as (transport, server, address):
        for _ in range(12):
            assert await ask(transport, address) is Failure.UNAUTHENTICATED
        assert server.refused == 12
    pauses_s = 0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 6
    assert trio.current_time() - began > 0.8 * pauses_s


@in_trio
async def test_a_server_that_breaks_off_during_the_login_is_no_dead_process():
    lines: list[str] = []
    async with pair(lines=lines, reconnect_backoff_ms=1, reconnect_backoff_max_ms=2) as (transport, server, address):
        server.goes_away = True
        for _ in range(3):
            assert await ask(transport, address) is Failure.OTHER
        (line,) = lines
        assert line.startswith(f"login at {address} failed: ")
        assert "security.protocol" in line
        assert transport.login_error(address) == line
        server.goes_away = False
        assert await ask(transport, address, b"x") == b"x"


@in_trio
async def test_a_login_without_an_answer_ends(clock):
    lines: list[str] = []
    async with pair(lines=lines) as (transport, server, address):
        server.goes_silent = True
        asked = SentRequest(transport, address, timeout_ms=LONG_MS)
        await until(lambda: transport.connections[1])
        await trio.testing.wait_all_tasks_blocked(0.05)
        clock.jump(Limits().handshake_timeout_ms / 1000 + 0.1)
        assert await asked.result() is Failure.OTHER
        assert lines == [f"connection to {address}: the login took too long"]
    async with pair() as (transport, server, address):
        server.goes_silent = True
        asked = SentRequest(transport, address, timeout_ms=1000)
        await until(lambda: transport.connections[1])
        clock.jump(1.1)
        assert await asked.result() is Failure.TIMED_OUT


async def _renewed(clock, server: Server, logins: int) -> None:
    """The login's lifetime is almost over."""
    clock.jump(server.lifetime_ms / 1000 * 0.96)
    await until(lambda: server.logins == logins)


@in_trio
async def test_a_login_is_renewed_under_load_and_nothing_is_lost(clock):
    async with pair() as (transport, server, address):
        server.lifetime_ms = 60_000
        asked = [SentRequest(transport, address, b"first", LONG_MS)]
        await asked[0].result()
        for round_ in range(2, 12):
            server.held = []
            asked += [
                SentRequest(transport, address, b"%d early %d" % (round_, number), LONG_MS) for number in range(50)
            ]
            await until(lambda: len(server.held) == 50)
            clock.jump(server.lifetime_ms / 1000 * 0.96)
            await trio.testing.wait_all_tasks_blocked(0.01)
            # The handshake has been sent behind the requests that are not answered yet; these wait for its end.
            asked += [
                SentRequest(transport, address, b"%d late %d" % (round_, number), LONG_MS) for number in range(50)
            ]
            await trio.testing.wait_all_tasks_blocked(0.01)
            held, server.held = server.held, None
            for answer, reply in held:
                reply([answer])
            await until(lambda wanted=round_: server.logins == wanted)
            for one in asked:
                assert not isinstance(await one.result(), Failure)
        assert len(set(server.served)) == len(server.served) == len(asked) == 1001
        assert transport.connections == (0, 1)


@in_trio
async def test_a_slow_request_does_not_break_the_renewal(clock):
    async with pair() as (transport, server, address):
        server.lifetime_ms = 60_000
        assert await ask(transport, address, b"x") == b"x"
        server.held = []
        slow = SentRequest(transport, address, b"slow", LONG_MS)
        await until(lambda: server.held)
        clock.jump(58)
        await trio.testing.wait_all_tasks_blocked(0.01)
        for _ in range(5):
            clock.jump(Limits().handshake_timeout_ms / 1000 + 0.1)
            await trio.testing.wait_all_tasks_blocked(0.01)
        ((answer, reply),) = server.held
        reply([answer])
        assert await slow.result() == b"slow"
        await until(lambda: server.logins == 2)


@in_trio
async def test_a_renewal_that_is_refused_fails_what_waits_and_the_next_connection_logs_in_anew(clock):
    async with pair() as (transport, server, address):
        server.lifetime_ms = 60_000
        assert await ask(transport, address, b"x") == b"x"
        server.held = []
        early = SentRequest(transport, address, b"early", LONG_MS)
        await until(lambda: server.held)
        server.secret = b"changed"
        clock.jump(58)
        await trio.testing.wait_all_tasks_blocked(0.01)
        late = SentRequest(transport, address, b"late", LONG_MS)
        held, server.held = server.held, None
        for answer, reply in held:
            reply([answer])
        assert await early.result() == b"early"
        assert await late.result() is Failure.UNAUTHENTICATED
        assert transport.login_error(address) == "login refused"
        server.secret = b"secret"
        assert await ask(transport, address, b"y") == b"y"


@in_trio
async def test_a_connection_that_nobody_used_is_closed_and_not_renewed(clock):
    async with pair() as (transport, server, address):
        server.lifetime_ms = 60_000
        assert await ask(transport, address, b"x") == b"x"
        await _renewed(clock, server, 2)
        assert transport.connections == (0, 1)
        clock.jump(58)
        await until(lambda: transport.connections == (0, 0))
        assert server.logins == 2
        assert await ask(transport, address, b"y") == b"y"
        assert server.logins == 3


@in_trio
async def test_an_answer_that_belongs_to_no_login_breaks_the_connection():
    async with TcpTransport(log=lambda line: None) as accepting:

        def serve(frame: bytes, origin: Origin, reply: Reply) -> None:
            reply([LOGIN.to_bytes(4, signed=True), b"0"])

        address: Address = await accepting.listen("L", LOOPBACK, serve)
        async with TcpTransport(login=lambda address: Steps(), log=lambda line: None) as transport:
            assert await ask(transport, address) is Failure.OTHER
