"""A network in memory: partitions, delays and losses can be switched while it runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import count
from math import inf
from struct import Struct
from types import TracebackType
from typing import Any, Self

import trio

from kraftcore.errors import LocalError, TransportError
from kraftcore.ownership import Owned, belongs_here
from kraftcore.ports.exchange import Responses, answer_after_end
from kraftcore.ports.nursery import open_nursery, uninterrupted
from kraftcore.ports.transport import Address, Admission, Answer, Origin, Parts, Serve
from kraftcore.protocol.failure import Failure

_unpack_id = Struct(">i").unpack_from
_FIRST_FREE_PORT = 49152


class MemoryNetwork:
    """Nodes of one process, by name, and the links between them. Addresses are its own: any host will do.

    Every method may be called at any time, also from within callbacks; frames under way are delivered, or not, by the
    state at their arrival.

    Args:
        seed: of what is drawn at random.

    Attributes:
        delay_ms: how long a frame is under way: a number, or (least, most) to draw from. Frames of one link stay in
            order.
        loss: share of frames that vanish, 0 to 1. Over TCP nothing like this exists; a lost frame's request times out.
    """

    def __init__(self, *, delay_ms: float | tuple[float, float] = 0, loss: float = 0.0, seed: int = 0) -> None:
        self.delay_ms = delay_ms
        self.loss = loss
        self._random = random.Random(seed)
        self._cut: set[tuple[str | None, str | None]] = set()
        self._refusing: set[str] = set()
        self._paused: set[str] = set()
        self._open: dict[str, MemoryTransport] = {}
        self._listeners: dict[Address, _Listener] = {}
        self._owners: dict[Address, str] = {}  # who listens or listened there last: a cut hides the dead, too

    def transport(self, name: str) -> MemoryTransport:
        """A transport for the node ``name``; one at a time may be open, a restarted node gets a new one."""
        return MemoryTransport(self, name)

    def cut(self, one: str | Iterable[str], other: str | Iterable[str], *, both_ways: bool = True) -> None:
        """Let nothing pass from ``one`` to ``other`` any more: names, or several of them. Nobody is told."""
        ones = [one] if isinstance(one, str) else list(one)
        others = [other] if isinstance(other, str) else list(other)
        for source in ones:
            for target in others:
                self._cut.add((source, target))
                if both_ways:
                    self._cut.add((target, source))

    def heal(self) -> None:
        """Undo every ``cut``. Connections on which something did not pass break, and who waits hears TIMED_OUT.

        Over TCP it would come late, or never.
        """
        self._cut.clear()
        for transport in self._open.values():
            for link in list(transport.links.values()):
                if link.lacks_some:
                    link.break_(Failure.TIMED_OUT)  # nobody has died

    def refuse(self, name: str) -> None:
        """As if the process ``name`` had died: its connections break, new ones are refused, until ``accept``."""
        self._refusing.add(name)
        self._break_links(name)

    def accept(self, name: str) -> None:
        """Undo ``refuse``."""
        self._refusing.discard(name)

    def pause(self, name: str) -> None:
        """As if the process ``name`` was stopped by SIGSTOP: nothing that is sent to it is taken, and it sends nothing.

        Connections stay. What arrives waits until ``resume``, and so does what it would send. Timers of the node itself
        go on.
        """
        self._paused.add(name)
        self._tell_paused(name)

    def resume(self, name: str) -> None:
        """Undo ``pause``: what waited is taken, in order."""
        self._paused.discard(name)
        self._tell_paused(name)

    def is_paused(self, name: str) -> bool:
        """Whether a node is paused."""
        return name in self._paused

    def _tell_paused(self, name: str) -> None:
        if (transport := self._open.get(name)) is not None:
            transport.set_paused(name in self._paused)

    # ---- for MemoryTransport and its links

    def opened(self, transport: MemoryTransport) -> None:  # noqa: D102
        if transport.name in self._open:
            raise LocalError(f"a transport named {transport.name!r} is open already")
        self._open[transport.name] = transport
        transport.set_paused(self.is_paused(transport.name))

    def closed(self, transport: MemoryTransport) -> None:  # noqa: D102
        del self._open[transport.name]
        for address in [at for at, listener in self._listeners.items() if listener.transport is transport]:
            del self._listeners[address]
        self._break_links(transport.name)

    def bind(self, listener: _Listener, address: Address) -> Address:  # noqa: D102
        if address.port:
            if address in self._listeners:
                raise TransportError(f"cannot listen on {address}: {self._listeners[address].transport.name} does")
        else:
            free = (Address(address.host, port) for port in range(_FIRST_FREE_PORT, 2**16))
            address = next(one for one in free if one not in self._listeners)
        self._listeners[address] = listener
        self._owners[address] = listener.transport.name
        return address

    def owner(self, address: Address) -> str | None:  # noqa: D102
        return self._owners.get(address)

    def find(self, source: str, address: Address) -> _Listener | None:  # noqa: D102
        listener = self._listeners.get(address)
        if listener is None or {source, listener.transport.name} & self._refusing:
            return None
        return listener

    def passes(self, source: str | None, target: str | None) -> bool:
        """Whether a frame that is sent, or arrives, now gets through."""
        return (source, target) not in self._cut

    def loses(self) -> bool:
        """Whether a frame that is sent now is lost."""
        return self.loss > 0 and self._random.random() < self.loss

    def delay_s(self) -> float:
        """How long a frame that is sent now is under way."""
        delay = self.delay_ms
        return (self._random.uniform(*delay) if isinstance(delay, tuple) else delay) / 1000

    def links_to(self, transport: MemoryTransport) -> int:
        """How many connections end at a transport."""
        return sum(link.target == transport.name for one in self._open.values() for link in one.links.values())

    def _break_links(self, name: str) -> None:
        for transport in self._open.values():
            for link in list(transport.links.values()):
                if transport.name == name or (link.target == name and self.passes(name, transport.name)):
                    link.break_(Failure.RESET)
                elif link.target == name:
                    link.lacks_some = True  # a machine behind a cut learns of the end when that heals


class MemoryTransport(Owned):
    """One node's end of a ``MemoryNetwork``: ``async with network.transport("a") as transport``.

    What the callbacks raise comes out of the ``async with``. Time is trio's, so that a MockClock moves delays and
    timeouts.

    Attributes:
        name: of the node.
        links: connections to others that this side made, by address.
        is_paused: see ``MemoryNetwork.pause``.
    """

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self.links: dict[Address, _Link] = {}
        self.is_paused = False
        self._network = network
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._unsent: list[tuple[Address, bytes, int, Answer]] = []
        self._is_open = False

    @uninterrupted
    async def __aenter__(self) -> Self:
        self._wake = trio.Event()
        self._network.opened(self)
        self._token = trio.lowlevel.current_trio_token()
        self._manager = open_nursery()
        nursery = await self._manager.__aenter__()
        self._scope = trio.CancelScope()
        nursery.start_soon(self._run)
        self._is_open = True
        return self

    @uninterrupted
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if not belongs_here(self):
            return None
        try:
            self._close()
        finally:
            is_over = await self._manager.__aexit__(kind, error, trace)
        return is_over

    async def listen(
        self, listener: str, address: Address, serve: Serve, admission: Admission | None = None
    ) -> Address:
        """See ``Transport``."""
        await trio.lowlevel.checkpoint()
        if not self._is_open:
            raise LocalError("the transport is not open: use it as `async with network.transport(...)`")
        return self._network.bind(_Listener(self, listener, serve, admission), address)

    def request(self, address: Address, parts: Parts, timeout_ms: int, answer: Answer) -> None:
        """See ``Transport``.

        Raises:
            LocalError: the frame is too short, its correlation id is on its way to that peer already, or the transport
                was never opened; ``answer`` is not called.
        """
        frame = b"".join(parts)
        if len(frame) < 8:
            raise LocalError(f"a request of {len(frame)} bytes has no correlation id")
        if not self._is_open:
            if not hasattr(self, "_token"):
                raise LocalError("the transport was never opened: use it as `async with network.transport(...)`")
            answer_after_end(self._token, answer, Failure.OTHER)
            return
        if self.is_paused:
            self._unsent.append((address, frame, timeout_ms, answer))
            return
        link = self.links.get(address)
        if link is None or not link.is_open:
            link = self.links[address] = _Link(self._network, self, address)
        link.request(frame, timeout_ms / 1000, answer)

    async def aclose(self) -> None:
        """See ``Transport``; leaving the ``async with`` does it."""
        self._close()
        await trio.lowlevel.checkpoint()

    @property
    def connections(self) -> tuple[int, int]:
        """How many are open: those others made to this side, and its own."""
        return self._network.links_to(self), len(self.links)

    def at(self, due: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` in this transport's task, not before ``due`` (seconds of trio's clock)."""
        heappush(self._agenda, (due, next(self._order), action, arguments))
        self._wake.set()

    def set_paused(self, is_paused: bool) -> None:
        """Do nothing that is due until it is called again with False; see ``MemoryNetwork.pause``."""
        self.is_paused = is_paused
        self._wake.set()
        if not is_paused:
            unsent, self._unsent = self._unsent, []
            for address, frame, timeout_ms, answer in unsent:
                self.request(address, (frame,), timeout_ms, answer)

    @uninterrupted
    async def _run(self) -> None:
        with self._scope:
            agenda = self._agenda
            while True:
                with trio.move_on_at(agenda[0][0] if agenda and not self.is_paused else inf):
                    await self._wake.wait()
                self._wake = trio.Event()
                if self.is_paused:
                    continue
                newest = next(self._order)
                now = trio.current_time()
                while agenda and agenda[0][0] <= now and agenda[0][1] < newest:
                    _, _, action, arguments = heappop(agenda)
                    action(*arguments)

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._network.closed(self)
        self._scope.cancel()
        with ExitStack() as stack:  # all of them, even when a callback raises
            for link in self.links.values():
                stack.callback(link.end, Failure.OTHER)
            for *_, answer in self._unsent:
                stack.callback(answer, Failure.OTHER)


