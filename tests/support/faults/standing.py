"""Logins that are begun and left, so many at all times: what is closed for its age is replaced before it is due."""

from __future__ import annotations

import errno
import select
import socket
from collections import deque
from itertools import cycle

import trio

GIVEN_UP_MS = 60_000  # what nodes are told: on a busy machine making 10,000 takes longer than the 10 s of the default
AGE_S = 0.8 * GIVEN_UP_MS / 1000
RATE = 3000  # made a second, at most; three nodes accept 2,000 a second each
AT_A_TIME = 50
FILL_S = 120
ANSWERS = 3  # to versions, handshake and first message


class StandingLogins:
    """Half-open connections to some ports.

    Args:
        host: of the ports.
        ports: where.
        count: how many there are at a time.
        begun: what each sends: up to the point where the server waits for the proof.

    Attributes:
        connections: that were made.
    """

    def __init__(self, host: str, ports: list[int], count: int, begun: bytes) -> None:
        self._host = host
        self._ports = cycle(ports)
        self._count = count
        self._begun = begun
        self._held: deque[tuple[float, socket.socket]] = deque()
        self.connections = 0

    async def fill(self) -> None:
        """Return when there are as many as wanted, and each waits for its proof.

        Raises:
            trio.TooSlowError: they are not there within two minutes.
        """
        with trio.fail_after(FILL_S):
            while self.open_now() < self._count or not all(_is_asked(sock) for _, sock in self._held):
                await self._make(self._count - len(self._held))
                await trio.sleep(0.2)

    async def run(self) -> None:
        """Replace the old ones, until cancelled."""
        while True:
            due = trio.current_time() - AGE_S
            while self._held and self._held[0][0] < due:
                self._held.popleft()[1].close()
            await self._make(self._count - len(self._held))
            await trio.sleep(AT_A_TIME / RATE)

    def open_now(self) -> int:
        """How many the nodes hold open; those that they closed are dropped here, too."""
        poll = select.poll()
        by_number = {sock.fileno(): sock for _, sock in self._held}
        for number in by_number:
            poll.register(number, select.POLLRDHUP)
        closed = {by_number[number] for number, _ in poll.poll(0)}
        for sock in closed:
            sock.close()
        self._held = deque(each for each in self._held if each[1] not in closed)
        return len(self._held)

    def close(self) -> None:
        """End all."""
        while self._held:
            self._held.pop()[1].close()

    async def _make(self, count: int) -> None:
        while count > 0:
            for _ in range(min(count, AT_A_TIME)):
                await self._begin()
            count -= AT_A_TIME
            await trio.sleep(AT_A_TIME / RATE)

    async def _begin(self) -> None:
        sock = socket.socket()
        try:
            sock.setblocking(False)
            if sock.connect_ex((self._host, next(self._ports))) == errno.EINPROGRESS:
                with trio.move_on_after(5):
                    await trio.lowlevel.wait_writable(sock)
            sock.send(self._begun)
        except OSError:
            sock.close()
            return
        self.connections += 1
        self._held.append((trio.current_time(), sock))


def _is_asked(sock: socket.socket) -> bool:
    """Whether the server has answered everything: it waits for the proof."""
    try:
        data = sock.recv(1 << 16, socket.MSG_PEEK)
    except OSError:
        return False
    count = 0
    while data:
        data = data[4 + int.from_bytes(data[:4]) :]
        count += 1
    return count >= ANSWERS
