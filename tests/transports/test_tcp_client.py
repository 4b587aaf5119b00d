"""The connecting side of TCP: reconnects, names, timeouts, and servers that misbehave."""

from __future__ import annotations

import random
import socket
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from struct import pack

import pytest
import trio
from transport_rig import LOOPBACK, SentRequest, ask, echo, eof, free_port, in_trio, request_frame, until

from kraftcore.errors import LocalError
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp import TcpTransport, client, dial


def quiet(**settings):
    return TcpTransport(log=lambda line: None, **settings)


@asynccontextmanager
async def raw_server(handle):
    """A server that does whatever ``handle(stream)`` does; yields its address and the accepted streams."""
    streams = []

    async def keep(stream):
        streams.append(stream)
        await handle(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(keep, 0, host="127.0.0.1", task_status=task_status)
        )
        yield Address("127.0.0.1", listener.socket.getsockname()[1]), streams
        nursery.cancel_scope.cancel()


async def read_requests(stream):
    """Yields the correlation ids of whole requests."""
    data = b""
    async for chunk in stream:
        data += chunk
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
            size = int.from_bytes(data[:4])
            yield data[8:12]
            data = data[4 + size :]


# ---- reconnecting


@pytest.fixture
def clock():
    return trio.testing.MockClock(autojump_threshold=0)


@in_trio
async def test_failed_attempts_come_ever_less_often(clock, monkeypatch):
    attempts = []

    async def refuse(*arguments):
        attempts.append(trio.current_time())
        raise dial.DialError(Failure.REFUSED, "nobody there")

    monkeypatch.setattr(client, "dial", refuse)
    lines = []
    async with TcpTransport(log=lines.append) as transport:
        for _ in range(30):
            assert await ask(transport, Address("far", 9)) is Failure.REFUSED
    pauses_ms = [(after - before) * 1000 for before, after in pairwise(attempts)]
    for pause_ms, about in zip(pauses_ms, [50, 100, 200, 400, 800] + 24 * [1000], strict=True):
        assert 0.79 * about <= pause_ms <= 1.21 * about
    assert len(set(pauses_ms[5:])) > 1  # jitter
    assert lines[0] == "cannot connect to far:9: nobody there"
    assert len(lines) == 2 and lines[1].startswith(f"{lines[0]} (and ")  # after ten seconds, and the next after 20


@in_trio
async def test_pauses_begin_anew_after_an_answer(clock):
    tries, targets = [], []

    async def resolve(address):
        tries.append(trio.current_time())
        if not targets:
            raise OSError("nobody there")
        return targets

    far = Address("far", 9)
    async with quiet(resolve=resolve, reconnect_backoff_ms=100, reconnect_backoff_max_ms=100_000) as transport:
        for _ in range(6):
            assert await ask(transport, far) is Failure.OTHER
        assert tries[-1] - tries[-2] > 1.6 * 0.79  # 0.1 s, doubled four times, less a fifth
        async with quiet() as server:
            at = await server.listen("L", LOOPBACK, echo)
            targets.append(at_loopback(at.port))
            assert await ask(transport, far) == b""
        await until(lambda: transport.connections == (0, 0))
        targets.clear()
        for _ in range(2):
            assert await ask(transport, far) is Failure.OTHER
        assert tries[-1] - tries[-2] < 0.1 * 1.21


@in_trio
async def test_a_peer_that_comes_back_is_found_again():
    async with quiet() as transport:
        at = None
        for life in range(4):
            async with quiet() as server:
                at = await server.listen("L", at or LOOPBACK, echo)
                result = Failure.REFUSED
                while isinstance(result, Failure):
                    result = await ask(transport, at, b"%d" % life)
                assert result == b"%d" % life


@in_trio
async def test_requests_wait_while_connecting():
    async with quiet() as transport, quiet() as server:
        at = await server.listen("L", LOOPBACK, echo)
        asked = [SentRequest(transport, at, b"%d" % number) for number in range(100)]
        assert [await one.result() for one in asked] == [b"%d" % number for number in range(100)]
        assert server.connections[0] == 1


