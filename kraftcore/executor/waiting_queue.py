"""What the queues of proposals and of decisions share: items are pending, proposed, appended, and end exactly once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kraftcore.errors import InvariantError, KraftError

_Pending = TypeVar("_Pending")
_Proposed = TypeVar("_Proposed")


class WaitingQueue(Generic[_Pending, _Proposed]):
    """Items that wait to be appended, and items that wait to be committed.

    Attributes:
        pending: the items of which nothing was appended, in order of arrival.
    """

    def __init__(self) -> None:
        self.pending: deque[_Pending] = deque()
        self._proposed: set[_Proposed] = set()  # handed to the replica, which has not told the outcome yet

    def refused(self, proposed: _Proposed, make_error: Callable[[], KraftError]) -> None:
        """End a proposed item, which was not appended."""
        raise NotImplementedError

    def fail_pending(self, make_error: Callable[[], KraftError]) -> None:
        """End the pending items, of which nothing was appended."""
        raise NotImplementedError

    def fail_appended(self, make_error: Callable[[], KraftError]) -> None:
        """End the items that were appended and are not committed: their outcome is unknown."""
        raise NotImplementedError

    def end(self, make_error: Callable[[], KraftError]) -> None:
        """End all items, because the node ends."""
        self.fail_pending(make_error)
        for proposed in list(self._proposed):
            self.refused(proposed, make_error)
        self.fail_appended(make_error)

    def check_invariants(self, applied: int, end: int) -> None:
        """Check the queue against log and applier.

        Args:
            applied: everything below this offset is applied.
            end: where the log ends.

        Raises:
            InvariantError: they contradict each other, which is a bug.
        """
        raise NotImplementedError


def check_order(spans: Sequence[tuple[int, int]], applied: int, end: int) -> None:
    """Check that records which wait to be committed lie in order between the applied records and the log's end.

    Args:
        spans: for each item the offset of its first record, and the offset after its last.
        applied: everything below this offset is applied.
        end: where the log ends.

    Raises:
        InvariantError: they do not.
    """
    before = 0
    for first, after in spans:
        if not before <= first <= after or not applied < after <= end:
            raise InvariantError(
                f"records from {first} to {after} are waited for, after others up to {before}; {applied} is applied, "
                f"the log ends at {end}"
            )
        before = after
