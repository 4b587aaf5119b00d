"""Requests that come before a node is there, and after, and such as are none."""

from __future__ import annotations

from typing import Any

import trio
from nodes import Lab, run

from kraftcore.node import opening
from kraftcore.node.events import Noted
from kraftcore.ports.transport import Address, Origin
from kraftcore.protocol.failure import Failure

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
