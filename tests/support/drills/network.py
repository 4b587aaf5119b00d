"""The network between the nodes of a lab, in a thread of its own: who reaches whom can be changed while they run."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from socket import SO_REUSEADDR, SOL_SOCKET, socket
from types import TracebackType
from typing import Self

import trio
from faults.proxy import Links, Proxy
from kafka_lab import HOST, free_port

START_S = 60


class Network:
    """Proxies, direction by direction; to be left from the thread that entered it."""

    def __init__(self) -> None:
        self._links = Links()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._has_begun.wait(START_S):
            raise TimeoutError("the network's thread did not begin")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        trio.from_thread.run_sync(self._nursery.cancel_scope.cancel, trio_token=self._token)
        self._thread.join()

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self._has_begun.set()
            await trio.sleep_forever()

    def lead_to(self, node_id: int, port: int) -> int:
        """The port at which others find a node that listens at ``port``."""
        front = socket()
        front.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        front.bind((HOST, free_port()))
        front.listen(256)

        def begin() -> None:
            self._nursery.start_soon(Proxy(self._links, node_id, port, front).run)

        trio.from_thread.run_sync(begin, trio_token=self._token)
        return int(front.getsockname()[1])

    def cut(self, directions: Iterable[tuple[int, int]]) -> None:
        """Let nothing through from the first to the second, in each of these directions, until ``heal``."""
        trio.from_thread.run_sync(self._links.cut.update, set(directions), trio_token=self._token)

    def heal(self, *, resets: bool) -> None:
        """Let everything through: what was on its way arrives late, or its connections are reset."""

        def heal() -> None:
            cut = set(self._links.cut)
            self._links.cut.clear()
            if resets:
                self._links.reset(cut)
            self._links.change()

        trio.from_thread.run_sync(heal, trio_token=self._token)


def both_ways(one: int, others: Iterable[int]) -> set[tuple[int, int]]:
    """All directions between a node and others."""
    return {pair for other in others for pair in ((one, other), (other, one))}
