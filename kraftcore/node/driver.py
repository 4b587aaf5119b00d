"""Feeds the replica, and carries out what it wants, in the order that `Effects` states.

Rules of this file:

* ``feed`` is a plain call, made by whichever task has news: the reader of a connection, the timer, an append. So a
  record needs no task switch between the socket and the log. It never runs inside itself: news that arise meanwhile
  are queued.
* Election state, requests and answers are carried out event by event; one flush follows the last event. What concerns
  the application (restore, apply, outcomes, news) comes after that: acknowledging to peers goes before applying.
* A failed disk, a state machine that raises, a broken rule: the node fails. Nothing is sent any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NamedTuple

import trio

from kraftcore.core.log import Log
from kraftcore.core.struct import Struct
from kraftcore.node.clock import Clock
from kraftcore.node.flusher import Flusher
from kraftcore.node.outbox import Outbox
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import encode_response_parts
from kraftcore.raft.events import Answered, Effects, Event, Failed, Flushed, Outcome, Send, Tick
from kraftcore.raft.replica import Replica
from kraftcore.storage.quorum_state import QuorumStateFile
from kraftcore.transports.base import Reply

SOON_MS = 50  # an alarm that rings within this is moved when it comes to be due later


class Ticket(NamedTuple):
    """Where the answer to a received request goes; ``listener`` names the one it came in on."""

    reply: Reply
    version: int
    correlation_id: int
    listener: str

    def answer(self, message: Struct) -> None:
        """Encode and send it."""
        self.reply(encode_response_parts(message, self.version, self.correlation_id))  # type: ignore[arg-type]


@dataclass(slots=True)
class Aftermath:
    """What effects left to do for the application."""

    restore: tuple[int, int] | None = None
    high_watermark: int | None = None
    outcomes: list[Outcome] | None = None
    news: list[Effects] | None = None


class Driver:
    """See the module text.

    Args:
        replica: what is driven.
        log: its log.
        quorum_state: where its election state is kept.
        outbox: sends its requests.
        clock: the time it is told.
        inline_flush_bytes: see `Flusher`.
        settle: carries out an `Aftermath`.
        fail: told once why the driver cannot go on.
    """

    def __init__(
        self,
        replica: Replica,
        log: Log,
        quorum_state: QuorumStateFile,
        outbox: Outbox,
        clock: Clock,
        inline_flush_bytes: int,
        settle: Callable[[Aftermath], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._replica = replica
        self._log = log
        self._quorum_state = quorum_state
        self._outbox = outbox
        self._clock = clock
        self._settle = settle
        self._fail_node = fail
        self._queue: deque[Event] = deque()
        self._aftermath = Aftermath()
        self._busy = False
        self._flush_due = False
        self._now_ms = 0
        self._due_ms: int | None = None
        self._armed_ms: int | None = None  # what the alarm was last set by
        self._alarm = trio.CancelScope()
        self.stopped = False
        self.flusher = Flusher(log, inline_flush_bytes, self._flushed, self.fail)

    def feed(self, *events: Event) -> None:
        """Take news in; returns when all that follows from them is done, unless it was called from within."""
        if self.stopped:
            return
        self._queue.extend(events)
        if self._busy:
            return
        self._busy = True
        queue = self._queue
        try:
            while queue:
                while queue:
                    self._step(queue.popleft())
                    if self._flush_due and not queue:
                        self._flush_due = False
                        self.flusher.flush()
                aftermath = self._aftermath
                self._aftermath = Aftermath()
                self._settle(aftermath)
                if self._due_ms != self._armed_ms:  # last: nobody waits for it
                    self._arm()
        except Exception as error:
            self.fail(error)
        finally:
            self._busy = False

    @property
    def is_busy(self) -> bool:
        """Whether a flush runs, or a leader that shuts down has voters to tell."""
        return self.flusher.is_running or (self._replica.is_leaving and not self.stopped)

    def fail(self, error: BaseException) -> None:
        """Stop for good; the first reason is the node's."""
        if not self.stopped:
            self.stopped = True
            self._queue.clear()
            self._fail_node(error)

    def _step(self, event: Event) -> None:
        self._now_ms = now_ms = self._clock.now_ms()
        effects = self._replica.handle(event, now_ms)
        if effects.election_state is not None:
            self._quorum_state.write(effects.election_state)
        for send in effects.sends:
            self._send(send)
        for reply in effects.replies:
            reply.ticket.answer(reply.message)
        if effects.flush:
            self._flush_due = True
            self.flusher.begin()
        aftermath = self._aftermath
        if effects.restore is not None:
            aftermath.restore = effects.restore
        if effects.high_watermark is not None:
            aftermath.high_watermark = effects.high_watermark
        if effects.outcomes:
            aftermath.outcomes = (aftermath.outcomes or []) + effects.outcomes
        if effects.leadership is not None or effects.voters is not None or effects.notes:
            aftermath.news = [*(aftermath.news or ()), effects]
        self._due_ms = effects.deadline_ms

    def _flushed(self, offset: int) -> None:
        self.feed(Flushed(offset))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        destination = send.destination
        self._outbox.send(
            destination.host,
            destination.port,
            send.message,  # type: ignore[arg-type]
            send.timeout_ms,
            partial(self._answered, send.request_id),
            send.min_version,
        )

    def _answered(self, request_id: int, answer: Any) -> None:
        self.feed(Failed(request_id, answer) if isinstance(answer, Failure) else Answered(request_id, answer))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the alarm. Ringing too early costs more than moving it; one far away is moved once for many."""
        due_ms = self._armed_ms = self._due_ms
        at = inf if due_ms is None else self._clock.trio_time(due_ms)
        deadline = self._alarm.deadline
        if at < deadline or deadline < self._clock.trio_time(self._now_ms + SOON_MS):
            self._alarm.deadline = at

    async def run_timer(self) -> None:
        """Feed a `Tick` whenever one is due, until cancelled."""
        while True:
            due_ms = self._due_ms
            if due_ms is not None and self._clock.now_ms() >= due_ms:
                self._due_ms = None
                self.feed(Tick())
                continue
            self._armed_ms = due_ms
            at = inf if due_ms is None else self._clock.trio_time(due_ms)
            with trio.CancelScope(deadline=at) as self._alarm:
                await trio.sleep_forever()
