"""Requests that come before a node is there, and after."""

from __future__ import annotations

from typing import Any, cast

from kraftcore.node import opening
from kraftcore.node.node import Node
from kraftcore.transports.base import Origin

ORIGIN = Origin("CONTROLLER", "somebody")


class FakeNode:
    def __init__(self) -> None:
        self.inbox = self
        self.served: list[bytes] = []

    def serve(self, frame: bytes, origin: Origin, reply: Any) -> None:
        self.served.append(frame)


def test_early_requests_wait_and_late_ones_break_the_connection(monkeypatch):
    monkeypatch.setattr(opening, "EARLY_REQUESTS_MAX", 2)
    gate, node, broken = opening._Gate(), FakeNode(), []
    for frame in (b"1", b"2", b"3"):
        gate.serve(frame, ORIGIN, lambda answer, frame=frame: broken.append(frame))
    assert broken == [b"3"]  # more than may wait
    gate.open(cast(Node, node))
    gate.serve(b"4", ORIGIN, broken.append)
    assert node.served == [b"1", b"2", b"4"]
    gate.close()
    gate.serve(b"5", ORIGIN, broken.append)
    assert broken == [b"3", None]
    assert node.served == [b"1", b"2", b"4"]


def test_late_requests_of_a_transport_that_ends_with_its_node_go_nowhere():
    """Its connections break anyway, and a log line that blames the peer would be wrong."""
    gate, node, broken = opening._Gate(closes_with_node=True), FakeNode(), []
    gate.open(cast(Node, node))
    gate.close()
    gate.serve(b"1", ORIGIN, broken.append)
    assert broken == node.served == []
