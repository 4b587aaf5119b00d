"""Sends requests to the active controller, whichever node that is at the moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.create_topics import CreateTopicsResponse
from kraftcore.protocol.schema import Request

HEARTBEATS, ISR_CHANGES = range(OTHERS + 1, OTHERS + 3)
"""Lanes of heartbeats and of ISR changes: neither waits behind a CreateTopics that the controller works on."""
_AGAIN_S = 0.05


Send = Callable[[str, int, Request, int, int, int], Awaitable[Any]]
"""Sends a request: host, port, request, timeout in milliseconds, lowest version, lane; the response or a `Failure`."""


class ControllerChannel:
    """Sends requests to the active controller, and finds the next one when it changes.

    Args:
        find: the address of the active controller; None: it is not known.
        send: sends a request to a node.
    """

    def __init__(self, find: Callable[[], Address | None], send: Send) -> None:
        self._find = find
        self._send = send

    async def ask(
        self, request: Request, timeout_ms: int = REQUEST_TIMEOUT_MS, *, min_version: int = 0, lane: int = ISR_CHANGES
    ) -> Any:
        """Send a request once.

        Args:
            request: its body.
            timeout_ms: how many milliseconds to wait for the answer.
            min_version: below this the request would lose its meaning.
            lane: of the connection; answers in one lane come in the order of their requests.

        Returns:
            The response, or a `Failure`; ``Failure.REFUSED`` when no controller is known.
        """
        address = self._find()
        if address is None:
            return Failure.REFUSED
        return await self._send(address.host, address.port, request, timeout_ms, min_version, lane)

    async def send_to_controller(
        self, request: Request, timeout_ms: int = REQUEST_TIMEOUT_MS, *, min_version: int = 0, lane: int = OTHERS
    ) -> Any:
        """Send a request until the active controller answers it, as Kafka's NodeToControllerChannelManager does.

        It is sent again after NOT_CONTROLLER, and when a connection fails, so it may be carried out twice.

        Returns:
            The response, or a `Failure`: ``TIMED_OUT`` once the time has passed, ``UNSUPPORTED_VERSION`` at once.
        """
        deadline = trio.current_time() + timeout_ms / 1000
        while (left_ms := int((deadline - trio.current_time()) * 1000)) > 0:
            answer = await self.ask(request, left_ms, min_version=min_version, lane=lane)
            if answer is Failure.UNSUPPORTED_VERSION:
                return answer
            if not isinstance(answer, Failure) and not _is_not_controller(answer):
                return answer
            await trio.sleep(min(_AGAIN_S, left_ms / 1000))
        return Failure.TIMED_OUT


def _is_not_controller(answer: Any) -> bool:
    """Whether an answer comes from a node that is not the active controller; CreateTopics says so of each topic."""
    if isinstance(answer, CreateTopicsResponse):
        return any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in answer.topics)
    return bool(getattr(answer, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER)


def through(outbox: Outbox) -> Send:
    """A `Send` that uses an outbox."""

    async def send(host: str, port: int, request: Request, timeout_ms: int, min_version: int, lane: int) -> Any:
        answers: list[Any] = []
        came = trio.Event()

        def done(answer: Any) -> None:
            answers.append(answer)
            came.set()

        outbox.send(host, port, request, timeout_ms, done, min_version, lane)
        await came.wait()
        return answers[0]

    return send
