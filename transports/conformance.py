"""``check_transport``: holds any transport, ours or yours, to the text of ``kraftcore.ports.transport``.

    async def test_mine():
        await check_transport(MyTransport)

``MyTransport()`` is an asynchronous context manager here, so that a transport may have background tasks. Each rule
opens its own transports, sends real frames, and says what it saw when something is wrong. A pass takes about a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from struct import pack
from typing import TypeAlias

import trio

from kraftcore.errors import KraftError, TransportError
from kraftcore.namespace import listing
from kraftcore.ports.transport import Address, Admission, Origin, Parts, Reply, Serve, Transport
from kraftcore.protocol.failure import Failure

__all__ = ["Conformance", "MakeTransport", "TransportConformanceError", "check_transport"]
__dir__ = listing(__all__)

MakeTransport: TypeAlias = Callable[[], AbstractAsyncContextManager[Transport]]
"""Makes a transport of one more node of the same network; it is closed when the context is left."""

_PATIENCE_S = 10.0
_LONG_MS = 20_000
_SHORT_MS = 100
_LONG_BYTES = 3 * 1024 * 1024 + 1


class TransportConformanceError(KraftError, AssertionError):
    """A transport breaks a rule.

    Attributes:
        rule: its name, as in ``Conformance.rules``.
    """

    def __init__(self, rule: str, what: str) -> None:
        self.rule = rule
        super().__init__(f"{rule}: {what}")


@dataclass(frozen=True, slots=True)
class Conformance:
    """What ``check_transport`` found in order.

    Attributes:
        rules: names of the rules that hold.
        requests: how many requests were sent for it.
    """

    rules: tuple[str, ...]
    requests: int


async def check_transport(
    make: MakeTransport,
    *,
    listener_address: Address = Address("127.0.0.1", 0),  # noqa: B008  # frozen
) -> Conformance:
    """Try every rule of ``kraftcore.ports.transport`` on transports that ``make`` makes.

    Args:
        make: see ``MakeTransport``; called three times a rule at most.
        listener_address: where transports under test may listen; port 0: any.

    Returns:
        The rules, all of which hold.

    Raises:
        TransportConformanceError: the first rule that does not hold. What the transport itself raises where it must not
            is its cause, or comes through as it is when it comes out of a background task.
    """
    requests = 0
    for rule, check in _RULES.items():
        exam = _Exam(rule, make, listener_address)
        try:
            with trio.fail_after(_PATIENCE_S):
                async with exam.stack:
                    await check(exam)
                    await exam.settle()
        except trio.TooSlowError as error:
            raise TransportConformanceError(rule, f"nothing came within {_PATIENCE_S:g} s") from error
        requests += len(exam.calls)
    return Conformance(tuple(_RULES), requests)


class _Call:
    """A request that was sent, and what became of it."""

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.results: list[bytes | Failure] = []
        self.is_sent = False
        self.came_early = False
        self.done = trio.Event()

    def answer(self, result: bytes | Failure) -> None:
        self.came_early = self.came_early or not self.is_sent
        self.results.append(result)
        self.done.set()


@dataclass(slots=True)
class _Held:
    """A request that was served and not yet answered."""

    frame: bytes
    origin: Origin
    reply: Reply


class _Exam:
    def __init__(self, rule: str, make: MakeTransport, address: Address) -> None:
        self.rule = rule
        self.address = address
        self.stack = AsyncExitStack()
        self.calls: list[_Call] = []
        self._make = make

    def demand(self, holds: bool, what: str) -> None:
        if not holds:
            raise TransportConformanceError(self.rule, what)

    async def open(self) -> Transport:
        return await self.stack.enter_async_context(self._make())

    async def listen(
        self, serve: Serve, listener: str = "EXAM", admission: Admission | None = None
    ) -> tuple[Transport, Address]:
        transport = await self.open()
        return transport, await transport.listen(listener, self.address, serve, admission)

    async def close(self, transport: Transport) -> None:
        try:
            await transport.aclose()
        except Exception as error:
            raise TransportConformanceError(self.rule, f"aclose raised {error!r}") from error

    async def hold(self, admission: Admission | None = None) -> tuple[Transport, Address, list[_Held]]:
        """A server that answers nothing by itself."""
        held: list[_Held] = []
        transport, address = await self.listen(lambda *request: held.append(_Held(*request)), admission=admission)
        return transport, address, held

    async def holding(self, held: Sequence[_Held], count: int) -> None:
        while len(held) < count:
            await trio.sleep(0.001)

    def request(self, transport: Transport, address: Address, *, body: Parts = (), timeout_ms: int = _LONG_MS) -> _Call:
        call = _Call(len(self.calls) + 1)
        self.calls.append(call)
        parts = [pack(">hhi", 18, 3, call.correlation_id), *body]
        try:
            transport.request(address, parts, timeout_ms, call.answer)
        except Exception as error:
            raise TransportConformanceError(self.rule, f"request raised {error!r}") from error
        call.is_sent = True
        return call

    async def result(self, call: _Call) -> bytes | Failure:
        await call.done.wait()
        return call.results[0]

    async def expect(self, call: _Call, expected: bytes | Failure) -> None:
        result = await self.result(call)
        if isinstance(expected, bytes):
            expected = pack(">i", call.correlation_id) + expected
        if result != expected:
            raise TransportConformanceError(self.rule, f"the answer was {_show(result)}, not {_show(expected)}")

    async def settle(self) -> None:
        """Give what must not come time to come."""
        await trio.sleep(0.01)
        for call in self.calls:
            self.demand(not call.came_early, "answer was called before request returned")
            self.demand(len(call.results) < 2, f"answer was called {len(call.results)} times")


def _show(result: bytes | Failure) -> str:
    if isinstance(result, Failure):
        return result.name
    return f"{len(result)} bytes" if len(result) > 40 else repr(result)


def _echo(frame: bytes, _origin: Origin, reply: Reply) -> None:
    reply([frame[4:8], frame[8:]])


# ---- the rules: one function each, its docstring's first line is what it stands for


async def _bound_address(exam: _Exam) -> None:
    _, address = await exam.listen(_echo)
    exam.demand(address.port > 0, f"listen returned port {address.port}")
    wanted = exam.address
    exam.demand(address.host == wanted.host, f"listen returned host {address.host!r} for {wanted.host!r}")
    exam.demand(wanted.port in {0, address.port}, f"listen returned port {address.port} for {wanted.port}")


async def _address_in_use(exam: _Exam) -> None:
    _, address = await exam.listen(_echo)
    other = await exam.open()
    try:
        await other.listen("EXAM", address, _echo)
    except TransportError:
        return
    exam.demand(False, f"listening twice on {address} raised no TransportError")


async def _round_trip(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    call = exam.request(await exam.open(), address, body=[b"question"])
    await exam.holding(held, 1)
    (request,) = held
    exam.demand(type(request.frame) is bytes, f"serve got the frame as {type(request.frame).__name__}, not bytes")
    exam.demand(request.frame == pack(">hhi", 18, 3, 1) + b"question", f"serve got {request.frame!r}")
    exam.demand(request.origin.listener == "EXAM", f"Origin.listener is {request.origin.listener!r}")
    exam.demand(bool(request.origin.peer), "Origin.peer is empty")
    request.reply([pack(">i", 1), b"answer"])
    result = await exam.result(call)
    exam.demand(type(result) is bytes, f"answer got a {type(result).__name__}, not bytes")
    await exam.expect(call, b"answer")


async def _parts(exam: _Exam) -> None:
    def serve(frame: bytes, _origin: Origin, reply: Reply) -> None:
        reply([frame[4:6], frame[6:8], b"", bytearray(frame[8:10]), memoryview(frame)[10:]])

    _, address = await exam.listen(serve)
    client = await exam.open()
    call = exam.request(client, address, body=[b"a", b"", bytearray(b"bc"), memoryview(b"_def_")[1:4], *[b"g"] * 3000])
    await exam.expect(call, b"abcdef" + b"g" * 3000)


async def _frame_lengths(exam: _Exam) -> None:
    _, address = await exam.listen(_echo)
    client = await exam.open()
    for length in (0, 1, 100, 4095, 65_535, 65_536, 1_000_000, _LONG_BYTES, 0, 1):
        body = bytes(range(256)) * (length // 256 + 1)
        await exam.expect(exam.request(client, address, body=[body[:length]]), body[:length])


async def _many_in_flight(exam: _Exam) -> None:
    _, address = await exam.listen(_echo)
    client = await exam.open()
    calls = [exam.request(client, address, body=[b"%d" % number * (number % 50)]) for number in range(1000)]
    for number, call in enumerate(calls):
        await exam.expect(call, b"%d" % number * (number % 50))


async def _long_frames_in_flight(exam: _Exam) -> None:
    _, address = await exam.listen(_echo)
    client = await exam.open()
    bodies = [bytes([number]) * (_LONG_BYTES // 3 + number) for number in range(12)]
    calls = [exam.request(client, address, body=[body]) for body in bodies]
    for body, call in zip(bodies, calls, strict=True):
        await exam.expect(call, body)


async def _response_order(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client = await exam.open()
    order: list[int] = []
    calls = []
    for _ in range(5):
        call = _Call(len(exam.calls) + 1)
        exam.calls.append(call)
        calls.append(call)

        def answer(result: bytes | Failure, call: _Call = call) -> None:
            order.append(call.correlation_id)
            call.answer(result)

        client.request(address, [pack(">hhi", 18, 3, call.correlation_id)], _LONG_MS, answer)
        call.is_sent = True
    await exam.holding(held, 5)
    arrived = [request.frame[4:8] for request in held]
    exam.demand(arrived == [pack(">i", call.correlation_id) for call in calls], "requests arrived out of order")
    for request in (held[4], held[2], held[1], held[3], held[0]):
        exam.demand(not order, "a response overtook that of an earlier request")
        request.reply([request.frame[4:8]])
        await trio.sleep(0.002)
    for call in calls:
        await exam.expect(call, b"")
    exam.demand(order == sorted(order), f"answers came in the order {order}")


async def _no_response(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client = await exam.open()
    silent, asked = exam.request(client, address), exam.request(client, address)
    await exam.holding(held, 2)
    held[1].reply([held[1].frame[4:8]])
    held[0].reply(())
    await exam.expect(asked, b"")
    exam.demand(not silent.results, "something came for a request that wants no response")


async def _lanes(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client = await exam.open()
    calls = [exam.request(client, address._replace(lane=lane), body=[b"%d" % lane]) for lane in range(3)]
    await exam.holding(held, 3)
    held.sort(key=lambda request: request.frame[4:8], reverse=True)
    for call, request in zip(reversed(calls), held, strict=True):
        request.reply([request.frame[4:8], b"%d" % call.correlation_id])
        await exam.expect(call, b"%d" % call.correlation_id)


async def _no_mixing(exam: _Exam) -> None:
    """Correlation ids are those of one sender: two of them may use the same."""
    _, address, held = await exam.hold()
    clients = [await exam.open(), await exam.open()]
    calls = []
    for number, client in enumerate(clients):
        call = _Call(1)
        exam.calls.append(call)
        calls.append(call)
        client.request(address, [pack(">hhi", 18, 3, 1), b"%d" % number], _LONG_MS, call.answer)
        call.is_sent = True
    await exam.holding(held, 2)
    for request in reversed(held):
        request.reply([pack(">i", 1), request.frame[8:]])
    for number, call in enumerate(calls):
        await exam.expect(call, b"%d" % number)


async def _both_ways(exam: _Exam) -> None:
    one, one_at = await exam.listen(_echo)
    other, other_at = await exam.listen(_echo)
    there, back = exam.request(one, other_at, body=[b"there"]), exam.request(other, one_at, body=[b"back"])
    await exam.expect(there, b"there")
    await exam.expect(back, b"back")


async def _two_listeners(exam: _Exam) -> None:
    seen = []

    def serve(frame: bytes, origin: Origin, reply: Reply) -> None:
        seen.append(origin.listener)
        _echo(frame, origin, reply)

    server, first = await exam.listen(serve, "FIRST")
    second = await server.listen("SECOND", Address(exam.address.host, 0), serve)
    exam.demand(first != second, f"two listeners have the same address {first}")
    client = await exam.open()
    for address in (second, first):
        await exam.expect(exam.request(client, address), b"")
    exam.demand(seen == ["SECOND", "FIRST"], f"the listeners' names were {seen}")


async def _one_origin(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    one, other = await exam.open(), await exam.open()
    calls = [exam.request(client, address) for client in (one, one, other)]
    await exam.holding(held, 3)
    origins = {id(request.origin): request.origin for request in held}
    exam.demand(len(origins) == 2, f"two connections had {len(origins)} origins")
    for origin in origins.values():
        exam.demand(origin.is_admitted and origin.session is None, f"a new connection has {origin!r}")
    for request in held:
        request.reply([request.frame[4:8]])
    for call in calls:
        await exam.expect(call, b"")


async def _waits_for_a_reply(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client, other = await exam.open(), await exam.open()
    calls = [exam.request(client, address)]
    await exam.holding(held, 1)
    held[0].origin.wait()
    calls += [exam.request(each, address) for each in (client, client, other)]
    await exam.holding(held, 2)
    await exam.settle()
    exam.demand(len(held) == 2, "a request came before the one that is waited for was answered")
    exam.demand(held[1].origin is not held[0].origin, "another connection waits as well")
    held[0].reply([held[0].frame[4:8]])
    await exam.holding(held, 4)
    exam.demand([each.frame[4:8] for each in held[2:]] == [pack(">i", each.correlation_id) for each in calls[1:3]],
                "requests that had waited came out of order")  # fmt: skip
    for request in held[1:]:
        request.reply([request.frame[4:8]])
    for call in calls:
        await exam.expect(call, b"")


async def _muted(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client, other = await exam.open(), await exam.open()
    call = exam.request(client, address)
    await exam.holding(held, 1)
    unmute = held[0].origin.mute()
    held[0].reply([held[0].frame[4:8]])
    await exam.expect(call, b"")
    calls = [exam.request(client, address), exam.request(other, address)]
    await exam.holding(held, 2)
    await exam.settle()
    exam.demand(len(held) == 2, "a request came from a connection that is mute")
    exam.demand(held[1].origin is not held[0].origin, "another connection is mute as well")
    unmute()
    await exam.holding(held, 3)
    for request in held[1:]:
        request.reply([request.frame[4:8]])
    for call in calls:
        await exam.expect(call, b"")


async def _closed_after_replies(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client = await exam.open()
    calls = [exam.request(client, address) for _ in range(2)]
    await exam.holding(held, 2)
    held[0].reply([held[0].frame[4:8], bytes(_LONG_BYTES)])
    held[0].origin.close()
    held[1].reply([held[1].frame[4:8]])
    await exam.expect(calls[0], bytes(_LONG_BYTES))
    await exam.expect(calls[1], b"")
    while held[-1].origin is held[0].origin:  # one that crosses with the end is lost
        count = len(held)
        call = exam.request(client, address)
        while len(held) == count and not call.results:
            await trio.sleep(0.001)
        exam.demand(len(held) == count or held[-1].origin is not held[0].origin, "a request came after the close")
    held[-1].reply([held[-1].frame[4:8]])
    await exam.expect(exam.calls[-1], b"")


async def _not_admitted(exam: _Exam) -> None:
    _, address, held = await exam.hold(Admission(100, _LONG_MS))
    client = await exam.open()
    first, long = exam.request(client, address, body=[bytes(92)]), exam.request(client, address, body=[bytes(93)])
    await exam.holding(held, 1)
    held[0].reply([held[0].frame[4:8]])
    await exam.expect(first, b"")
    await exam.expect(long, Failure.RESET)
    exam.demand(len(held) == 1, f"{len(held)} of a short and a long frame were served")
    exam.demand(not held[0].origin.is_admitted, "Origin.is_admitted is true from the beginning")
    first = exam.request(client, address)
    await exam.holding(held, 2)
    held[1].origin.is_admitted = True
    held[1].reply([held[1].frame[4:8]])
    await exam.expect(first, b"")
    long = exam.request(client, address, body=[bytes(93)])
    await exam.holding(held, 3)
    held[2].reply([held[2].frame[4:8]])
    await exam.expect(long, b"")


async def _never_admitted(exam: _Exam) -> None:
    _, address, held = await exam.hold(Admission(1000, _SHORT_MS))
    client = await exam.open()
    first, second = exam.request(client, address), exam.request(client, address)
    await exam.holding(held, 1)
    held[0].reply([held[0].frame[4:8]])
    await exam.expect(first, b"")
    await exam.expect(second, Failure.RESET)


async def _refused(exam: _Exam) -> None:
    server, address = await exam.listen(_echo)
    await exam.close(server)
    client = await exam.open()
    calls = [exam.request(client, address) for _ in range(3)]
    for call in calls:
        await exam.expect(call, Failure.REFUSED)


async def _broken_by_reply(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client = await exam.open()
    calls = [exam.request(client, address) for _ in range(3)]
    await exam.holding(held, 3)
    held[2].reply([held[2].frame[4:8]])
    held[1].reply(None)
    await trio.sleep(0.01)
    exam.demand(not calls[0].done.is_set(), "the connection broke before the request in front of it was answered")
    held[0].reply([held[0].frame[4:8], b"first"])
    await exam.expect(calls[0], b"first")
    for call in calls[1:]:
        await exam.expect(call, Failure.RESET)
    again = exam.request(client, address)
    await exam.holding(held, 4)
    held[3].reply([held[3].frame[4:8]])
    await exam.expect(again, b"")


async def _reset(exam: _Exam) -> None:
    server, address, held = await exam.hold()
    client = await exam.open()
    calls = [exam.request(client, address) for _ in range(3)]
    await exam.holding(held, 3)
    await exam.close(server)
    for call in calls:
        await exam.expect(call, Failure.RESET)
    await exam.expect(exam.request(client, address), Failure.REFUSED)
    held[0].reply([held[0].frame[4:8]])  # late, and nothing happens


async def _comes_back(exam: _Exam) -> None:
    server, address = await exam.listen(_echo)
    client = await exam.open()
    await exam.expect(exam.request(client, address, body=[b"before"]), b"before")
    await exam.close(server)
    result = await exam.result(exam.request(client, address))  # it may cross with the news
    exam.demand(result in {Failure.REFUSED, Failure.RESET}, f"the answer was {_show(result)}, not REFUSED or RESET")
    again = await exam.open()
    await again.listen("EXAM", address, _echo)
    await exam.expect(exam.request(client, address, body=[b"after"]), b"after")


async def _timeout(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client = await exam.open()
    began = trio.current_time()
    late = exam.request(client, address, timeout_ms=_SHORT_MS)
    await exam.expect(late, Failure.TIMED_OUT)
    waited_ms = (trio.current_time() - began) * 1000
    exam.demand(waited_ms > _SHORT_MS * 0.9, f"a request with {_SHORT_MS} ms timed out after {waited_ms:.0f} ms")
    other = exam.request(client, address, body=[b"other"])
    await exam.holding(held, 2)
    for request in held:  # the first one's is dropped, and does not become the other's
        request.reply([request.frame[4:8], request.frame[8:]])
    await exam.expect(other, b"other")


async def _each_its_own_timeout(exam: _Exam) -> None:
    _, address, _ = await exam.hold()
    client = await exam.open()
    long = exam.request(client, address, timeout_ms=_LONG_MS)
    calls = [exam.request(client, address, timeout_ms=timeout_ms) for timeout_ms in (90, 60, 30)]
    for call in reversed(calls):
        await exam.expect(call, Failure.TIMED_OUT)
    exam.demand(not long.results, f"a request with {_LONG_MS} ms got {long.results} with the short ones")


async def _request_within_answer(exam: _Exam) -> None:
    _, address = await exam.listen(_echo)
    client, chain, done = await exam.open(), [], trio.Event()

    def proceed(result: bytes | Failure) -> None:
        chain.append(result)
        if len(chain) == 20:
            done.set()
            return
        depth = len(chain)
        client.request(address, [pack(">hhi", 18, 3, depth + 1)], _LONG_MS, proceed)
        if len(chain) != depth:
            chain.append(b"answer was called before request returned")

    client.request(address, [pack(">hhi", 18, 3, 1)], _LONG_MS, proceed)
    await done.wait()
    exam.demand(chain == [pack(">i", number + 1) for number in range(20)], f"a chain of requests gave {chain}")


async def _request_within_serve(exam: _Exam) -> None:
    """A server asks another one before it answers, from within ``serve``."""
    _, far_at = await exam.listen(_echo)

    def serve(frame: bytes, _origin: Origin, reply: Reply) -> None:
        middle.request(far_at, [frame], _LONG_MS, lambda result: reply([result] if isinstance(result, bytes) else None))

    middle, middle_at = await exam.listen(serve)
    client = await exam.open()
    calls = [exam.request(client, middle_at, body=[b"%d" % number]) for number in range(20)]
    for number, call in enumerate(calls):
        await exam.expect(call, b"%d" % number)


async def _to_itself(exam: _Exam) -> None:
    server, address = await exam.listen(_echo)
    await exam.expect(exam.request(server, address, body=[b"me"]), b"me")


async def _close(exam: _Exam) -> None:
    _, address, held = await exam.hold()
    client, client_at = await exam.listen(_echo)
    calls = [exam.request(client, address) for _ in range(3)]
    await exam.holding(held, 3)
    unreachable = exam.request(client, Address(exam.address.host, 1))
    await exam.close(client)
    for call in calls:
        await exam.expect(call, Failure.OTHER)
    exam.demand(await exam.result(unreachable) in {Failure.OTHER, Failure.REFUSED}, f"it got {unreachable.results}")
    await exam.close(client)
    await exam.expect(exam.request(client, address), Failure.OTHER)
    other = await exam.open()
    await exam.expect(exam.request(other, client_at), Failure.REFUSED)
    for request in held:
        request.reply([request.frame[4:8]])  # nobody is there any more, and nothing happens


async def _close_within_answer(exam: _Exam) -> None:
    """What a dying connection's callbacks send goes to a new one, or fails; never is it lost."""
    server, address, held = await exam.hold()
    client, seen, done = await exam.open(), [], trio.Event()

    def again(result: bytes | Failure) -> None:
        seen.append(result)
        if len(seen) == 1:
            client.request(address, [pack(">hhi", 18, 3, 2)], _LONG_MS, again)
        else:
            done.set()

    client.request(address, [pack(">hhi", 18, 3, 1)], _LONG_MS, again)
    await exam.holding(held, 1)
    await exam.close(server)
    await done.wait()
    exam.demand(seen == [Failure.RESET, Failure.REFUSED], f"the answers were {[_show(one) for one in seen]}")


