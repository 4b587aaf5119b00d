"""What transports have in common: responses in the order of their requests, and answers after the end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

import trio

from kraftcore.errors import LocalError
from kraftcore.ports.transport import Answer, Parts, Reply
from kraftcore.protocol.failure import Failure


class Responses:
    """One connection's requests that are being served.

    Attributes:
        early_bytes: length of the responses that are ready before their turn.
        is_open: whether responses are sent.
        is_ending: a request was refused: those before it are still answered, then ``refuse`` is called; take no more.

    Args:
        send: takes each response when its turn has come.
        refuse: called when the turn of a request has come that got None for an answer; no response is sent after it.
        held: told by how many bytes ``early_bytes`` grew or fell.
    """

    __slots__ = ("_awaited", "_held", "_refuse", "_send", "_tickets", "early_bytes", "is_ending", "is_open")

    def __init__(
        self,
        send: Callable[[Parts], None],
        refuse: Callable[[], None],
        held: Callable[[int], None] = lambda change: None,
    ) -> None:
        self.early_bytes = 0
        self.is_open = True
        self.is_ending = False
        self._send = send
        self._refuse = refuse
        self._held = held
        self._tickets: deque[_Ticket] = deque()
        self._awaited: list[_Ticket] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def ticket(self) -> Reply:
        """Take a request's place in the order. The result raises LocalError when it is called twice."""
        ticket = _Ticket(self)
        self._tickets.append(ticket)
        return ticket.reply

    def wait(self) -> None:
        """See ``Origin.wait``."""
        self._awaited = [ticket for ticket in self._awaited if not ticket.is_used]
        if self._tickets:
            self._awaited.append(self._tickets[-1])

    def mute(self) -> Callable[[], None]:
        """See ``Origin.mute``: a place in the order that no request has, and that is answered with nothing."""
        unmute = partial(self.ticket(), ())
        self.wait()
        return unmute

    @property
    def is_waiting(self) -> bool:
        """Whether no further request is to be taken for now."""
        return not all(ticket.is_used for ticket in self._awaited)

    def close(self) -> None:
        """The connection is gone: replies go nowhere from now on."""
        self.is_open = False
        self._tickets.clear()

    def _replied(self, ticket: _Ticket, parts: Parts | None) -> None:
        if parts is None:
            self.is_ending = True
        tickets = self._tickets
        if tickets[0] is not ticket:
            ticket.is_early = True
            ticket.parts = parts
            self._keep(sum(map(len, parts or ())))
            return
        tickets.popleft()
        self._in_turn(parts)
        while tickets and tickets[0].is_early:
            parts = tickets.popleft().parts
            self._keep(-sum(map(len, parts or ())))
            self._in_turn(parts)

    def _keep(self, change: int) -> None:
        self.early_bytes += change
        self._held(change)

    def _in_turn(self, parts: Parts | None) -> None:
        if parts is None:
            self.close()
            self._refuse()
        else:
            self._send(parts)


class _Ticket:
    __slots__ = ("_responses", "is_early", "is_used", "parts")

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self.is_used = False
        self.is_early = False  # answered before its turn
        self.parts: Parts | None = None

    def reply(self, parts: Parts | None) -> None:
        if self.is_used:
            raise LocalError("this request was answered already")
        self.is_used = True
        if self._responses.is_open:
            self._responses._replied(self, parts)


def answer_after_end(token: trio.lowlevel.TrioToken, answer: Answer, failure: Failure) -> None:
    """Call ``answer`` soon, when there is no task left to do it and that its exception could come out of."""
    token.run_sync_soon(_call, answer, failure)


def _call(answer: Answer, failure: Failure) -> None:
    try:
        answer(failure)
    except Exception:
        logging.getLogger("kraftcore.transports").exception("an answer callback raised after its transport closed")
