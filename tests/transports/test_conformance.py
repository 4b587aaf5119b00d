"""Every transport of ours keeps the rules, and the check of the rules finds who does not."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest
import trio
from transport_rig import in_trio

from kraftcore.errors import TransportError
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.transports.conformance import TransportConformanceError, check_transport
from kraftcore.transports.memory import MemoryNetwork, network
from kraftcore.transports.tcp import TcpTransport


def memory(**settings):
    links, names = MemoryNetwork(**settings), count()
    return lambda: links.transport(f"node-{next(names)}")


@in_trio
async def test_memory():
    assert len((await check_transport(memory())).rules) == 30


@in_trio
async def test_memory_with_delays():
    await check_transport(memory(delay_ms=(0, 3)))


@pytest.fixture
def clock():
    return trio.testing.MockClock(autojump_threshold=0)


@in_trio
async def test_memory_under_a_mock_clock(clock):
    await check_transport(memory(delay_ms=(1, 10)))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_tcp(host):
    in_trio(check_transport)(make=TcpTransport, listener_address=Address(host, 0))


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
def test_tcp_with_tls(certificates, client_auth):
    files = certificates.files(client_auth=client_auth)
    in_trio(check_transport)(make=lambda: TcpTransport(tls=files), listener_address=Address("localhost", 0))


class Wrapper:
    """A transport around a good one. What it breaks is the subclass's."""

    def __init__(self, inner):
        self.inner = inner

    async def listen(self, listener, address, serve, admission=None):
        return await self.inner.listen(listener, address, serve, admission)

    def request(self, address, parts, timeout_ms, answer):
        self.inner.request(address, parts, timeout_ms, answer)

    async def aclose(self):
        await self.inner.aclose()


class AnswersTwice(Wrapper):
    def request(self, address, parts, timeout_ms, answer):
        self.inner.request(address, parts, timeout_ms, lambda result: (answer(result), answer(result)))


class AnswersAtOnce(Wrapper):
    """Before request returned, after close."""

    is_closed = False

    async def aclose(self):
        self.is_closed = True
        await self.inner.aclose()

    def request(self, address, parts, timeout_ms, answer):
        if self.is_closed:
            answer(Failure.OTHER)
        else:
            self.inner.request(address, parts, timeout_ms, answer)


class SendsOnePart(Wrapper):
    def request(self, address, parts, timeout_ms, answer):
        self.inner.request(address, parts[:2], timeout_ms, answer)


class CutsLongFrames(Wrapper):
    def request(self, address, parts, timeout_ms, answer):
        self.inner.request(address, [b"".join(parts)[: 2**20]], timeout_ms, answer)


class _Misreports(Wrapper):
    told: Failure
    tells: Failure

    def request(self, address, parts, timeout_ms, answer):
        def misreport(result):
            answer(self.tells if result is self.told else result)

        self.inner.request(address, parts, timeout_ms, misreport)


class TakesRefusedForReset(_Misreports):
    told, tells = Failure.REFUSED, Failure.RESET


class TakesResetForOther(_Misreports):
    told, tells = Failure.RESET, Failure.OTHER


class TakesTimeoutForReset(_Misreports):
    told, tells = Failure.TIMED_OUT, Failure.RESET


class TakesCloseForReset(_Misreports):
    told, tells = Failure.OTHER, Failure.RESET


class LosesFailures(Wrapper):
    def request(self, address, parts, timeout_ms, answer):
        self.inner.request(address, parts, timeout_ms, lambda result: isinstance(result, bytes) and answer(result))