@in_trio
async def test_requests_time_out_while_connecting(monkeypatch):
    async def hang(target):
        await trio.sleep_forever()

    monkeypatch.setattr(dial, "connect", hang)
    async with quiet() as transport:
        asked = [SentRequest(transport, Address("127.0.0.1", 9), timeout_ms=timeout_ms) for timeout_ms in (60, 20, 40)]
        assert [await one.result() for one in asked] == [Failure.TIMED_OUT] * 3
        outstanding = SentRequest(transport, Address("127.0.0.1", 9))
    assert await outstanding.result() is Failure.OTHER


@in_trio
async def test_connecting_takes_bounded_time(monkeypatch):
    async def hang(target):
        await trio.sleep_forever()

    monkeypatch.setattr(dial, "connect", hang)
    async with quiet(handshake_timeout_ms=20) as transport:
        assert await ask(transport, Address("127.0.0.1", 9)) is Failure.OTHER


# ---- names


def at_loopback(port):
    return socket.AF_INET, ("127.0.0.1", port)


@in_trio
async def test_names_are_resolved_at_each_connect():
    where, asked_for = [], []

    async def resolve(address):
        asked_for.append(address)
        return where

    name = Address("moving.example", 9093)
    async with quiet(resolve=resolve) as transport:
        for life in range(2):
            async with quiet() as server:
                bound = await server.listen("L", LOOPBACK, echo)
                where[:] = [at_loopback(bound.port)]
                result = Failure.RESET
                while isinstance(result, Failure):
                    result = await ask(transport, name, b"%d" % life)
                assert result == b"%d" % life
    assert asked_for.count(name) == len(asked_for) >= 2


@in_trio
async def test_all_addresses_are_tried(monkeypatch):
    connect = dial.connect

    async def connect_unless_hanging(target):
        if target[1][0] == "192.0.2.1":
            await trio.sleep_forever()
        return await connect(target)

    monkeypatch.setattr(dial, "connect", connect_unless_hanging)
    refusing, hanging = at_loopback(free_port()), (socket.AF_INET, ("192.0.2.1", 1))
    targets = []

    async def resolve(address):
        return targets

    async with quiet() as server:
        at = await server.listen("L", LOOPBACK, echo)
        for before in ([refusing], [hanging], [refusing, hanging, refusing]):
            targets[:] = [*before, at_loopback(at.port)]
            async with quiet(resolve=resolve) as transport:
                assert await ask(transport, Address("many.example", 1), b"hello") == b"hello"
    for addresses, failure in (
        ([refusing, refusing], Failure.REFUSED),
        ([refusing, hanging], Failure.OTHER),
        ([], Failure.OTHER),
    ):
        targets[:] = addresses
        async with quiet(resolve=resolve, handshake_timeout_ms=300) as transport:
            assert await ask(transport, Address("many.example", 1)) is failure


@in_trio
async def test_names_without_address():
    async def resolve(address):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    lines = []
    async with TcpTransport(resolve=resolve, log=lines.append) as transport:
        assert await ask(transport, Address("nowhere.example", 1)) is Failure.OTHER
    assert lines == ["cannot connect to nowhere.example:1: cannot resolve nowhere.example: Name or service not known"]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@in_trio
async def test_addresses_that_are_none(tls, certificates):
    """Endpoints come from peers: whatever they name, the request fails and nothing else does."""
    files = certificates.files() if tls else None
    async with quiet() as server, quiet(tls=files) as transport:
        at = await server.listen("L", LOOPBACK, echo)
        for host in ("", ".", "..", "a" * 70 + ".example", "a" * 300, "nul\0nul", "a b", "::1%nowhere", "\ud800"):
            assert await ask(transport, Address(host, 1)) in {Failure.OTHER, Failure.REFUSED}
        for port in (0, -1, 65_536, 2**31, 2**63):
            assert await ask(transport, Address("127.0.0.1", port)) in {Failure.OTHER, Failure.REFUSED}
    async with quiet() as server, quiet(tls=files, resolve=at_port(at.port)) as transport:
        await server.listen("L", at, echo)
        for host in (".server", ""):  # the name that a certificate is asked for
            assert await ask(transport, Address(host, at.port), b"x") == (Failure.OTHER if tls else b"x")


def at_port(port):
    async def resolve(address):
        return [at_loopback(port)]

    return resolve


