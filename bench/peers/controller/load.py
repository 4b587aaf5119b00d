"""A closed loop over many connections: frames encoded once and patched, one thread and epoll."""

from __future__ import annotations

import gc
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.peers.controller.wire import HOST, Unexpected

INT = struct.Struct(">i")
CORRELATION = 8
"""Where a frame's correlation id stands, size included."""
ANSWER_S = 60.0


@contextmanager
def resting_collector() -> Iterator[None]:
    """The garbage collector of Python rests meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass
class Result:
    """What was answered in a slice: seconds of each request, of the slice, and of the node's processors."""

    latencies_s: list[float]
    seconds: float
    cpu_s: float

    def quantile_ms(self, share: float) -> float:
        return 1e3 * self.latencies_s[min(len(self.latencies_s) - 1, int(len(self.latencies_s) * share))]


@dataclass
class _Connection:
    socket: socket.socket
    slot: int
    unread: bytes = b""
    waiting: deque[tuple[int, float]] = field(default_factory=deque)


class Load:
    """Connections with one request each in flight; a slot is the number of one."""

    def __init__(self, port: int, connections: int) -> None:
        self.poll = select.epoll()
        self.connections: dict[int, _Connection] = {}
        for slot in range(connections):
            connection = socket.create_connection((HOST, port), ANSWER_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections[connection.fileno()] = _Connection(connection, slot)
            self.poll.register(connection.fileno(), select.EPOLLIN)
        self.correlation = 0

    def run(
        self,
        request: Callable[[int], bytearray],
        is_good: Callable[[bytes], bool],
        warm_s: float,
        measure_s: float,
        cpu_s: Callable[[], float],
    ) -> Result:
        """Ask again and again.

        Args:
            request: the frame for a slot, size included; its correlation id is patched in.
            is_good: whether an answer, size included, is what was asked for.
            warm_s: not measured.
            measure_s: the slice. What is in flight at its end is waited for.
            cpu_s: the node's processor time so far.
        Raises:
            Unexpected: an answer is not good, or does not come; its second argument is the answer.
        """
        latencies: list[float] = []
        begin = time.perf_counter() + warm_s
        began = ended = cpu_before = cpu_after = None
        with resting_collector():
            for connection in self.connections.values():
                self._send(connection, request)
            busy = len(self.connections)
            while busy:
                events = self.poll.poll(ANSWER_S)
                if not events:
                    raise Unexpected(f"no answer within {ANSWER_S:g} s")
                now = time.perf_counter()
                if began is None and now >= begin:
                    began, cpu_before = now, cpu_s()
                if ended is None and began is not None and now >= began + measure_s:
                    ended, cpu_after = now, cpu_s()
                for descriptor, _ in events:
                    connection = self.connections[descriptor]
                    for answer in self._answers(connection):
                        correlation, sent = connection.waiting.popleft()
                        if INT.unpack_from(answer, 4)[0] != correlation or not is_good(answer):
                            raise Unexpected("not the answer that was asked for", answer)
                        if began is not None and ended is None:
                            latencies.append(time.perf_counter() - sent)
                        if ended is None:
                            self._send(connection, request)
                        else:
                            busy -= 1
        assert began is not None
        assert ended is not None
        assert cpu_before is not None
        assert cpu_after is not None
        if not latencies:
            raise Unexpected(f"nothing was answered within {measure_s:g} s")
        return Result(sorted(latencies), ended - began, cpu_after - cpu_before)

    def _send(self, connection: _Connection, request: Callable[[int], bytearray]) -> None:
        self.correlation += 1
        frame = request(connection.slot)
        INT.pack_into(frame, CORRELATION, self.correlation)
        connection.waiting.append((self.correlation, time.perf_counter()))
        connection.socket.sendall(frame)

    def _answers(self, connection: _Connection) -> list[bytes]:
        received = connection.socket.recv(1 << 20)
        if not received:
            raise Unexpected("the controller closed a connection")
        data = connection.unread + received
        answers, place = [], 0
        while len(data) - place >= INT.size:
            end = place + INT.size + INT.unpack_from(data, place)[0]
            if end > len(data):
                break
            answers.append(data[place:end])
            place = end
        connection.unread = data[place:]
        return answers

    def close(self) -> None:
        self.poll.close()
        for connection in self.connections.values():
            connection.socket.close()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
