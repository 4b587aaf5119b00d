"""Numbers for proposals that may be asked for more than once (``sessions``).

A follower forwards its callers' proposals to the leader, and asks again after a timeout or a change of leaders. So each
is numbered: by its client, or with a number lent for it. A client number has one proposal in flight; so there are as
many numbers as forwards at a time, reused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kraftcore.executor.proposals import Proposal
from kraftcore.executor.sessions import SEQUENCE_MAX


class ClientNumbers:
    """Client numbers to lend, and the next sequence of each.

    Args:
        draw: a number of 63 random bits.
        sequence_limit: a number that reached it is used no more.
    """

    def __init__(self, draw: Callable[[], int], sequence_limit: int = SEQUENCE_MAX) -> None:
        self._draw = draw
        self.sequence_limit = sequence_limit
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """A client number, and the sequence of its next proposal's first record."""
        return self._free.pop() if self._free else (self._draw(), 0)

    def give_back(self, number: int, next_sequence: int) -> None:
        """Its last proposal is done. One whose outcome is unknown is still about: its number must not come back."""
        if next_sequence < self.sequence_limit:
            self._free.append((number, next_sequence))


Key: TypeAlias = tuple[int, int, int, bytes]
"""A client's number, its epoch, the sequence of a proposal's first record, and a digest of the records."""


class NumberedProposals:
    """Numbered proposals that others asked for and that are not done: asking again joins the first."""

    def __init__(self) -> None:
        self._running: dict[Key, Proposal] = {}

    def find(self, key: Key) -> Proposal | None:
        """The one that runs under these numbers."""
        return self._running.get(key)

    def add(self, key: Key, proposal: Proposal) -> None:
        """Remember a proposal until it ends."""
        self._running[key] = proposal
        proposal.add_done_callback(lambda _: self.forget(key))

    def forget(self, key: Key) -> None:
        """It ended, or was refused."""
        self._running.pop(key, None)