class _Listener:
    def __init__(self, transport: MemoryTransport, name: str, serve: Serve, admission: Admission | None) -> None:
        self.transport = transport
        self.name = name
        self.serve = serve
        self.admission = admission


class _Link:
    """A connection: requests one way, responses the other, each in order.

    Attributes:
        is_open: whether it is.
        target: who listened at its other end when it was made.
        lacks_some: a request, a response or the connection's end did not pass a cut.
    """

    def __init__(self, network: MemoryNetwork, source: MemoryTransport, address: Address) -> None:
        self.is_open = True
        self.lacks_some = False
        self._network = network
        self._source = source
        self._address = address
        self._place = Address(address.host, address.port)  # on whichever lane
        self._listener = network.find(source.name, self._place)
        self.target = network.owner(self._place)
        self._waiting: dict[int, tuple[float, Answer]] = {}  # until when, by correlation id
        self._looked_at = inf
        self._responses = Responses(self._respond, self._refuse)
        self._request_due = self._response_due = 0.0
        admission = None if self._listener is None else self._listener.admission
        name = "" if self._listener is None else self._listener.name
        self._origin = Origin(
            name,
            source.name,
            None,
            admission is None,
            close=self._hang_up,
            wait=self._responses.wait,
            mute=self._responses.mute,
        )
        self._late: list[tuple[_Listener, bytes]] = []  # requests that wait for the answer to one before them
        if admission is not None:
            source.at(trio.current_time() + admission.timeout_ms / 1000, self._admitted_or_broken)

    def request(self, frame: bytes, timeout_s: float, answer: Answer) -> None:
        (correlation_id,) = _unpack_id(frame, 4)
        if correlation_id in self._waiting:
            raise LocalError(f"correlation id {correlation_id} is on its way to {self._address} already")
        network, now = self._network, trio.current_time()
        self._waiting[correlation_id] = now + timeout_s, answer
        self._look_at(now + timeout_s)
        self._request_due = max(self._request_due, now + network.delay_s())
        if not self._passes(self._source.name, self.target):
            return
        if self._listener is None:
            self._source.at(self._request_due, self.end, Failure.REFUSED)
        elif not self._is_alive():
            self._source.at(self._request_due, self.end, Failure.RESET)
        elif not network.loses():
            self._listener.transport.at(self._request_due, self._arrived, self._listener, frame)

    def _passes(self, sender: str | None, receiver: str | None) -> bool:
        if self._network.passes(sender, receiver):
            return True
        self.lacks_some = True
        return False

    def _is_alive(self) -> bool:
        """Whether who was connected to is still there."""
        return self._network.find(self._source.name, self._place) is self._listener

    def _arrived(self, listener: _Listener, frame: bytes) -> None:
        if not self.is_open or not self._passes(self._source.name, self.target) or self._responses.is_ending:
            return
        if self._responses.is_waiting or self._late:
            self._late.append((listener, frame))
            return
        admission = None if self._origin.is_admitted else listener.admission
        if not self._is_alive():
            self.break_(Failure.RESET)
        elif admission is not None and len(frame) > admission.max_frame_bytes:
            self._hang_up()
        else:
            listener.serve(frame, self._origin, self._responses.ticket())

    def _resume(self) -> None:
        late, self._late = self._late, []
        for listener, frame in late:
            self._arrived(listener, frame)

    def _admitted_or_broken(self) -> None:
        if not self._origin.is_admitted:
            self.break_(Failure.RESET)

    def _hang_up(self) -> None:
        """See ``Origin.close``."""
        if self._responses.is_open and not self._responses.is_ending:
            self._responses.ticket()(None)

    def _respond(self, parts: Parts) -> None:
        if self._listener is not None and self._listener.transport.is_paused:
            self._listener.transport.at(trio.current_time(), self._respond, parts)
            return
        if self._late and self._listener is not None and not self._responses.is_waiting:
            self._listener.transport.at(trio.current_time(), self._resume)
        if not parts:
            return
        network = self._network
        self._response_due = max(self._response_due, trio.current_time() + network.delay_s())
        if self._passes(self.target, self._source.name) and not network.loses():
            self._source.at(self._response_due, self._answered, b"".join(parts))

    def _answered(self, frame: bytes) -> None:
        if not self._passes(self.target, self._source.name):
            return
        (correlation_id,) = _unpack_id(frame)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is not None:
            waiting[1](frame)

    def _look_at(self, due: float) -> None:
        """See then who has waited for too long: once for many requests, of which hardly one does."""
        if due < self._looked_at:
            self._looked_at = due
            self._source.at(due, self._look, due)

    def _look(self, due: float) -> None:
        if due != self._looked_at:
            return  # it was looked earlier, for a request that had less time
        self._looked_at, now = inf, trio.current_time()
        for correlation_id, waiting in list(self._waiting.items()):
            if waiting[0] <= now and self._waiting.get(correlation_id) is waiting:
                del self._waiting[correlation_id]
                waiting[1](Failure.TIMED_OUT)
        self._look_at(min((until for until, _ in self._waiting.values()), default=inf))

    def _refuse(self) -> None:
        if self.is_open:
            self._shut()
            self._source.at(max(self._response_due, trio.current_time()), self.end, Failure.RESET)

    def break_(self, failure: Failure) -> None:
        """No more passes; those who wait are told from a task of theirs."""
        if self.is_open:
            self._shut()
            self._source.at(trio.current_time(), self.end, failure)

    def end(self, failure: Failure) -> None:
        """Tell those who wait now."""
        self._shut()
        waiting, self._waiting = self._waiting, {}
        for _, answer in waiting.values():
            answer(failure)

    def _shut(self) -> None:
        self.is_open = False
        self._responses.close()
        if self._source.links.get(self._address) is self:
            del self._source.links[self._address]
