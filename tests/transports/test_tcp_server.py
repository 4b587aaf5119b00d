"""The accepting side of TCP: slow, silent, garbage and giant senders hurt nobody but themselves."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import tracemalloc
from struct import pack

import pytest
import trio
import trio.testing
from transport_rig import LOOPBACK, SentRequest, ask, echo, eof, in_trio, request_frame, until

from kraftcore.errors import LocalError, TransportError
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp import TcpTransport

MIB = 2**20

pytestmark = pytest.mark.usefixtures("together")


def framed(frame):
    return pack(">i", len(frame)) + frame


@contextlib.asynccontextmanager
async def serving(serve=echo, **settings):
    """A server, its address, what it logged, and a client that was answered once."""
    lines = []
    async with TcpTransport(log=lines.append, **settings) as server, TcpTransport() as client:
        at = await server.listen("L", LOOPBACK, serve)
        yield server, at, lines, client


@pytest.fixture
def clock():
    return trio.testing.MockClock()


def connect(at, source="127.0.0.1"):
    return trio.open_tcp_stream(at.host, at.port, local_address=source)


def accepted(server):
    return server.connections[0]


GARBAGE = {
    "negative": pack(">i", -5) + b"hello",
    "zero": pack(">i", 0),
    "no-correlation-id": pack(">i", 7) + b"1234567",
    "giant": pack(">i", 2**31 - 1) + bytes(1000),
    "too-long": pack(">i", 100 * MIB + 1),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030102000100"),
    "all-ones": b"\xff" * 10_000,
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "proxy": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
    "proxy-2": b"\r\n\r\n\x00\r\nQUIT\n",
}
STRANGERS = {
    "http": "it speaks HTTP, this side Kafka's protocol: correct whoever asks here for pages, metrics or health",
    "tls": "it speaks TLS, this side does not: set tls (listener.security.protocol.map, ssl.*) alike on both sides",
    "ssh": "it speaks SSH: no node listens at this address: correct it",
    "proxy": "it speaks the PROXY protocol: have the load balancer pass connections on as they are",
    "proxy-2": "it speaks the PROXY protocol",
}


@pytest.mark.parametrize("kind", GARBAGE)
@in_trio
async def test_garbage_breaks_its_own_connection_only(kind):
    async with serving() as (server, at, lines, client):
        assert await ask(client, at, b"before") == b"before"
        for valid_before in (b"", framed(request_frame(5, b"valid"))):
            stream = await connect(at)
            await stream.send_all(valid_before + GARBAGE[kind])
            assert await eof(stream) == (framed(pack(">i", 5) + b"valid") if valid_before else b"")
            await stream.aclose()
        assert await ask(client, at, b"after") == b"after"
        await until(lambda: accepted(server) == 1)
    assert len(lines) == (1 if kind in STRANGERS else 2)  # a stranger is told of once for each host
    assert all(line.startswith("connection from 127.0.0.1:") for line in lines)
    assert STRANGERS.get(kind, "a frame of") in lines[0]


@in_trio
async def test_what_the_node_refuses_is_broken():
    """The node says why, if there is something to say."""
    async with serving(lambda frame, origin, reply: reply(None)) as (_, at, lines, client):
        assert await ask(client, at) is Failure.RESET
    assert lines == []


@pytest.mark.parametrize("kind", ["not a frame", "not a request"])
@in_trio
async def test_requests_before_a_malformed_one_are_answered(kind):
    """As by Kafka, which reads a connection's next request when it has answered the one before."""
    waiting = []

    def serve(frame, origin, reply):
        if frame[8:] == b"malformed":
            reply(None)
        else:
            waiting.append((frame, origin, reply))

    malformed = GARBAGE["all-ones"] if kind == "not a frame" else framed(request_frame(3, b"malformed"))
    async with serving(serve) as (server, at, lines, _):
        stream = await connect(at)
        requests = [framed(request_frame(number, b"%d" % number)) for number in (1, 2)]
        await stream.send_all(b"".join(requests) + malformed + framed(request_frame(4, b"too late")))
        await until(lambda: len(waiting) == 2)
        echo(*waiting[1])
        await trio.testing.wait_all_tasks_blocked()
        assert accepted(server) == 1
        echo(*waiting[0])
        assert await eof(stream) == b"".join(framed(pack(">i", number) + b"%d" % number) for number in (1, 2))
        await stream.aclose()
        await until(lambda: accepted(server) == 0)
        assert len(waiting) == 2
    assert len(lines) == (1 if kind == "not a frame" else 0)