class TimesOutEarly(Wrapper):
    def request(self, address, parts, timeout_ms, answer):
        self.inner.request(address, parts, timeout_ms // 2, answer)


class TimesOutTogether(Wrapper):
    def __init__(self, inner):
        super().__init__(inner)
        self.waiting = {}

    def request(self, address, parts, timeout_ms, answer):
        key = object()
        self.waiting[key] = answer

        def take(result):
            for one in [key] if result is not Failure.TIMED_OUT else list(self.waiting):
                if one in self.waiting:
                    self.waiting.pop(one)(result)

        self.inner.request(address, parts, timeout_ms, take)


class IgnoresRefusals(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        def deaf(frame, origin, reply):
            serve(frame, origin, lambda parts: parts is None or reply(parts))

        return await self.inner.listen(listener, address, deaf, admission)


class ForgetsRequestsBeforeARefusal(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        waiting = {}

        def hasty(frame, origin, reply):
            waiting[frame] = reply

            def answer(parts):
                if frame in waiting:
                    del waiting[frame]
                    reply(parts)
                    if parts is None:
                        while waiting:
                            waiting.popitem()[1](None)

            serve(frame, origin, answer)

        return await self.inner.listen(listener, address, hasty, admission)


class ForgetsTheListener(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        return await self.inner.listen("", address, serve, admission)


class MakesOriginsAnew(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        return await self.inner.listen(
            listener, address, lambda frame, origin, reply: serve(frame, replace(origin), reply), admission
        )


class NeverCloses(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        def patient(frame, origin, reply):
            origin.close = lambda: None
            serve(frame, origin, reply)

        return await self.inner.listen(listener, address, patient, admission)


class AdmitsEverybody(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        return await self.inner.listen(listener, address, serve)


class WaitsForProof(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        if admission is not None:
            admission = admission._replace(timeout_ms=10**9)
        return await self.inner.listen(listener, address, serve, admission)


class ReturnsTheAddressAskedFor(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        await self.inner.listen(listener, address, serve, admission)
        return address


class SharesAddresses(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        try:
            return await self.inner.listen(listener, address, serve, admission)
        except TransportError:
            return address


class ServesBuffers(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        return await self.inner.listen(
            listener, address, lambda frame, origin, reply: serve(bytearray(frame), origin, reply), admission
        )


class RaisesWhenClosed(Wrapper):
    is_closed = False

    async def aclose(self):
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True
        await self.inner.aclose()


class LeavesListenersOpen(Wrapper):
    async def aclose(self):
        pass


class MixesUpAnswers(Wrapper):
    """First in, first out, whatever the correlation id; a request that timed out leaves no trace."""

    def __init__(self, inner):
        super().__init__(inner)
        self.waiting = []

    def request(self, address, parts, timeout_ms, answer):
        self.waiting.append(answer)

        def take(result):
            if isinstance(result, bytes):
                self.waiting.pop()(result)
            else:
                self.waiting.remove(answer)
                answer(result)

        self.inner.request(address, parts, timeout_ms, take)


class ForgetsTheLane(Wrapper):
    def request(self, address, parts, timeout_ms, answer):
        self.inner.request(Address(address.host, address.port), parts, timeout_ms, answer)


class NeverWaits(Wrapper):
    async def listen(self, listener, address, serve, admission=None):
        def hand_over(frame, origin, reply):
            origin.wait = lambda: None
            serve(frame, origin, reply)

        return await self.inner.listen(listener, address, hand_over, admission)


REFUSAL = "reply(None) breaks the connection when the requests before it are answered"
BROKEN = {
    ForgetsTheLane: "lanes do not wait for each other",
    AnswersTwice: "a request and its response arrive byte for byte",
    AnswersAtOnce: "aclose fails what is outstanding",
    SendsOnePart: "parts are one frame",
    CutsLongFrames: "frames of any length pass",
    TakesRefusedForReset: "REFUSED when nobody listens",
    TakesResetForOther: REFUSAL,
    TakesTimeoutForReset: "TIMED_OUT, and what comes later is dropped",
    TakesCloseForReset: "aclose fails what is outstanding",
    LosesFailures: "REFUSED when nobody listens",
    TimesOutEarly: "TIMED_OUT, and what comes later is dropped",
    TimesOutTogether: "timeouts are each request's own",
    IgnoresRefusals: REFUSAL,
    ForgetsRequestsBeforeARefusal: REFUSAL,
    MakesOriginsAnew: "a connection has one origin",
    NeverWaits: "Origin.wait holds further requests back until the reply",
    NeverCloses: "Origin.close lets the replies arrive",
    AdmitsEverybody: "who is not admitted sends no long frames",
    WaitsForProof: "who is not admitted in time is cut off",
    ForgetsTheListener: "a request and its response arrive byte for byte",
    ReturnsTheAddressAskedFor: "listen returns the address it is bound to",
    SharesAddresses: "listen raises TransportError for an address in use",
    ServesBuffers: "a request and its response arrive byte for byte",
    RaisesWhenClosed: "aclose fails what is outstanding",
    LeavesListenersOpen: "REFUSED when nobody listens",
    MixesUpAnswers: "many requests may be in flight",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
@in_trio
async def test_broken_transports_are_found(broken, clock):
    make = memory(delay_ms=1)

    @asynccontextmanager
    async def make_broken():
        async with make() as inner:
            yield broken(inner)

    with pytest.raises(TransportConformanceError) as caught:
        await check_transport(make_broken)
    assert caught.value.rule == BROKEN[broken], caught.value


@in_trio
async def test_responses_out_of_order_are_found(clock, monkeypatch):
    class Hasty(network.Responses):
        def _replied(self, ticket, parts):
            if parts is not None:
                self._tickets.remove(ticket)
                self._send(parts)

    monkeypatch.setattr(network, "Responses", Hasty)
    with pytest.raises(TransportConformanceError, match="a response overtook|answers came in the order"):
        await check_transport(memory())


@in_trio
async def test_synchronous_delivery_is_found():
    def at_once(self, due, action, *arguments):
        action(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network.MemoryTransport, "at", at_once)
        with pytest.raises(TransportConformanceError):
            await check_transport(memory())
