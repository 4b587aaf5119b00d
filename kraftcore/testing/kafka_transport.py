"""A transport for brokers in one process: clients come by TCP, the nodes talk over a network in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from kraftcore.ownership import Owned, belongs_here
from kraftcore.ports.transport import Address, Admission, Answer, Parts, Serve
from kraftcore.testing.faults import Gate
from kraftcore.transports.memory import MemoryTransport
from kraftcore.transports.tcp import TcpTransport


class ClientsByTcp(Owned):
    """Two transports as one, opened and closed by ``async with``.

    Args:
        listener: name of the one that is bound by TCP; the others are in memory, and so is all that is sent.
        memory: between nodes.
        tcp: for clients.
        gate: makes what their requests go through, of what takes those that pass.
    """

    def __init__(
        self, listener: str, memory: MemoryTransport, tcp: TcpTransport, gate: Callable[[Serve], Gate]
    ) -> None:
        self._listener = listener
        self._memory = memory
        self._tcp = tcp
        self._gate = gate
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._memory)
        try:
            await self._stack.enter_async_context(self._tcp)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if belongs_here(self):
            await self._stack.aclose()

    async def listen(
        self, listener: str, address: Address, serve: Serve, admission: Admission | None = None
    ) -> Address:
        """See ``Transport``."""
        if listener == self._listener:
            return await self._tcp.listen(listener, address, self._gate(serve).serve, admission)
        return await self._memory.listen(listener, address, serve, admission)

    def request(self, address: Address, parts: Parts, timeout_ms: int, answer: Answer) -> None:
        """See ``Transport``."""
        self._memory.request(address, parts, timeout_ms, answer)

    @property
    def connections(self) -> tuple[int, int]:
        """How many are open: accepted ones, and own."""
        (memory, made), (tcp, _) = self._memory.connections, self._tcp.connections
        return memory + tcp, made

    async def aclose(self) -> None:
        """See ``Transport``."""
        await self._memory.aclose()
        await self._tcp.aclose()
