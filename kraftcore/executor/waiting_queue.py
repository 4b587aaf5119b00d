"""What the queues of proposals and of decisions have in common: pending, proposed, appended, each ended once."""

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
        pending: nothing of it was appended, in order of arrival.
    """

    def __init__(self) -> None:
        self.pending: deque[_Pending] = deque()
        self._proposed: set[_Proposed] = set()  # given to the consensus, outcome not known yet

    def refused(self, proposed: _Proposed, make_error: Callable[[], KraftError]) -> None:
        """What was proposed was not appended."""
        raise NotImplementedError

    def fail_pending(self, make_error: Callable[[], KraftError]) -> None:
        """End what is pending: none of it was appended."""
        raise NotImplementedError

    def fail_appended(self, make_error: Callable[[], KraftError]) -> None:
        """End what was appended and is not committed: its outcome is unknown."""
        raise NotImplementedError

    def end(self, make_error: Callable[[], KraftError]) -> None:
        """The node ended: end everything that waits."""
        self.fail_pending(make_error)
        for proposed in list(self._proposed):
            self.refused(proposed, make_error)
        self.fail_appended(make_error)

    def check_invariants(self, applied: int, end: int) -> None:
        """Look for contradictions.

        Args:
            applied: everything below this offset is applied.
            end: where the log ends.

        Raises:
            InvariantError: there is one, a bug.
        """
        raise NotImplementedError


def check_order(spans: Sequence[tuple[int, int]], applied: int, end: int) -> None:
    """Check that what waits to be committed lies in order between what is applied and the log's end.

    Args:
        spans: first offset, and the one after the last, of each.
        applied: everything below this offset is applied.
        end: where the log ends.

    Raises:
        InvariantError: it does not.
    """
    before = 0
    for first, after in spans:
        if not before <= first <= after or not applied < after <= end:
            raise InvariantError(
                f"records from {first} to {after} are waited for, after others up to {before}; {applied} is applied, "
                f"the log ends at {end}"
            )
        before = after