_RULES: dict[str, Callable[[_Exam], Awaitable[None]]] = {
    "listen returns the address it is bound to": _bound_address,
    "listen raises TransportError for an address in use": _address_in_use,
    "a request and its response arrive byte for byte": _round_trip,
    "parts are one frame": _parts,
    "frames of any length pass": _frame_lengths,
    "many requests may be in flight": _many_in_flight,
    "many long frames may be in flight": _long_frames_in_flight,
    "responses leave in the order of their requests": _response_order,
    "reply(()) sends nothing, and lets the next response go": _no_response,
    "lanes do not wait for each other": _lanes,
    "senders are kept apart": _no_mixing,
    "both sides may ask": _both_ways,
    "a transport may have several listeners": _two_listeners,
    "a connection has one origin": _one_origin,
    "REFUSED when nobody listens": _refused,
    "reply(None) breaks the connection when the requests before it are answered": _broken_by_reply,
    "RESET when the other side breaks the connection": _reset,
    "Origin.close lets the replies arrive": _closed_after_replies,
    "Origin.wait holds further requests back until the reply": _waits_for_a_reply,
    "Origin.mute holds further requests back until it is over": _muted,
    "who is not admitted sends no long frames": _not_admitted,
    "who is not admitted in time is cut off": _never_admitted,
    "a peer may come back": _comes_back,
    "TIMED_OUT, and what comes later is dropped": _timeout,
    "timeouts are each request's own": _each_its_own_timeout,
    "answer may send requests": _request_within_answer,
    "serve may send requests": _request_within_serve,
    "a node may ask itself": _to_itself,
    "aclose fails what is outstanding": _close,
    "requests from within failing answers are kept": _close_within_answer,
}