@in_trio
async def test_ipv6():
    async with quiet() as server, quiet() as transport:
        origins = []
        at = await server.listen("L", Address("::1", 0), lambda *request: (origins.append(request[1]), echo(*request)))
        assert str(at) == f"[::1]:{at.port}"
        assert await ask(transport, at, b"six") == b"six"
        assert origins[0].peer.startswith("[::1]:")


@in_trio
async def test_every_interface():
    async with quiet() as server, quiet() as transport:
        at = await server.listen("L", Address("", 0), echo)
        for host in ("127.0.0.1", "::1", "localhost"):
            assert await ask(transport, Address(host, at.port), b"here") == b"here"


# ---- timeouts


@in_trio
async def test_a_stuck_connection_is_broken_and_tells_no_reset():
    async def swallow(stream):
        async for _ in stream:
            pass

    lines = []
    async with raw_server(swallow) as (at, streams), TcpTransport(stuck_timeout_ms=50, log=lines.append) as transport:
        patient = SentRequest(transport, at, timeout_ms=20_000)
        assert await ask(transport, at, timeout_ms=30) is Failure.TIMED_OUT
        assert await patient.result() is Failure.TIMED_OUT
        assert len(streams) == 1
        assert await ask(transport, at, timeout_ms=300) is Failure.TIMED_OUT
        assert len(streams) == 2
    assert lines[0] == f"connection to {at}: requests timed out and nothing comes any more"


@in_trio
async def test_peers_that_hang_are_told_once_each_though_they_take_turns():
    async def swallow(stream):
        async for _ in stream:
            pass

    lines = []
    async with (
        raw_server(swallow) as (one, _),
        raw_server(swallow) as (other, _),
        TcpTransport(stuck_timeout_ms=10, log=lines.append) as transport,
    ):
        for _ in range(6):
            for at in (one, other):
                assert await ask(transport, at, timeout_ms=20) is Failure.TIMED_OUT
    assert sorted(lines) == sorted(
        f"connection to {at}: requests timed out and nothing comes any more" for at in (one, other)
    )


@in_trio
async def test_a_slow_answer_does_not_break_a_connection_that_moves():
    release = trio.Event()

    async def answer(stream):
        async for number in read_requests(stream):
            if number == first:
                await release.wait()
            await stream.send_all(pack(">i", 4) + number)

    async with raw_server(answer) as (at, streams), quiet(stuck_timeout_ms=800) as transport:
        slow = SentRequest(transport, at, timeout_ms=20)
        first = pack(">i", slow.correlation_id)
        others = [SentRequest(transport, at) for _ in range(3)]
        assert await slow.result() is Failure.TIMED_OUT
        release.set()
        assert [await other.result() for other in others] == [b""] * 3
        await trio.sleep(0.9)  # longer than it takes to be stuck
        assert await ask(transport, at) == b""
        assert len(streams) == 1


@in_trio
async def test_requests_that_are_never_answered_do_not_pile_up():
    unanswered = Counter()

    async def answer_every_other(stream):
        async for number in read_requests(stream):
            if number[-1] % 2:
                await stream.send_all(pack(">i", 4) + number)
            else:
                unanswered[stream] += 1

    async with raw_server(answer_every_other) as (at, streams), quiet(max_in_flight=10) as transport:
        while len(streams) < 2:
            await ask(transport, at, timeout_ms=10)
        assert 10 < max(unanswered.values()) <= 12


# ---- servers that misbehave


@pytest.mark.parametrize(
    "sent",
    [pack(">i", -1), pack(">i", 0), pack(">i", 3) + b"abc", pack(">i", 2**31 - 1), b"HTTP/1.1 400 Bad Request\r\n"],
    ids=["negative", "zero", "no-correlation-id", "giant", "http"],
)
@in_trio
async def test_garbage_for_an_answer(sent):
    async def answer(stream):
        async for _ in read_requests(stream):
            await stream.send_all(sent)

    lines = []
    async with raw_server(answer) as (at, _), TcpTransport(log=lines.append) as transport, quiet() as server:
        good_at = await server.listen("L", LOOPBACK, echo)
        held = SentRequest(transport, good_at, b"before")
        assert await ask(transport, at) is Failure.OTHER
        assert await held.result() == b"before"
        assert await ask(transport, good_at, b"after") == b"after"
    assert len(lines) == 1
    what = "it speaks HTTP: no node listens at this address: correct it" if sent[:4] == b"HTTP" else "a frame of "
    assert lines[0].startswith(f"connection to {at}: {what}")


