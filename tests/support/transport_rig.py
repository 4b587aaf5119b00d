"""What the tests of transports share: running them under trio, a server that echoes, requests that can be awaited."""

from __future__ import annotations

import functools
import socket
from collections.abc import Awaitable, Callable
from struct import pack, unpack
from typing import Any

import trio

from kraftcore.ports.transport import Address, Origin, Reply, Transport
from kraftcore.protocol.failure import Failure

LOOPBACK = Address("127.0.0.1", 0)


def in_trio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test; it may hang for half a minute, not longer. A fixture ``clock`` becomes trio's clock.

    By a clock that jumps it may take a day.
    """

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        async def limited() -> None:
            with trio.fail_after(30 if clock is None else 86_400):
                await test(**arguments)

        clock = arguments.get("clock")
        trio.run(limited, clock=clock)

    return run


def echo(frame: bytes, _origin: Origin, reply: Reply) -> None:
    reply([frame[4:8], frame[8:]])


def request_frame(correlation_id: int, body: bytes = b"") -> bytes:
    return pack(">hhi", 18, 3, correlation_id) + body


class SentRequest:
    """A request that was sent; ``await asked.result()``."""

    last_id = 0

    def __init__(self, transport: Transport, address: Address, body: bytes = b"", timeout_ms: int = 20_000) -> None:
        SentRequest.last_id += 1
        self.correlation_id = SentRequest.last_id
        self.results: list[bytes | Failure] = []
        self._done = trio.Event()
        transport.request(address, [request_frame(self.correlation_id, body)], timeout_ms, self._answer)

    def _answer(self, result: bytes | Failure) -> None:
        self.results.append(result)
        self._done.set()

    async def result(self) -> bytes | Failure:
        """The response's body, or the failure."""
        await self._done.wait()
        assert len(self.results) == 1
        (result,) = self.results
        if isinstance(result, bytes):
            assert unpack(">i", result[:4]) == (self.correlation_id,)
            return result[4:]
        return result


async def ask(transport: Transport, address: Address, body: bytes = b"", timeout_ms: int = 20_000) -> bytes | Failure:
    return await SentRequest(transport, address, body, timeout_ms).result()


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that has no event."""
    while not condition():
        await trio.sleep(0.002)


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on; of course somebody may take it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.bind((host, 0))
        return sock.getsockname()[1]


async def eof(stream: trio.SocketStream) -> bytes:
    """What comes until the other side closes or breaks the connection."""
    seen = b""
    while True:
        try:
            data = await stream.receive_some(65536)
        except trio.BrokenResourceError:
            return seen
        if not data:
            return seen
        seen += data
