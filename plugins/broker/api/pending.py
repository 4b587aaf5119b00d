"""An answer that is sent when all partitions of its request are done, or when its time is over."""

from __future__ import annotations

from typing import Protocol

from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.deadlines import Deadline, Deadlines
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.schema import Response


class PartAnswer(Protocol):
    """What a response says of one partition."""

    error_code: int


class PendingResponse:
    """A response that is sent when all its parts are done, or its time is over. Make its parts, then call ``complete``.

    Args:
        response: the answer.
        context: of the request.
        deadlines: for its time.
        timeout_ms: its time, from ``complete`` on, or from when nothing is ``untimed`` any more.

    Attributes:
        untimed: parts that take as long as they take, before the time begins.
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
        self._left = 1  # the request itself, until it is complete
        self._is_complete = False

    def part(self, answer: PartAnswer) -> PendingPart:
        """A partition that is waited for, until the time is over: then it is REQUEST_TIMED_OUT."""
        self._parts.append(PendingPart(self, answer))
        return self._parts[-1]

    def wait(self) -> None:
        """One more is to be ``done``."""
        self._left += 1

    def complete(self) -> None:
        """All parts were made, and some of them may be done."""
        self._is_complete = True
        self.done()

    def done(self) -> None:
        """One of them is."""
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
    """One partition of it: a ``Waiter``."""

    __slots__ = ("_answer", "_pending", "is_over")

    def __init__(self, pending: PendingResponse, answer: PartAnswer) -> None:
        self._pending = pending
        self._answer = answer
        self.is_over = False
        pending.wait()

    def end(self, error: ErrorCode) -> None:
        """See ``Waiter``; what comes after the first end goes nowhere."""
        if self.is_over:
            return
        self.is_over = True
        if error is not ErrorCode.NONE:
            self._answer.error_code = error  # what else was told of it stays, as in Kafka
        self._pending.done()