@in_trio
async def test_a_malformed_frame_does_not_cut_off_long_answers():
    """They are still in the kernel's hands, or ours, when the malformed one is seen."""
    body = bytes(range(256)) * 32 * 1024
    async with serving() as (server, at, _, _):
        stream = await connect(at)
        sent = framed(request_frame(1, body)) + framed(request_frame(2)) + GARBAGE["zero"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, sent)
            await trio.testing.wait_all_tasks_blocked()
            assert await eof(stream) == framed(pack(">i", 1) + body) + framed(pack(">i", 2))
        await stream.aclose()
        await until(lambda: accepted(server) == 0)


@in_trio
async def test_nobody_waits_long_for_a_peer_that_sent_garbage_and_does_not_read():
    async with serving(frame_timeout_ms=100) as (server, at, lines, _):
        stream = await connect(at)
        await stream.send_all(framed(request_frame(1, bytes(16 * MIB))) + GARBAGE["zero"])
        await until(lambda: accepted(server) == 0)
        await stream.aclose()
    assert "it does not read" in lines[-1]


@in_trio
async def test_silent_connections_are_closed():
    async with serving(handshake_timeout_ms=50) as (server, at, lines, client):
        assert await ask(client, at) == b""
        for start in (b"", b"\0\0\0", framed(request_frame(1, bytes(100)))[:50]):
            stream = await connect(at)
            await stream.send_all(start)
            assert await eof(stream) == b""
            await stream.aclose()
        assert await ask(client, at) == b""  # who sent a request may be silent afterwards
        assert accepted(server) == 1
    assert len(lines) == 3
    assert "no request came in time" in lines[0]


@in_trio
async def test_slow_senders_are_broken():
    """A frame has time in proportion to its length, whatever dribbles in meanwhile."""
    async with serving(frame_timeout_ms=50, min_bytes_per_second=100_000) as (server, at, lines, client):
        slow, slower = await connect(at), await connect(at)
        await slow.send_all(framed(request_frame(1)) + pack(">i", 10_000))  # 50 + 100 ms for 10 kB
        await slower.send_all(framed(request_frame(1)) + pack(">i", 90_000_000))
        with trio.fail_after(20):
            while accepted(server) > 1:
                assert await ask(client, at) == b""
                try:
                    await slow.send_all(b"x")
                except trio.BrokenResourceError:
                    break
                await trio.sleep(0.005)
        assert await ask(client, at) == b""
        await slow.aclose()
        await until(lambda: accepted(server) == 2)  # the giant still has its time
        await slower.aclose()
    assert len(lines) == 1
    assert "did not arrive in time" in lines[0]


@in_trio
async def test_frames_in_any_pieces():
    rng = random.Random(3)
    frames = [request_frame(number, rng.randbytes(rng.choice([0, 1, 50, 5000]))) for number in range(300)]
    frames[100] = request_frame(100, rng.randbytes(3 * MIB))
    sent = b"".join(map(framed, frames))
    async with serving() as (_, at, _, _):
        stream = await connect(at)

        async def send():
            rest = memoryview(sent)
            while rest:
                cut = rng.choice([1, 2, 3, 4, 5, 13, 4096, 65_536, 100_000])
                await stream.send_all(rest[:cut])
                rest = rest[cut:]
            await stream.send_eof()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            expected = b"".join(framed(frame[4:8] + frame[8:]) for frame in frames)
            got = bytearray()
            while len(got) < len(expected):
                got += await stream.receive_some(MIB)
            assert got == expected
        assert await eof(stream) == b""
        await stream.aclose()


# ---- memory


def peak_of(test):
    """Bytes that the test's coroutine allocated at most."""
    tracemalloc.start()
    try:
        in_trio(test)()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_length_alone_reserves_nothing():
    async def attack():
        async with serving() as (server, at, _, client):
            streams = [await connect(at) for _ in range(50)]
            for stream in streams:
                await stream.send_all(pack(">i", 100 * MIB) + bytes(1000))
            await until(lambda: accepted(server) == 50)
            assert await ask(client, at) == b""
            for stream in streams:
                await stream.aclose()

    assert peak_of(attack) < 8 * MIB


@in_trio
async def test_long_frames_leave_nothing_behind():
    async with serving(receive_memory_bytes=24 * MIB) as (_, at, _, client):  # of one frame, not of all
        tracemalloc.start()
        try:
            for _ in range(3):
                assert await ask(client, at, bytes(20 * MIB)) == bytes(20 * MIB)
            assert tracemalloc.get_traced_memory()[0] < MIB
        finally:
            tracemalloc.stop()