@in_trio
async def test_an_answer_that_nobody_asked():
    async def answer(stream):
        async for _ in read_requests(stream):
            await stream.send_all(pack(">ii", 4, -77))

    lines = []
    async with raw_server(answer) as (at, _), TcpTransport(log=lines.append) as transport:
        assert await ask(transport, at) is Failure.OTHER
    assert lines == [f"connection to {at}: it answered correlation id -77, which nobody asked"]


@in_trio
async def test_half_an_answer():
    async def answer(stream):
        async with aclosing(read_requests(stream)) as numbers:
            await stream.send_all(pack(">i", 100) + await anext(numbers))

    async with raw_server(answer) as (at, _), quiet() as transport:
        assert await ask(transport, at) is Failure.RESET


@in_trio
async def test_an_answer_that_does_not_end():
    async def answer(stream):
        async for number in read_requests(stream):
            await stream.send_all(pack(">i", 1000) + number)

    async with raw_server(answer) as (at, _), quiet(frame_timeout_ms=50) as transport:
        assert await ask(transport, at) is Failure.TIMED_OUT


@in_trio
async def test_answers_in_any_pieces():
    rng = random.Random(7)

    async def answer(stream):
        replies = b""
        async for number in read_requests(stream):
            replies += pack(">i", 4 + 100) + number + bytes(100)
            if len(replies) == 108 * 200:
                while replies:
                    cut = rng.choice([1, 2, 3, 4, 5, 107, 108, 109, 5000])
                    await stream.send_all(replies[:cut])
                    replies = replies[cut:]
                    await trio.lowlevel.checkpoint()

    async with raw_server(answer) as (at, _), quiet() as transport:
        asked = [SentRequest(transport, at) for _ in range(200)]
        assert {await one.result() for one in asked} == {bytes(100)}


@in_trio
async def test_a_server_that_does_not_read():
    async def ignore(stream):
        await trio.sleep_forever()

    mib = bytes(2**20)
    async with raw_server(ignore) as (at, _), quiet(connection_memory_bytes=2**22, frame_timeout_ms=300) as transport:
        waiting = SentRequest(transport, at)
        await until(lambda: transport.connections[1])
        asked = [SentRequest(transport, at, mib) for _ in range(40)]
        results = [await one.result() for one in asked]
        assert set(results) == {Failure.TIMED_OUT, Failure.OTHER}
        assert results.count(Failure.TIMED_OUT) < 20  # what the kernel took, and 4 MiB
        assert await waiting.result() is Failure.TIMED_OUT


@in_trio
async def test_idle_connections_are_closed():
    seen = []

    async def watch(stream):
        async for number in read_requests(stream):
            await stream.send_all(pack(">i", 4) + number)
        seen.append("closed")

    lines = []
    async with raw_server(watch) as (at, streams), TcpTransport(idle_timeout_ms=50, log=lines.append) as transport:
        assert await ask(transport, at, timeout_ms=1000) == b""
        await until(lambda: seen)
        assert await ask(transport, at) == b""
        assert len(streams) == 2
    assert lines == []


# ---- how it is used


@in_trio
async def test_wrong_requests():
    async with quiet(max_frame_bytes=1000) as transport, quiet() as server:
        at = await server.listen("L", LOOPBACK, lambda *request: None)
        seen = []
        for frame in (b"", b"1234567", bytes(1001)):
            with pytest.raises(LocalError, match="a request of"):
                transport.request(at, [frame], 1000, seen.append)
        for moment in ("connecting", "connected"):
            number = len(moment)
            transport.request(at, [request_frame(number)], 10_000, lambda result: None)
            with pytest.raises(LocalError, match=f"correlation id {number} "):
                transport.request(at, [request_frame(number)], 1000, seen.append)
            await until(lambda: transport.connections[1])
        assert seen == []


