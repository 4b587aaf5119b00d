"""A response about several partitions, which is sent when all of them are done or the request's time has passed."""

from __future__ import annotations

from typing import Protocol

from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.work.deadlines import Deadline, Deadlines
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.schema import Response


class PartAnswer(Protocol):
    """The part of a response about one partition."""

    error_code: int


class PendingResponse:
    """A response that waits for its parts. The handler makes the parts, then calls ``complete``.

    Args:
        response: the response that is sent.
        context: the context of the request.
        deadlines: end the wait.
        timeout_ms: how long the response waits, milliseconds. The time begins with ``complete``, or, if that is later,
            when no part is ``untimed`` any more.

    Attributes:
        untimed: how many parts must be done before the time begins.
    """

    __slots__ = (
        "_context",
        "_deadline",
        "_deadlines",
        "_is_complete",
        "_left",
        "_parts",
        "_response",
        "_timeout_ms",
        "untimed",
    )

    def __init__(self, response: Response, context: RequestContext, deadlines: Deadlines, timeout_ms: int) -> None:
        self.untimed = 0
        self._response = response
        self._context = context
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self._deadline: Deadline | None = None
        self._parts: list[PendingPart] = []
        self._left = 1  # the request itself counts as one part until ``complete``
        self._is_complete = False

    def part(self, answer: PartAnswer) -> PendingPart:
        """Wait for one more partition; its error is REQUEST_TIMED_OUT once the request's time has passed."""
        self._parts.append(PendingPart(self, answer))
        return self._parts[-1]

    def wait(self) -> None:
        """Wait for one more call of ``done``."""
        self._left += 1

    def complete(self) -> None:
        """Send the response when all parts are done, which may be at once."""
        self._is_complete = True
        self.done()

    def done(self) -> None:
        """Count one part, or the request itself, as done."""
        self._left -= 1
        if self._left == 0:
            if self._deadline is not None:
                self._deadline.cancel()
            self._context.answer(self._response)
        elif self._is_complete and self._deadline is None and self.untimed == 0:
            self._deadline = self._deadlines.after(self._timeout_ms, self._time_out)

    def _time_out(self) -> None:
        for part in self._parts:
            part.end(ErrorCode.REQUEST_TIMED_OUT)


class PendingPart:
    """A partition that a `PendingResponse` waits for; partitions know it as a ``Waiter``."""

    __slots__ = ("_answer", "_pending", "is_over")

    def __init__(self, pending: PendingResponse, answer: PartAnswer) -> None:
        self._pending = pending
        self._answer = answer
        self.is_over = False
        pending.wait()

    def end(self, error: ErrorCode) -> None:
        """Count the partition as done, with this error; only the first call counts."""
        if self.is_over:
            return
        self.is_over = True
        if error is not ErrorCode.NONE:
            self._answer.error_code = error  # the other fields of the answer stay, as in Kafka
        self._pending.done()