@in_trio
async def test_memory_for_frames_under_way_is_bounded():
    async with serving(receive_memory_bytes=8 * MIB) as (_, at, lines, client):
        first, second = await connect(at), await connect(at)
        await first.send_all(framed(request_frame(1)))
        await first.send_all(pack(">i", 50 * MIB) + bytes(3 * MIB))
        for _ in range(2):  # by the second answer the server has seen that the first one's frame began
            assert await ask(client, at) == b""
        frame = framed(request_frame(2, bytes(6 * MIB)))
        await second.send_all(frame[:-1])
        assert await eof(first) == framed(pack(">i", 1))
        await second.send_all(frame[-1:])
        got = b""
        while len(got) < 8 + 6 * MIB:
            got += await second.receive_some(MIB)
        assert await ask(client, at, bytes(7 * MIB)) == bytes(7 * MIB)  # what the two held does not count any more
        await first.aclose()
        await second.aclose()
    assert len(lines) == 1
    assert "its frame began first" in lines[0]


@in_trio
async def test_memory_for_responses_is_bounded_and_whoever_reads_keeps_its_place():
    response = bytes(40 * MIB)  # more than the kernel takes of one connection

    def serve(frame, origin, reply):
        reply([frame[4:8], response])

    async with serving(serve, send_memory_bytes=120 * MIB) as (server, at, lines, _):
        before = accepted(server)
        reader, *idle = [await connect(at) for _ in range(8)]
        got = 0
        for number, stream in enumerate([reader, *idle]):
            await stream.send_all(framed(request_frame(number)))
            with trio.fail_after(60):
                while got < (number + 1) * 4 * MIB:
                    got += len(await reader.receive_some(MIB)) or pytest.fail("the reader was broken")
        await until(lambda: any("memory for responses" in line for line in lines))
        with trio.fail_after(60):
            while got < 8 + len(response):
                got += len(await reader.receive_some(MIB)) or pytest.fail("the reader was broken")
        assert 1 < accepted(server) - before < 7
        for stream in (reader, *idle):
            await stream.aclose()


def test_responses_that_nobody_reads_are_bounded():
    async def attack():
        response = bytes(MIB)

        def serve(frame, origin, reply):
            reply([frame[4:8], response if frame[8:] == b"long" else b""])

        async with serving(serve, connection_memory_bytes=4 * MIB, frame_timeout_ms=200) as (server, at, lines, client):
            stream = await connect(at)
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await stream.send_all(b"".join(framed(request_frame(number, b"long")) for number in range(1000)))
            await stream.aclose()
            assert await ask(client, at) == b""
            await until(lambda: accepted(server) == 1)
        assert len(lines) == 1
        assert "does not read" in lines[0]

    assert peak_of(attack) < 24 * MIB


@in_trio
async def test_reading_pauses_while_too_many_requests_are_served():
    waiting = []
    async with serving(lambda *request: waiting.append(request), max_in_flight=10) as (server, at, _, client):
        asked = [SentRequest(client, at, b"%d" % number) for number in range(500)]
        served = 0
        while served < 500:
            await until(lambda: waiting)
            await trio.sleep(0)
            assert len(waiting) <= 10
            rng = random.Random(served)
            taken = list(waiting)
            waiting.clear()
            served += len(taken)
            rng.shuffle(taken)
            for request in taken:
                echo(*request)
        assert [await one.result() for one in asked] == [b"%d" % number for number in range(500)]
        assert accepted(server) == 1


@pytest.mark.parametrize("size", [1000, 100_000])
@in_trio
async def test_who_is_muted_within_a_frame_is_not_slow_and_stays_mute(size):
    """A quota mutes a producer while its next request arrives: that waits, however long; its time does not run."""
    seen = []

    def serve(frame, origin, reply):
        seen.append((frame, origin))
        reply([frame[4:8]])

    frame = framed(request_frame(2, bytes(size)))
    async with serving(serve, frame_timeout_ms=200) as (_, at, lines, _):
        stream = await connect(at)
        for number, early in enumerate((10, 5)):  # bytes that come behind; all of them while it is mute, then half
            await stream.send_all(framed(request_frame(1)) + frame[:-10])
            await until(lambda: len(seen) == 2 * number + 1)  # noqa: B023
            unmute = seen[-1][1].mute()
            await stream.send_all(frame[-10:][:early])
            await trio.sleep(0.5)
            assert (len(seen), lines) == (2 * number + 1, [])
            unmute()
            await trio.sleep(0.05)
            await stream.send_all(frame[-10:][early:])
            await until(lambda: len(seen) == 2 * number + 2)  # noqa: B023
        assert [each for each, _ in seen] == [request_frame(1), frame[4:]] * 2
        await stream.aclose()
    assert lines == []


