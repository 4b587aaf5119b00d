"""TCP between nodes, direction by direction: what can be cut, held up and delayed.

Each node is advertised at a proxy of its own. Who connects to it says so in the first frame (the client id of the
request's header), so the proxy knows which two nodes a connection joins: nodes of ours, and Kafka's, whose replica
fetchers, raft clients and channels to the controller have a name each.
"""

from __future__ import annotations

import re
import socket
import struct

import trio

CHUNK = 1 << 16
NODE = re.compile(r"(?:kraftcore-|broker-|raft-client-)?(\d+)(?:-fetcher-\d+)?")
_NO_LINGER = struct.pack("ii", 1, 0)


class Links:
    """The state of every direction between two nodes, and the connections there are."""

    def __init__(self) -> None:
        self.cut: set[tuple[int, int]] = set()
        self.delay_s: dict[tuple[int, int], float] = {}
        self.refused: set[int] = set()
        self.connections: set[Joined] = set()
        self._changed = trio.Event()

    def change(self) -> None:
        """Whoever waits shall look again."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def carry(self, source: int, target: int) -> None:
        """Wait until bytes from one node to another get through."""
        delay_s = self.delay_s.get((source, target), 0)
        if delay_s:
            await trio.sleep(delay_s)
        while (source, target) in self.cut:
            await self._changed.wait()

    def reset(self, pairs: set[tuple[int, int]]) -> None:
        """Break the connections that run along these directions."""
        for joined in list(self.connections):
            if {(joined.source, joined.target), (joined.target, joined.source)} & pairs:
                joined.scope.cancel()


class Joined:
    """One connection through a proxy."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.scope = trio.CancelScope()


class Proxy:
    """Where one node is advertised.

    Args:
        links: the network's state.
        target: the node behind it.
        port: where that node listens.
        sock: where the proxy listens.
    """

    def __init__(self, links: Links, target: int, port: int, sock: socket.socket) -> None:
        self._links = links
        self._target = target
        self._port = port
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))

    async def run(self) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._serve, [self._listener])

    async def _serve(self, client: trio.SocketStream) -> None:
        try:
            first = await _first_frame(client)
            source = _sender(first)
            if source is not None:
                await self._join(client, source, first)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            # The end of the process behind, or of the path to it: a reset, as the kernel would send.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            client.socket.close()

    async def _join(self, client: trio.SocketStream, source: int, first: bytes) -> None:
        joined = Joined(source, self._target)
        self._links.connections.add(joined)
        try:
            with joined.scope:
                await self._links.carry(source, self._target)
                server = await trio.open_tcp_stream("127.0.0.1", self._port)
                async with server:
                    await server.send_all(first)
                    await self._pump_both(client, server, joined)
        finally:
            self._links.connections.discard(joined)

    async def _pump_both(self, client: trio.SocketStream, server: trio.SocketStream, joined: Joined) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, client, server, joined.source, joined.target, joined)
            nursery.start_soon(self._pump, server, client, joined.target, joined.source, joined)

    async def _pump(
        self, one: trio.SocketStream, other: trio.SocketStream, source: int, target: int, joined: Joined
    ) -> None:
        try:
            while data := await one.receive_some(CHUNK):
                await self._links.carry(source, target)
                await other.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await self._links.carry(source, target)  # nobody learns of an end behind a cut
        joined.scope.cancel()


async def _first_frame(stream: trio.SocketStream) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
        more = await stream.receive_some(CHUNK)
        if not more or len(data) > CHUNK:
            return b""
        data += more
    return data


def _sender(frame: bytes) -> int | None:
    if len(frame) < 14:
        return None
    length = int.from_bytes(frame[12:14])
    found = NODE.fullmatch(frame[14 : 14 + length].decode(errors="replace"))
    return None if found is None else int(found[1])
