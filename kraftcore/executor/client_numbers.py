"""Client numbers for forwarded proposals, which may be sent more than once (see ``sessions``).

A follower forwards its callers' proposals to the leader, and sends them again after a timeout or a change of leaders.
So that a proposal is applied once, each has a client number: its client's own, or a number from a pool. A client number
has one proposal in flight, so the pool grows to as many numbers as there were forwarded proposals at one time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kraftcore.executor.proposals import Proposal
from kraftcore.executor.sessions import SEQUENCE_MAX


class ClientNumbers:
    """The pool of client numbers, and the next sequence of each.

    Args:
        draw: a number of 63 random bits.
        sequence_limit: a client number whose sequence has reached this limit is used no more.
    """

    def __init__(self, draw: Callable[[], int], sequence_limit: int = SEQUENCE_MAX) -> None:
        self._draw = draw
        self.sequence_limit = sequence_limit
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """A client number, and the sequence of its next proposal's first record."""
        return self._free.pop() if self._free else (self._draw(), 0)

    def give_back(self, number: int, next_sequence: int) -> None:
        """Return a number after its proposal succeeded; one whose outcome is unknown must not be returned."""
        if next_sequence < self.sequence_limit:
            self._free.append((number, next_sequence))


Key: TypeAlias = tuple[int, int, int, bytes]
"""A client's number, its epoch, the sequence of a proposal's first record, and a digest of the records."""


class NumberedProposals:
    """Forwarded proposals that have not ended, by their numbers, so that a repeated request joins the first."""

    def __init__(self) -> None:
        self._running: dict[Key, Proposal] = {}

    def find(self, key: Key) -> Proposal | None:
        """The proposal with these numbers, if it has not ended; else None."""
        return self._running.get(key)

    def add(self, key: Key, proposal: Proposal) -> None:
        """Remember a proposal until it ends."""
        self._running[key] = proposal
        proposal.add_done_callback(lambda _: self.forget(key))

    def forget(self, key: Key) -> None:
        """Drop a proposal that ended or was refused."""
        self._running.pop(key, None)
