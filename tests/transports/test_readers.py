"""Accepted connections that are waited for together, and by themselves."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from struct import pack

import pytest
import trio
from transport_rig import LOOPBACK, ask, echo, eof, in_trio, request_frame, until

from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp import TcpTransport, readers, transport

MANY = 30
needs_epoll = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has epoll")


def framed(body: bytes) -> bytes:
    frame = request_frame(1, body)
    return pack(">i", len(frame)) + frame


def answer(body: bytes) -> bytes:
    return pack(">ii", 4 + len(body), 1) + body


class Crowd:
    """A server, and streams that are connected to it."""

    def __init__(self, server: TcpTransport, streams: list[trio.SocketStream]) -> None:
        self.server = server
        self.streams = streams

    @property
    def asleep(self) -> int:
        """Connections whose tasks sleep while all are waited for together."""
        return len(self.server._readers._waiting)


async def crowd(stack: AsyncExitStack, count: int, serve=echo, **limits) -> Crowd:
    server = await stack.enter_async_context(TcpTransport(log=lambda line: None, **limits))
    at = await server.listen("L", LOOPBACK, serve)
    streams = []
    for _ in range(count):
        stream = await trio.open_tcp_stream(at.host, at.port)
        stack.push_async_callback(stream.aclose)
        streams.append(stream)
        await stream.send_all(framed(b"first"))
    return Crowd(server, streams)


async def read(stream: trio.SocketStream, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = await stream.receive_some(size - len(found))
        assert part, f"it ended after {found!r}"
        found += part
    return found


async def said(stream: trio.SocketStream, body: bytes) -> None:
    assert await read(stream, len(answer(body))) == answer(body)


@needs_epoll
@in_trio
async def test_many_connections_are_read_while_their_tasks_sleep():
    async with AsyncExitStack() as stack:
        found = await crowd(stack, MANY)
        for stream in found.streams:
            await said(stream, b"first")
        for turn in range(3):
            body = b"turn %d" % turn
            for stream in found.streams:
                await stream.send_all(framed(body))
            for stream in found.streams:
                await said(stream, body)
            if turn:  # whoever had waited by itself, before there were many, waits here since its last message
                await until(lambda: found.asleep == MANY)


@in_trio
async def test_few_connections_wait_by_themselves():
    async with AsyncExitStack() as stack:
        found = await crowd(stack, readers.FEW)
        for stream in found.streams:
            await said(stream, b"first")
        assert found.server._readers is None or found.asleep == 0


@in_trio
async def test_without_epoll_each_waits_by_itself(monkeypatch):
    monkeypatch.setattr(transport, "make_readers", lambda: None)
    async with AsyncExitStack() as stack:
        found = await crowd(stack, MANY)
        for stream in found.streams:
            await said(stream, b"first")
            await stream.send_all(framed(b"second"))
            await said(stream, b"second")


@needs_epoll
@in_trio
async def test_connections_that_end_are_forgotten(together):
    async with AsyncExitStack() as stack:
        found = await crowd(stack, MANY)
        for stream in found.streams:
            await said(stream, b"first")
        await until(lambda: found.asleep == MANY)
        for number, stream in enumerate(found.streams):
            if number % 3 == 0:
                await stream.aclose()
            elif number % 3 == 1:
                await stream.send_all(pack(">i", -1))  # garbage: broken by the server
                assert await eof(stream) == b""
        await until(lambda: found.asleep == found.server._readers.members == MANY // 3)
        for stream in found.streams[2::3]:
            await stream.send_all(framed(b"still here"))
            await said(stream, b"still here")
    assert found.asleep == found.server._readers.members == 0


@needs_epoll
@in_trio
async def test_one_that_breaks_another_from_within_a_message(together):
    """Both are readable when the set is looked at; the first one's message ends the second."""
    ends = []

    def serve(frame, origin, reply):
        if frame[8:] == b"end the other":
            (other,) = [each for each in found.server._shared.connections if each.peer != origin.peer]
            other.break_(Failure.OTHER, "the other one said so")
            ends.append(origin.peer)
        echo(frame, origin, reply)

    async with AsyncExitStack() as stack:
        found = await crowd(stack, 2, serve)
        for stream in found.streams:
            await said(stream, b"first")
        await until(lambda: found.asleep == 2)
        for stream in found.streams:
            stream.socket._sock.send(framed(b"end the other"))  # both before the server has its turn
        await until(lambda: found.server._readers.members == 1)
        (by,) = ends
        (left,) = [each for each in found.streams if by.endswith(f":{each.socket.getsockname()[1]}")]
        await said(left, b"end the other")
        await left.send_all(framed(b"on"))
        await said(left, b"on")


@needs_epoll
@in_trio
async def test_a_connection_that_must_pause_is_left_alone_until_it_may_go_on(together):
    waiting = []

    def serve(frame, origin, reply):
        if frame[8:] == b"first":
            echo(frame, origin, reply)
        else:
            waiting.append((frame, origin, reply))

    async with AsyncExitStack() as stack:
        found = await crowd(stack, 3, serve, max_in_flight=4)
        for stream in found.streams:
            await said(stream, b"first")
        await until(lambda: found.asleep == 3)
        busy, *others = found.streams
        await busy.send_all(framed(b"x") * 20)
        await until(lambda: len(waiting) == 4 and found.asleep == 2)
        for stream in others:
            await stream.send_all(framed(b"first"))
            await said(stream, b"first")
        for _ in range(20):
            await until(lambda: waiting)
            assert len(waiting) <= 4
            echo(*waiting.pop(0))
            await said(busy, b"x")
        await until(lambda: found.asleep == 3)


@needs_epoll
@in_trio
async def test_one_that_sends_without_end_leaves_turns_to_the_others(together, monkeypatch):
    monkeypatch.setattr(readers, "READS_IN_A_ROW", 1)
    async with AsyncExitStack() as stack:
        found = await crowd(stack, 2)
        for stream in found.streams:
            await said(stream, b"first")
        await until(lambda: found.asleep == 2)
        loud, quiet = found.streams
        long = bytes(300_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loud.send_all, framed(long) * 5)
            for _ in range(20):
                await quiet.send_all(framed(b"me"))
                await said(quiet, b"me")
            for _ in range(5):
                await said(loud, long)


@needs_epoll
@in_trio
async def test_tls_that_holds_more_than_was_read(together, certificates):
    """What is in TLS's own buffer makes no socket readable."""
    files = certificates.files()
    async with TcpTransport(tls=files) as server, TcpTransport(tls=files) as client:
        at = await server.listen("L", LOOPBACK, echo)
        body = bytes(range(256)) * 2000
        for _ in range(3):
            assert await ask(client, at, body) == body
        await until(lambda: len(server._readers._waiting) == 1)