def test_it_must_be_opened():
    with pytest.raises(LocalError, match="async with"):
        TcpTransport().request(LOOPBACK, [request_frame(1)], 1, print)
    with pytest.raises(LocalError, match="async with"):
        trio.run(TcpTransport().listen, "L", LOOPBACK, echo)


@pytest.mark.parametrize(
    "settings",
    [{"max_frame_bytes": 0}, {"max_frame_bytes": 2**31}, {"idle_timeout_ms": 1.5}, {"reconnect_backoff_max_ms": 49}],
    ids=str,
)
def test_impossible_limits(settings):
    with pytest.raises(LocalError, match=next(iter(settings))):
        TcpTransport(**settings)


@in_trio
async def test_errors_of_the_body_are_not_wrapped():
    with pytest.raises(KeyError):
        async with quiet():
            raise KeyError("mine")


@in_trio
async def test_a_raising_callback_ends_it():
    def fail(*_):
        raise ZeroDivisionError("in a callback")

    with pytest.raises(ZeroDivisionError):
        async with quiet() as transport, quiet() as server:
            at = await server.listen("L", LOOPBACK, echo)
            transport.request(at, [request_frame(1)], 1000, fail)
            await trio.sleep_forever()


@in_trio
async def test_callbacks_that_raise_while_closing_stop_nothing():
    def fail(*_):
        raise ZeroDivisionError("in a callback")

    async with quiet() as server:
        at = await server.listen("L", LOOPBACK, lambda *request: None)
        with pytest.raises(ZeroDivisionError):
            async with quiet() as transport:
                outstanding = []
                for number in range(3):
                    transport.request(at, [request_frame(number)], 10_000, fail)
                    outstanding.append(SentRequest(transport, Address("127.0.0.1", at.port + number)))
                await until(lambda: server.connections[0])
                await trio.sleep(0.01)
        for asked in outstanding[1:]:
            assert await asked.result() in {Failure.OTHER, Failure.REFUSED}
        await until(lambda: server.connections[0] == 0)


@in_trio
async def test_closing_inside_the_context_leaves_the_body_alone():
    async with quiet() as transport:
        await transport.aclose()
        await trio.sleep(0)
        assert await ask(transport, LOOPBACK) is Failure.OTHER


@in_trio
async def test_being_cancelled_closes_everything():
    async with quiet() as server:
        at = await server.listen("L", LOOPBACK, lambda *request: None)
        with trio.move_on_after(0.05) as scope:
            async with quiet() as transport:
                asked = SentRequest(transport, at)
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert await asked.result() is Failure.OTHER
        await until(lambda: server.connections[0] == 0)


@in_trio
async def test_a_connection_that_comes_about_while_the_transport_closes_is_closed(tmp_path):
    """Its task is about to run when the transport closes, as when an answer arrives while others are still asked."""
    file = str(tmp_path / "socket")
    is_found = trio.Event()

    async def resolve(address):
        await is_found.wait()
        return [(socket.AF_UNIX, file)]  # to which a connection is made without waiting

    async with quiet() as server:
        at = await server.listen("L", Address(file, 0), echo)
        async with quiet(resolve=resolve) as transport:
            asked = SentRequest(transport, at)
            await trio.testing.wait_all_tasks_blocked()
            is_found.set()
            await transport.aclose()
        assert transport.connections == (0, 0)
        assert await asked.result() is Failure.OTHER


@in_trio
async def test_what_was_handed_over_leaves_before_the_call_returns():
    """No task switch between ``request`` and the bytes at the other side."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        at = Address("127.0.0.1", listener.socket.getsockname()[1])
        async with quiet() as transport:
            nursery.start_soon(ask, transport, at)
            stream = await listener.accept()
            await stream.receive_some()
            sock = socket.fromfd(stream.socket.fileno(), socket.AF_INET, socket.SOCK_STREAM)
            sock.setblocking(False)
            transport.request(at, [request_frame(-5, b"now")], 1000, lambda result: None)
            assert sock.recv(100) == pack(">i", 11) + request_frame(-5, b"now")
            sock.close()
            await transport.aclose()
            assert await eof(stream) == b""
            await stream.aclose()
            await listener.aclose()
