"""Requests that come before a node is there, and after, and such as are none."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from nodes import Lab, run

from kraftcore.node import opening
from kraftcore.node.events import Noted
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.node.registry import ListenerType, RequestHandler
from kraftcore.ports.transport import Address, Origin
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

ORIGIN = Origin("CONTROLLER", "somebody")


class FakeInbox:
    def __init__(self) -> None:
        self.served: list[bytes] = []

    def serve(self, frame: bytes, origin: Origin, reply: Any) -> None:
        self.served.append(frame)


def test_early_requests_wait_and_late_ones_break_the_connection(monkeypatch):
    monkeypatch.setattr(opening, "EARLY_REQUESTS_MAX", 2)
    gate, inbox, broken = opening.Gate(), FakeInbox(), []
    for frame in (b"1", b"2", b"3"):
        gate.serve(frame, ORIGIN, lambda answer, frame=frame: broken.append(frame))
    assert broken == [b"3"]  # more than may wait
    gate.open(inbox.serve)
    gate.serve(b"4", ORIGIN, broken.append)
    assert inbox.served == [b"1", b"2", b"4"]
    gate.close()
    gate.serve(b"5", ORIGIN, broken.append)
    assert broken == [b"3", None]
    assert inbox.served == [b"1", b"2", b"4"]


def test_late_requests_of_a_transport_that_ends_with_its_node_go_nowhere():
    """Its connections break anyway, and a log line that blames the peer would be wrong."""
    gate, inbox, broken = opening.Gate(closes_with_node=True), FakeInbox(), []
    gate.open(inbox.serve)
    gate.close()
    gate.serve(b"1", ORIGIN, broken.append)
    assert broken == inbox.served == []


def test_a_flood_of_nonsense_leaves_a_few_lines(caplog):
    """A disk full of log lines would stop the node, too."""

    async def main():
        lab = Lab()
        async with lab.node(1) as node:
            await node.wait_leader()
            events, answers = node.events(Noted), []
            for number in range(200):
                async with lab.network.transport(f"stranger {number}") as stranger:
                    stranger.request(Address("n1", 9093), [b"\x7f" * 12], 60_000, answers.append)
                    while len(answers) <= number:
                        await trio.sleep(0)
            assert answers == [Failure.RESET] * 200
            events.close()
            assert len([event async for event in events]) == 5

    run(main)
    assert caplog.text.count("cannot be read") == 5


class Patient(Plugin):
    """Answers on a listener of a broker, once it is ready; ends in order when it may."""

    name = "patient"

    def __init__(self):
        self.ready = trio.Event()
        self.seen = []

    @property
    def late_listeners(self):
        return frozenset({"CLIENTS"})

    async def loaded(self):
        await self.ready.wait()

    def attach(self, machine):
        self.seen.append(("attach", type(machine).__name__))

    async def run(self, node):
        self.seen.append(("run", [each.name for each in node.broker_endpoints]))
        node.answer(RequestHandler(ListGroupsRequest, self.respond, listener_type=ListenerType.BROKER))
        await trio.sleep_forever()

    def respond(self, request, context):
        return ListGroupsResponse(throttle_time_ms=7)

    async def stopping(self):
        await trio.sleep(0.01)
        self.seen.append("stopping")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_plugin_with_listeners_of_its_own_that_begins_later_and_ends_in_order(is_killed):
    plugin = Patient()

    async def main():
        lab = Lab()
        async with (
            lab.node(1, plugins=[plugin], broker_listeners=["CLIENTS://n1:9092"]) as node,
            lab.network.transport("client") as client,
        ):
            answers = []
            came = trio.Event()
            frame = encode_request_parts(ListGroupsRequest(), 3, 1, "test")
            client.request(Address("n1", 9092), frame, 60_000, lambda frame: (answers.append(frame), came.set()))
            await node.wait_leader()
            assert not answers
            plugin.ready.set()
            with trio.fail_after(60):
                await came.wait()
            assert decode_response(answers[0], 16, 3)[1].throttle_time_ms == 7
            assert [each.name for each in node.endpoints] == ["CONTROLLER"]
            if is_killed:
                plugin_node(node).abort()

    run(main)
    assert plugin.seen[0][0] == "attach"
    assert plugin.seen[1] == ("run", ["CLIENTS"])
    assert ("stopping" in plugin.seen) is not is_killed


class Asking(Plugin):
    """One task waits for the node when that ends, another takes its time to end."""

    name = "asking"
    participates = True

    async def run(self, node):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.ask, "silent", 9093, ListGroupsRequest(), 60_000)
            nursery.start_soon(self.linger)

    async def linger(self):
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.05)


def test_a_plugin_whose_tasks_wait_for_a_node_that_ends_did_not_fail():
    async def main():
        lab = Lab()
        asked = []
        async with lab.network.transport("silent") as silent:
            await silent.listen("CONTROLLER", Address("silent", 9093), lambda *request: asked.append(request))
            async with lab.node(1, plugins=[Asking()]) as node:
                await node.wait_leader()
                with trio.fail_after(60):
                    while not asked:
                        await trio.sleep(0)
                plugin_node(node).abort()

    run(main)