@in_trio
async def test_requests_that_came_along_with_the_connection_wait_their_turn():
    """They are read when the connection is accepted, before there is a task that reads; more than may be served."""
    waiting = []
    async with serving(lambda *request: waiting.append(request), max_in_flight=2) as (_, at, _, _):
        with socket.create_connection((at.host, at.port)) as sock:  # nothing is accepted as long as this does not wait
            sock.sendall(b"".join(framed(request_frame(number, b"x")) for number in range(5)))
            sock.setblocking(False)
            for count in (2, 2, 1):
                await until(lambda count=count: len(waiting) == count)
                taken = list(waiting)
                waiting.clear()
                for request in taken:
                    echo(*request)
            answers = b"".join(framed(pack(">i", number) + b"x") for number in range(5))
            received = b""
            while len(received) < len(answers):
                await trio.lowlevel.wait_readable(sock)
                received += sock.recv(1000)
            assert received == answers


@in_trio
async def test_requests_are_served_though_their_pause_ends_before_the_task_that_reads_runs():
    """Enough connections for one task to read them all; all answers to what is in flight come at once, soon after."""
    token = trio.lowlevel.current_trio_token()
    waiting = []

    def answer():
        while waiting:
            echo(*waiting.pop(0))

    def serve(*request):
        waiting.append(request)
        if len(waiting) >= 2:
            token.run_sync_soon(answer)

    async with serving(max_in_flight=2) as (server, _, _, _):
        at = await server.listen("held", LOOPBACK, serve)
        streams = [await connect(at) for _ in range(8)]
        for number in range(40):
            for stream in streams:
                await stream.send_all(b"".join(framed(request_frame(number, b"x")) for _ in range(4)))
                with trio.fail_after(60):
                    got = b""
                    while len(got) < 4 * 9:
                        got += await stream.receive_some(1000)
        for stream in streams:
            await stream.aclose()


@in_trio
async def test_garbage_that_came_along_with_the_connection_starts_no_task():
    started = []

    class Spawned(trio.abc.Instrument):
        def task_spawned(self, task):
            started.append(task)

    async with serving() as (server, at, lines, client):
        assert await SentRequest(client, at, b"before").result() == b"before"
        trio.lowlevel.add_instrument(Spawned())
        with socket.create_connection((at.host, at.port)) as sock:
            sock.sendall(GARBAGE["all-ones"])
            sock.setblocking(False)
            await trio.lowlevel.wait_readable(sock)
            with pytest.raises(ConnectionResetError):
                sock.recv(100)
        assert not started
        assert accepted(server) == 1
        assert "a frame of -1 bytes" in lines[0]


@in_trio
async def test_early_responses_count():
    """Held back behind one that does not come, they lie there: from 1 MiB on the connection is read no further."""
    served, size = [], 600 * 1024

    def serve(*request):
        served.append(request)
        if len(served) > 1:
            echo(*request)

    async with serving(serve, connection_memory_bytes=4 * MIB) as (_, at, _, client):
        asked = [SentRequest(client, at, bytes(size)) for _ in range(8)]
        await until(lambda: len(served) == 3)  # two responses wait
        await trio.sleep(0.05)
        assert len(served) == 3
        echo(*served[0])
        assert [len(await one.result()) for one in asked] == [size] * 8


# ---- numbers of connections


@in_trio
async def test_connections_that_sent_nothing_make_room():
    async with serving(max_connections=5) as (server, at, lines, client):
        assert await ask(client, at, b"before") == b"before"
        streams = [await connect(at) for _ in range(20)]
        for stream in streams[:16]:
            assert await eof(stream) == b""
        assert accepted(server) == 5
        for number, stream in enumerate(streams[16:]):
            await stream.send_all(framed(request_frame(number)))
            assert await stream.receive_some() == framed(pack(">i", number))
        turned_away = await connect(at)
        assert await eof(turned_away) == b""
        assert await ask(client, at, b"after") == b"after"
        assert accepted(server) == 5
        for stream in [*streams, turned_away]:
            await stream.aclose()
    assert 1 <= len(lines) <= 6  # rate-limited


