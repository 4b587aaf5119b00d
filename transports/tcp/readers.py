"""One task that waits for all accepted connections, where the operating system has epoll.

A task that waits for its own socket costs a system call, trio's bookkeeping and two switches for each message. Accepted
connections are entered in an epoll set of the transport's instead, once; one task waits for the set, and lets each
connection that is readable read at once. A connection's own task sleeps until it must pause, has much more to read, or
is broken. With up to `FEW` connections each waits by itself: the set would cost more than it saves.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from typing import Any

import trio
from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from kraftcore.ownership import close_in_children, no_forks
from kraftcore.ports.nursery import uninterrupted

READS_IN_A_ROW = 16  # reads of one connection before other tasks get their turn
FEW = 4


class _Sleeper:
    """A connection whose task sleeps."""

    __slots__ = ("more", "must_pause", "take", "task")

    def __init__(self, task: Task, take: Callable[[], bool], must_pause: Callable[[], bool]) -> None:
        self.task = task
        self.take = take
        self.must_pause = must_pause
        self.more = False


class Readers:
    """Waits for all accepted connections in one task, by epoll.

    Attributes:
        members: number of connections that may wait here.
    """

    def __init__(self) -> None:
        self.members = 0
        with no_forks:
            self._epoll = select.epoll()
            close_in_children(self, Readers.close)  # a forked child shares the set: its removals would be ours
        self._waiting: dict[int, _Sleeper] = {}

    @property
    def pay(self) -> bool:
        """Whether a connection should wait here instead of by itself."""
        return self.members > FEW

    async def wait(self, fd: int, take: Callable[[], bool], must_pause: Callable[[], bool]) -> bool:
        """Wait, and read what comes, until the connection must pause or has much more to read.

        Args:
            fd: of a socket; ``closing`` is called before it is closed.
            take: called when the socket is readable, again while it returns True: more may have arrived.
            must_pause: called after each ``take``; True ends the wait.

        Returns:
            Whether more may have arrived.
        """
        waiting = self._waiting[fd] = _Sleeper(current_task(), take, must_pause)
        self._epoll.register(fd, select.EPOLLIN)

        def abort(_: Any) -> Abort:
            self._forget(fd)
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return waiting.more

    def closing(self, fd: int) -> None:
        """Wake the task that waits here for a socket which is about to be closed."""
        waiting = self._waiting.get(fd)
        if waiting is not None:
            self._wake(fd, waiting)

    def close(self) -> None:
        """Close the set; called when no task waits any more."""
        self._epoll.close()

    @uninterrupted
    async def run(self) -> None:
        """Wait for all sockets, until cancelled."""
        epoll, found = self._epoll, self._waiting
        while True:
            await trio.lowlevel.wait_readable(epoll.fileno())
            for fd, _ in epoll.poll(0):
                waiting = found.get(fd)
                if waiting is not None:  # else a frame of another connection has ended the wait
                    self._read(fd, waiting)

    def _read(self, fd: int, waiting: _Sleeper) -> None:
        for _ in range(READS_IN_A_ROW):
            waiting.more = waiting.take()
            if self._waiting.get(fd) is not waiting:
                return  # the connection was broken
            if waiting.must_pause():
                break
            if not waiting.more:
                return
        self._wake(fd, waiting)

    def _wake(self, fd: int, waiting: _Sleeper) -> None:
        self._forget(fd)
        reschedule(waiting.task)

    def _forget(self, fd: int) -> None:
        del self._waiting[fd]
        self._epoll.unregister(fd)


def make_readers() -> Readers | None:
    """Make the readers; None where there is no epoll: each task then waits for its own socket."""
    return Readers() if sys.platform == "linux" else None
