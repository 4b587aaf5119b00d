"""Frames between hosts: loss, delay, duplication and order are drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from kraftcore.protocol.failure import Failure
from kraftcore.simulation.agenda import Agenda
from kraftcore.simulation.options import Options


class Peer(Protocol):
    """A participant of the network."""

    @property
    def is_up(self) -> bool: ...  # noqa: D102
    @property
    def refuses(self) -> bool: ...  # noqa: D102
    def receive_request(self, source: int, incarnation: int, correlation_id: int, frame: bytes) -> None: ...  # noqa: D102
    def receive_response(self, incarnation: int, correlation_id: int, frame: bytes) -> None: ...  # noqa: D102
    def receive_failure(self, incarnation: int, correlation_id: int, failure: Failure) -> None: ...  # noqa: D102


class Network:
    """Links between peers, by number.

    Attributes:
        peers: all peers, up or not, by number.
        blocked: (source, target) pairs that are cut.
        calm: whether nothing is lost, doubled or overtaken any more.
    """

    def __init__(self, agenda: Agenda, rng: Random, options: Options) -> None:
        self.peers: dict[int, Peer] = {}
        self.blocked: set[tuple[int, int]] = set()
        self.calm = False
        self._agenda = agenda
        self._rng = rng
        self._options = options
        self._last: dict[tuple[int, int, int], int] = {}

    def request(
        self, source: int, target: int, incarnation: int, correlation_id: int, frame: bytes, lane: int = 0
    ) -> None:
        """Send a request; the sender has a timer for the case that no answer comes.

        Args:
            source: number of the sender.
            target: number of the receiver.
            incarnation: of the sender.
            correlation_id: of the request.
            frame: the encoded request.
            lane: the connection; frames on one connection overtake each other only where that is drawn.
        """
        self._carry((source, target, lane), self._deliver_request, source, target, incarnation, correlation_id, frame)

    def respond(
        self, source: int, target: int, incarnation: int, correlation_id: int, frame: bytes, lane: int = 0
    ) -> None:
        """Send the answer to a request that ``target`` sent in its ``incarnation``, in the lane that it came in."""
        self._carry((source, target, lane), self._deliver_response, target, incarnation, correlation_id, frame)

    def fail(self, source: int, target: int, incarnation: int, correlation_id: int, failure: Failure) -> None:
        """Tell ``target`` that the connection to ``source`` was refused or broke."""
        self._carry((source, target, 0), self._deliver_failure, target, incarnation, correlation_id, failure)

    def _carry(self, way: tuple[int, int, int], action: Callable[..., None], *arguments: Any) -> None:
        options, rng, agenda = self._options, self._rng, self._agenda
        if self.calm:
            agenda.after_ms(0.2 + rng.random(), action, *arguments)
            return
        if way[:2] in self.blocked or (options.loss and rng.random() < options.loss):
            return
        delay = options.delay_ms * (0.1 + 0.9 * rng.random() ** 3)
        time = agenda.now + int(delay * 1000)
        if options.reorder and rng.random() < options.reorder:
            time += int(rng.random() * 4000 * options.delay_ms)
        else:
            time = max(time, self._last.get(way, 0))
            self._last[way] = time
        agenda.at(time, action, *arguments)
        if options.duplicate and rng.random() < options.duplicate:
            agenda.at(time + int(rng.random() * 3000 * options.delay_ms), action, *arguments)

    def _deliver_request(self, source: int, target: int, incarnation: int, correlation_id: int, frame: bytes) -> None:
        peer = self.peers[target]
        if peer.is_up:
            peer.receive_request(source, incarnation, correlation_id, frame)
        elif peer.refuses:
            self.fail(target, source, incarnation, correlation_id, Failure.REFUSED)

    def _deliver_response(self, target: int, incarnation: int, correlation_id: int, frame: bytes) -> None:
        if self.peers[target].is_up:
            self.peers[target].receive_response(incarnation, correlation_id, frame)

    def _deliver_failure(self, target: int, incarnation: int, correlation_id: int, failure: Failure) -> None:
        if self.peers[target].is_up:
            self.peers[target].receive_failure(incarnation, correlation_id, failure)