@in_trio
async def test_where_no_connection_is_allowed_each_is_turned_away():
    async with serving(max_connections=0) as (server, at, lines, _):
        stream = await connect(at)
        assert await eof(stream) == b""
        assert accepted(server) == 0
        assert "there are 0 already" in lines[0]
        await stream.aclose()


@in_trio
async def test_clients_make_room_for_peers_and_not_for_each_other():
    """As in Kafka, where the listener between brokers is exempt from max.connections: a process full of clients."""
    lines, waiting = [], []

    def serve(frame, origin, reply):
        if frame[8:] == b"wait":
            waiting.append(reply)
        else:
            echo(frame, origin, reply)

    async def connected(at, number):
        stream = await connect(at)
        await stream.send_all(framed(request_frame(number)))
        return stream, await stream.receive_some(8)

    async with TcpTransport(log=lines.append, max_connections=3, vital_listeners=["PEERS"]) as server:
        peers, clients = await server.listen("PEERS", LOOPBACK, serve), await server.listen("CLIENTS", LOOPBACK, serve)
        streams = [(await connected(clients, number))[0] for number in (1, 2, 3)]
        await streams[0].send_all(framed(request_frame(4, b"wait")))
        await until(lambda: waiting)
        turned_away = await connect(clients)
        assert await eof(turned_away) == b""
        for number in (5, 6, 7):  # the idle ones first
            stream, answer = await connected(peers, number)
            assert answer == framed(pack(">i", number))
            streams.append(stream)
        assert [await eof(streams[place]) for place in (1, 2, 0)] == [b"", b"", b""]
        for at in (clients, peers):
            last = await connect(at)
            assert await eof(last) == b""
            await last.aclose()
        assert accepted(server) == 3
        for stream in [*streams, turned_away]:
            await stream.aclose()


@in_trio
async def test_connections_of_one_address_are_bounded():
    async with serving(max_connections_per_peer=3) as (server, at, _, client):
        assert await ask(client, at) == b""
        many = [await connect(at, "127.0.0.2") for _ in range(6)]
        for stream in many[:3]:
            assert await eof(stream) == b""
        for stream in many[3:]:
            await stream.send_all(framed(request_frame(1)))
            assert await stream.receive_some() == framed(pack(">i", 1))
        assert accepted(server) == 4
        for stream in many:
            await stream.aclose()
        await until(lambda: accepted(server) == 1)
        again = await connect(at, "127.0.0.2")
        await again.send_all(framed(request_frame(1)))
        assert await again.receive_some() == framed(pack(">i", 1))
        await again.aclose()


@in_trio
async def test_clients_make_room_for_peers_of_their_address():
    """Clients on a peer's machine must not keep it out, nor may it take what other addresses have."""
    async with TcpTransport(max_connections_per_peer=2, vital_listeners=["PEERS"]) as server:
        peers, clients = await server.listen("PEERS", LOOPBACK, echo), await server.listen("CLIENTS", LOOPBACK, echo)
        streams = []

        async def connected(at, host):
            stream = await connect(at, host)
            streams.append(stream)
            await stream.send_all(framed(request_frame(1)))
            return await stream.receive_some(8)

        for host in ("127.0.0.2", "127.0.0.3", "127.0.0.3"):
            assert await connected(clients, host)
        turned_away = await connect(clients, "127.0.0.3")
        assert await eof(turned_away) == b""
        for _ in range(2):
            assert await connected(peers, "127.0.0.3")
        assert [await eof(streams[place]) for place in (1, 2)] == [b"", b""]
        last = await connect(peers, "127.0.0.3")
        assert await eof(last) == b""
        assert accepted(server) == 3
        for stream in [*streams, turned_away, last]:
            await stream.aclose()


@in_trio
async def test_new_connections_come_at_a_bounded_rate(clock):
    """Time stands still but for the test's jumps; what can happen without time happens in the turns between them."""

    async def turns():
        for _ in range(100):
            await trio.lowlevel.checkpoint()

    async with serving(max_connection_creation_rate=30) as (server, at, _, _):
        streams = [socket.create_connection((at.host, at.port)) for _ in range(20)]
        clock.jump(5)
        await turns()
        assert accepted(server) == 3  # a tenth of a second's worth, however long nobody came
        for passed_s, count in ((0.034, 4), (0.101, 7), (1.0, 10)):
            clock.jump(passed_s)
            await turns()
            assert accepted(server) == count
        for stream in streams:
            stream.close()


