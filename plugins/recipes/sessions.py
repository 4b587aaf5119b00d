"""Applied commands of each client, with their replies, so that a retry is applied once, and answered as before.

Sessions are part of the state, in every replica and every snapshot. A client opens a session, numbers its commands, and
tells with each the number below which it needs no reply any more. It may have many commands under way. Source: the
sessions of Raft's dissertation, 6.3.

The node's own numbering (``Node.append`` with a client id) is for one proposal at a time and keeps results in memory
only; recipes need both, so they have their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kraftcore.plugins.recipes.object_states import BAD

STALE = 4
"""The status of a command whose reply is forgotten."""
WINDOW = 4096
"""Commands that a client may have under way."""


class CommandResult(NamedTuple):
    """The answer to a command: 0 and its results, or why it was refused."""

    status: int
    payload: Any


class ClientSession:
    """One client.

    Attributes:
        last_ms: the log's time of its last command.
        done_below: it knows the outcome of every command below.
        replies: of applied commands from there on.
    """

    __slots__ = ("done_below", "last_ms", "replies")

    def __init__(self, last_ms: int, done_below: int = 1) -> None:
        self.last_ms = last_ms
        self.done_below = done_below
        self.replies: dict[int, CommandResult] = {}

    def known(self, number: int, done_below: int) -> CommandResult | None:
        """The answer to a command that must not be applied; None: apply it, then ``remember`` its reply.

        Args:
            number: of the command.
            done_below: the client knows the outcome of every command below; their replies are forgotten.
        """
        reply = self.replies.get(number)
        if reply is not None:
            return reply
        if number < self.done_below:
            return CommandResult(STALE, "the client has this command's reply, or gave it up")
        self._forget_below(min(done_below, number))
        if number >= self.done_below + WINDOW:
            return CommandResult(BAD, f"a client may have {WINDOW} commands under way")
        return None

    def remember(self, number: int, reply: CommandResult) -> CommandResult:
        """Keep the reply of a command that ``known`` let pass, for its retries."""
        self.replies[number] = reply
        return reply

    def _forget_below(self, number: int) -> None:
        if number > self.done_below:
            gap = range(self.done_below, number)
            # Few steps, even for a client that gave up many commands and jumps far.
            old = gap if len(gap) <= len(self.replies) else [known for known in self.replies if known < number]
            for known in old:
                self.replies.pop(known, None)
            self.done_below = number


class ClientSessions:
    """All clients, the longest silent first.

    Args:
        expiry_ms: silence after which a client is forgotten, by the log's time.
    """

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self._by_client: dict[int, ClientSession] = {}

    def __len__(self) -> int:
        return len(self._by_client)

    def open(self, client: int, now_ms: int) -> None:
        """Begin a session, or go on with an existing one. Forgets silent clients."""
        for other, session in list(self._by_client.items()):
            if now_ms - session.last_ms <= self._expiry_ms:
                break
            del self._by_client[other]
        if self.find(client, now_ms) is None:
            self._by_client[client] = ClientSession(now_ms)

    def find(self, client: int, now_ms: int) -> ClientSession | None:
        """A client's session, which thereby is the least silent; None if there is none, or no longer."""
        session = self._by_client.pop(client, None)
        if session is None or now_ms - session.last_ms > self._expiry_ms:
            return None
        session.last_ms = now_ms
        self._by_client[client] = session
        return session

    def rows(self) -> Iterator[list[Any]]:
        """The rows of the sessions in a snapshot."""
        for client, session in self._by_client.items():
            replies = [[number, *reply] for number, reply in session.replies.items()]
            yield [client, session.last_ms, session.done_below, replies]

    def load(self, row: list[Any]) -> None:
        """Add a session that ``rows`` returned."""
        client, last_ms, done_below, replies = row
        session = self._by_client[client] = ClientSession(last_ms, done_below)
        session.replies = {number: CommandResult(status, payload) for number, status, payload in replies}
