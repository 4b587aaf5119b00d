"""Clients of simulated controllers: send requests to the host that they take for the active controller."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.simulation.host import Host
from kraftcore.simulation.world import World

_PATIENCE: Final = 3  # requests without an answer before a client looks for another controller
_KEPT: Final = 64  # requests whose answers are still taken


class Client:
    """One peer of the network.

    Args:
        world: the simulated world.
        number: its number in the network.

    Attributes:
        world, number: as given.
        rng: its own random numbers.
        is_up: whether messages reach it.
        refuses: whether senders are told while it is not up. False for a client: no host waits for it.
        known: by correlation id, the offset below which anything was answered when the request was sent.
    """

    refuses = False

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.rng = Random(f"client-{world.seed}-{number}")
        self.is_up = True
        self.known: dict[int, int] = {}
        self._incarnation = 0
        self._correlation_id = 0
        self._target: Host | None = None
        self._unanswered = 0
        self._waiting: dict[int, tuple[int, int, Callable[[Any], None]]] = {}

    def begin_anew(self) -> None:
        """Begin another process: answers to the former process are dropped."""
        self._incarnation += 1
        self._waiting.clear()

    def send(
        self,
        request: Request,
        on_answer: Callable[[Any], None],
        version: int | None = None,
        to: Host | None = None,
    ) -> None:
        """Send a request to the host that it takes for the active controller.

        Args:
            request: the body.
            on_answer: gets the response, if one comes.
            version: of the request; None: the newest.
            to: another host to send it to.
        """
        world = self.world
        target = self._find() if to is None else to
        if target is None:
            return
        api_key, _, newest = api_of(type(request))
        version = newest if version is None else version
        self._correlation_id += 1
        number = self._correlation_id
        self._waiting[number] = (api_key, version, on_answer)
        self.known[number] = world.checker.acknowledged_end
        if len(self._waiting) > _KEPT:
            del self._waiting[min(self._waiting)]
        world.network.request(
            self.number, target.number, self._incarnation, number, encode_request(request, version, number)
        )

    def _find(self) -> Host | None:
        """The host to ask: the last that answered, until it refuses or falls silent."""
        if self._unanswered >= _PATIENCE or self.rng.random() < 0.05:
            self._target = None
        if self._target is None:
            self._unanswered = 0
            self._target = self.world.leader() if self.rng.random() < 0.8 else self.rng.choice(self.world.hosts)
        self._unanswered += 1
        return self._target

    def receive_request(self, source: int, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """Nothing: no host sends requests to a client."""

    def receive_response(self, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """An answer arrived; the first one counts."""
        waiting = self._waiting.pop(correlation_id, None) if incarnation == self._incarnation else None
        if waiting is not None:
            api_key, version, on_answer = waiting
            response = decode_response(frame, api_key, version)[1]
            self._unanswered = 0
            if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
                self._target = None
            on_answer(response)

    def receive_failure(self, incarnation: int, correlation_id: int, failure: Failure) -> None:
        """Nothing: the client sends another request in its own time."""
        self._waiting.pop(correlation_id, None)


def heard(answer: Any) -> None:
    """Ignore an answer."""