@in_trio
async def test_running_out_of_file_descriptors():
    async with serving() as (server, at, lines, client):
        assert await ask(client, at) == b""
        spare = [socket.socket() for _ in range(40)]  # the attacker lives in this process, too
        for sock in spare:
            sock.setblocking(False)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1].fileno() + 6, limits[1]))
        try:
            for sock in spare:
                sock.connect_ex((at.host, at.port))
            await until(lambda: any("cannot accept connections" in line for line in lines))
            assert await ask(client, at, b"meanwhile") == b"meanwhile"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for sock in spare:
                sock.close()
        await until(lambda: accepted(server) == 1)
        stream = await connect(at)
        await stream.send_all(framed(request_frame(1)))
        assert await stream.receive_some() == framed(pack(">i", 1))
        await stream.aclose()
    assert len([line for line in lines if "cannot accept" in line]) <= 5


@in_trio
async def test_thousands_of_garbage_connections():
    rng = random.Random(1)
    kinds = [*GARBAGE.values(), b"", b"\0", framed(request_frame(1, bytes(99)))[:60]]
    async with serving(max_connections=200, max_connections_per_peer=200) as (server, at, lines, client):
        assert await ask(client, at) == b""
        done = trio.Event()
        answered = 0

        async def attack(count):
            held = []
            for _ in range(count):
                with contextlib.suppress(OSError, trio.BrokenResourceError):
                    kind = rng.choice(kinds)
                    stream = await connect(at, f"127.0.0.{rng.randrange(2, 250)}")
                    held.append(stream)
                    await stream.send_all(kind)
                    if kind in GARBAGE.values() and rng.random() < 0.2:
                        await eof(stream)
                    if rng.random() < 0.7:
                        await held.pop(rng.randrange(len(held))).aclose()
            for stream in held:
                await stream.aclose()

        async def attack_all():
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(attack, 100)
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(attack_all)
            while not done.is_set():
                assert await ask(client, at, b"%d" % answered) == b"%d" % answered
                answered += 1
        assert answered > 100
        assert client.connections == (0, 1)
        assert len(lines) < 50
        await until(lambda: accepted(server) == 1)


# ---- listening


@in_trio
async def test_addresses_that_cannot_be_had():
    async with TcpTransport() as server:
        at = await server.listen("L", LOOPBACK, echo)
        for address, text in (
            (at, "in use"),
            (Address("192.0.2.1", 0), "cannot listen on 192.0.2.1:0"),
            (Address("no.such.host.invalid", 0), "no.such.host.invalid:0"),
        ):
            with pytest.raises(TransportError, match=text):
                await server.listen("L", address, echo)


@in_trio
async def test_a_name_of_which_some_addresses_are_not_here(monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("192.0.2.1", "127.0.0.1", "127.0.0.2")]

    async def getaddrinfo(*arguments, **settings):
        return found

    async with TcpTransport() as server, TcpTransport() as client:
        with monkeypatch.context() as patch:
            patch.setattr(trio.socket, "getaddrinfo", getaddrinfo)
            at = await server.listen("L", Address("some.example", 0), echo)
            assert at.host == "some.example"
            del found[1:]
            with pytest.raises(TransportError, match="some.example:0"):
                await server.listen("L", Address("some.example", 0), echo)
        for host in ("127.0.0.1", "127.0.0.2"):
            assert await ask(client, Address(host, at.port), b"here") == b"here"


@in_trio
async def test_a_response_that_is_too_long_costs_its_connection_and_nobody_is_told():
    """Whoever answers may be about to answer others, and they have nothing to do with it."""
    replied = []

    def serve(frame, origin, reply):
        reply([bytes(2000)])
        replied.append(len(frame))

    async with serving(serve, max_frame_bytes=1000) as (_, at, lines, client):
        assert await ask(client, at) is Failure.RESET
    assert len(replied) == 1
    assert "a frame of 2000 bytes exceeds max_frame_bytes (1000)" in "".join(lines)


@in_trio
async def test_replying_twice_is_the_nodes_mistake():
    def serve(frame, origin, reply):
        reply([frame[4:8]])
        with pytest.raises(LocalError, match="answered already"):
            reply([frame[4:8]])

    async with serving(serve) as (_, at, _, client):
        assert await ask(client, at) == b""
        assert await ask(client, at) == b""


@in_trio
async def test_listening_goes_on_when_connections_vanish_early():
    async with serving() as (server, at, _, client):
        for _ in range(50):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            sock.connect((at.host, at.port))
            sock.close()  # a reset, perhaps before it is accepted
        assert await ask(client, at) == b""
        await until(lambda: accepted(server) == 1)
