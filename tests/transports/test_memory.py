"""What a network in memory can do that a real one cannot be told to."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import trio
from transport_rig import LOOPBACK, SentRequest, ask, echo, in_trio, request_frame

from kraftcore.errors import LocalError, TransportError
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.transports.memory import MemoryNetwork


@pytest.fixture
def clock():
    return trio.testing.MockClock(autojump_threshold=0)


@contextlib.asynccontextmanager
async def nodes(network, *names, serve=echo):
    """Open transports by name, each listening; yields a function (source, target, body) -> result."""
    async with contextlib.AsyncExitStack() as stack:
        opened, where = {}, {}
        for name in names:
            opened[name] = await stack.enter_async_context(network.transport(name))
            where[name] = await opened[name].listen("L", Address(name, 9093), serve)

        def send(source, target, body=b"", timeout_ms=1000):
            return SentRequest(opened[source], where[target], body, timeout_ms)

        yield send


@in_trio
async def test_cuts_are_silent_and_heal(clock):
    network = MemoryNetwork()
    async with nodes(network, "a", "b", "c") as send:
        network.cut("a", ["b", "c"])
        for source, target in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")):
            began = trio.current_time()
            assert await send(source, target).result() is Failure.TIMED_OUT
            assert trio.current_time() - began == pytest.approx(1)
        assert await send("b", "c", b"x").result() == b"x"
        network.heal()
        assert await send("a", "b", b"y").result() == b"y"


@in_trio
@pytest.mark.parametrize("lost", ["request", "response"])
async def test_who_waits_for_what_a_cut_swallowed_hears_of_it_when_that_is_over(clock, lost):
    network = MemoryNetwork(delay_ms=10)
    async with nodes(network, "a", "b", "c") as send:
        if lost == "response":
            asked = send("a", "b", timeout_ms=30_000)
            await trio.sleep(0.015)
        network.cut("a", "b")
        if lost == "request":
            asked = send("a", "b", timeout_ms=30_000)
        await trio.sleep(3)
        assert not asked.results
        beside = send("a", "c", b"it missed nothing")
        network.heal()
        began = trio.current_time()
        assert await asked.result() is Failure.TIMED_OUT
        assert trio.current_time() == began
        assert await send("a", "b", b"y").result() == b"y"
        assert await beside.result() == b"it missed nothing"


@in_trio
async def test_what_was_answered_is_not_kept_until_its_time_is_over(clock):
    network = MemoryNetwork()
    async with network.transport("a") as a, network.transport("b") as b:
        at = await b.listen("L", LOOPBACK, echo)
        kept = []
        for number in range(100):
            asked = SentRequest(a, at, b"%d" % number, 30_000)
            assert await asked.result() == b"%d" % number
            kept.append(weakref.ref(asked))
            del asked
        gc.collect()
        assert sum(each() is not None for each in kept) <= 1


@in_trio
async def test_each_request_times_out_when_its_own_time_is_over(clock):
    network = MemoryNetwork()
    async with nodes(network, "a", "b", serve=lambda *request: None) as send:
        began, ended = trio.current_time(), {}

        async def ask_for(timeout_ms):
            assert await send("a", "b", timeout_ms=timeout_ms).result() is Failure.TIMED_OUT
            ended[timeout_ms] = trio.current_time() - began

        async with trio.open_nursery() as nursery:
            for timeout_ms in (500, 300, 900, 300, 100, 700):
                nursery.start_soon(ask_for, timeout_ms)
        assert ended == {each: pytest.approx(each / 1000) for each in (100, 300, 500, 700, 900)}


@in_trio
async def test_cuts_of_one_direction(clock):
    network, served = MemoryNetwork(), []
    async with nodes(network, "a", "b", serve=lambda *request: (served.append(request[0]), echo(*request))) as send:
        network.cut("a", "b", both_ways=False)
        assert await send("a", "b").result() is Failure.TIMED_OUT
        assert served == []  # the question was lost
        assert await send("b", "a").result() is Failure.TIMED_OUT
        assert len(served) == 1  # the answer was


@in_trio
async def test_cuts_catch_what_is_under_way(clock):
    network = MemoryNetwork(delay_ms=100)
    async with nodes(network, "a", "b") as send:
        asked = send("a", "b")
        await trio.sleep(0.15)
        network.cut("b", "a", both_ways=False)
        assert await asked.result() is Failure.TIMED_OUT


@in_trio
async def test_delays(clock):
    network = MemoryNetwork(delay_ms=30)
    async with nodes(network, "a", "b") as send:
        began = trio.current_time()
        assert await send("a", "b").result() == b""
        assert trio.current_time() - began == pytest.approx(0.06)
        network.delay_ms = (1, 50)
        times = []
        for number in range(50):
            began = trio.current_time()
            assert await send("a", "b", b"%d" % number).result() == b"%d" % number
            times.append((trio.current_time() - began) * 1000)
        assert all(2 <= time <= 100 for time in times)
        assert max(times) - min(times) > 20


@in_trio
async def test_frames_do_not_overtake_each_other(clock):
    network, served = MemoryNetwork(delay_ms=(0, 100)), []

    def serve(frame, origin, reply):
        served.append(frame[8:])
        echo(frame, origin, reply)

    async with nodes(network, "a", "b", serve=serve) as send:
        asked = [send("a", "b", b"%d" % number) for number in range(100)]
        for number, one in enumerate(asked):
            assert await one.result() == b"%d" % number
        assert served == [b"%d" % number for number in range(100)]


@in_trio
async def test_losses(clock):
    network = MemoryNetwork(loss=0.3, seed=4)
    async with nodes(network, "a", "b") as send:
        asked = [send("a", "b") for _ in range(400)]
        results = [await one.result() for one in asked]
        assert set(results) == {b"", Failure.TIMED_OUT}
        assert 140 < results.count(b"") < 250  # 0.7 * 0.7 * 400 = 196
        network.loss = 0
        assert await send("a", "b").result() == b""


@in_trio
async def test_the_same_seed_draws_the_same(clock):
    async def run():
        network = MemoryNetwork(loss=0.3, delay_ms=(1, 5), seed=9)
        async with nodes(network, "a", "b") as send:
            results = []
            for _ in range(50):
                began = trio.current_time()
                result = await send("a", "b", timeout_ms=20).result()
                results.append((result, round(trio.current_time() - began, 6)))
            return results

    first = await run()
    assert {result for result, _ in first} == {b"", Failure.TIMED_OUT}
    assert first == await run()


@in_trio
async def test_dead_nodes_refuse_and_reset(clock):
    network = MemoryNetwork(delay_ms=1)
    waiting = []
    async with nodes(network, "a", "b", "c", serve=lambda *request: waiting.append(request)) as send:
        to_b, from_b, beside = send("a", "b"), send("b", "c"), send("a", "c")
        await trio.sleep(0.01)
        network.refuse("b")
        assert await to_b.result() is Failure.RESET
        assert await from_b.result() is Failure.RESET
        assert await send("a", "b").result() is Failure.REFUSED
        assert await send("b", "a").result() is Failure.REFUSED
        for request in waiting:
            echo(*request)
        assert await beside.result() == b""
        network.accept("b")
        asked = send("a", "b", b"again")
        await trio.sleep(0.01)
        echo(*waiting[-1])
        assert await asked.result() == b"again"


@in_trio
async def test_death_behind_a_cut_is_not_seen(clock):
    network = MemoryNetwork()
    async with nodes(network, "a", "b", serve=lambda *request: None) as send:
        asked = send("a", "b")
        await trio.sleep(0.01)
        network.cut("a", "b")
        network.refuse("b")
        assert await asked.result() is Failure.TIMED_OUT
        assert await send("a", "b").result() is Failure.TIMED_OUT
        network.heal()
        assert await send("a", "b").result() is Failure.REFUSED


@in_trio
async def test_who_waits_for_a_node_that_died_behind_a_cut_hears_of_it_when_that_is_over(clock):
    network = MemoryNetwork()
    async with nodes(network, "a", "b", serve=lambda *request: None) as send:
        asked = send("a", "b", timeout_ms=30_000)
        await trio.sleep(0.01)
        network.cut("a", "b")
        network.refuse("b")
        await trio.sleep(3)
        assert not asked.results
        began = trio.current_time()
        network.heal()
        assert await asked.result() is Failure.TIMED_OUT
        assert trio.current_time() == began


@in_trio
async def test_a_closed_node_behind_a_cut_is_not_seen(clock):
    network = MemoryNetwork()
    async with network.transport("a") as a, network.transport("b") as b:
        at = await b.listen("L", LOOPBACK, lambda *request: None)
        asked = SentRequest(a, at, timeout_ms=100)
        await trio.sleep(0.01)
        network.cut("a", "b")
        await b.aclose()
        assert await asked.result() is Failure.TIMED_OUT
        assert await ask(a, at, timeout_ms=100) is Failure.TIMED_OUT
        network.heal()
        assert await ask(a, at, timeout_ms=100) is Failure.REFUSED


@in_trio
async def test_a_node_that_restarts_takes_its_address_again(clock):
    network = MemoryNetwork()
    async with network.transport("a") as a:
        at = None
        for life in range(3):
            async with network.transport("b") as b:
                at = await b.listen("L", at or LOOPBACK, echo)
                assert await ask(a, at, b"%d" % life) == b"%d" % life
            assert await ask(a, at) is Failure.REFUSED


@in_trio
async def test_wrong_use(clock):
    network = MemoryNetwork()
    with pytest.raises(LocalError, match="never opened"):
        network.transport("a").request(LOOPBACK, [request_frame(1)], 1, print)
    with pytest.raises(LocalError, match="not open"):
        await network.transport("a").listen("L", LOOPBACK, echo)
    async with network.transport("a") as a:
        with pytest.raises(LocalError, match="'a' is open already"):
            async with network.transport("a"):
                pass
        at = await a.listen("L", LOOPBACK, lambda *request: None)
        with pytest.raises(TransportError, match="a does"):
            await a.listen("M", at, echo)
        with pytest.raises(LocalError, match="no correlation id"):
            a.request(at, [b"1234567"], 1, print)
        a.request(at, [request_frame(1)], 1, lambda result: None)
        with pytest.raises(LocalError, match="correlation id 1 "):
            a.request(at, [request_frame(1)], 1, print)


@in_trio
async def test_what_callbacks_raise_comes_out(clock):
    def fail(*_):
        raise ZeroDivisionError("in a callback")

    with pytest.raises(ZeroDivisionError):
        async with MemoryNetwork().transport("a") as a:
            at = await a.listen("L", LOOPBACK, echo)
            a.request(at, [request_frame(1)], 1000, fail)
            await trio.sleep_forever()


@in_trio
async def test_what_callbacks_raise_after_the_end_is_logged(clock, caplog):
    def fail(*_):
        raise ZeroDivisionError("in a callback")

    async with MemoryNetwork().transport("a") as a:
        pass
    a.request(LOOPBACK, [request_frame(1)], 1000, fail)
    await trio.sleep(0.01)
    assert "an answer callback raised after its transport closed" in caplog.text


@in_trio
async def test_a_paused_node_takes_and_sends_nothing_until_it_goes_on(clock):
    network = MemoryNetwork()
    async with nodes(network, "a", "b") as send:
        assert await send("a", "b", b"x").result() == b"x"
        network.pause("b")
        late = send("a", "b", b"late", timeout_ms=10_000)
        own = [send("b", "a", body, timeout_ms=1000) for body in (b"1", b"2")]
        assert await send("a", "b", timeout_ms=1000).result() is Failure.TIMED_OUT
        assert not late.results and not any(each.results for each in own)
        network.resume("b")
        assert await late.result() == b"late"
        assert [await each.result() for each in own] == [b"1", b"2"]


@in_trio
async def test_what_a_node_answers_while_it_is_paused_arrives_when_it_goes_on(clock):
    network, replies = MemoryNetwork(), []
    async with nodes(network, "a", "b", serve=lambda frame, origin, reply: replies.append((frame, reply))) as send:
        asked = send("a", "b", timeout_ms=10_000)
        await trio.sleep(1)
        network.pause("b")
        ((frame, reply),) = replies
        reply([frame[4:8], b"body"])
        await trio.sleep(1)
        assert not asked.results
        network.resume("b")
        assert await asked.result() == b"body"


@in_trio
async def test_a_node_may_end_while_it_is_paused(clock):
    network = MemoryNetwork()
    async with network.transport("a") as transport:
        network.pause("a")
        unsent = SentRequest(transport, Address("b", 9093), b"", 1000)
    assert unsent.results == [Failure.OTHER]
    async with nodes(network, "a", "b") as send:  # it is still paused when it comes again
        asked = send("b", "a", b"x", timeout_ms=10_000)
        await trio.sleep(1)
        assert not asked.results
        network.resume("a")
        assert await asked.result() == b"x"
