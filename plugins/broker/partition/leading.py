"""The state of a partition that only its leader has, for as long as it leads."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from operator import itemgetter

from kraftcore.plugins.broker.partition.isr_state import Isr
from kraftcore.plugins.broker.partition.state import UNKNOWN_BROKER_EPOCH, Assignment, Waiter

UNKNOWN_OFFSET = -1
_WAITING = 1000  # produces that wait are looked through when there are so many more than were left last time
_offset = itemgetter(0)


class Progress:
    """A follower's progress, by its fetches.

    Attributes:
        log_end_offset: the follower's log end offset, which is its last fetch offset; -1: it has not fetched.
        caught_up_ms: when the follower last had the whole log, milliseconds since 1970; 0: never.
        broker_epoch: the broker epoch of the fetching incarnation (KIP-903); -1: unknown.
        log_start_offset: the follower's log start offset; -1: unknown.
    """

    __slots__ = ("_leader_end_offset", "_seen_ms", "broker_epoch", "caught_up_ms", "log_end_offset", "log_start_offset")

    def __init__(self) -> None:
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = self._leader_end_offset = UNKNOWN_OFFSET
        self._seen_ms = self.caught_up_ms = 0

    def begin_epoch(self, now_ms: int, leader_end_offset: int, *, is_in_sync: bool) -> None:
        """Begin another leader epoch of the same leader."""
        self._leader_end_offset = leader_end_offset
        self._seen_ms = self.caught_up_ms = now_ms if is_in_sync else 0

    def fetched(self, offset: int, now_ms: int, leader_end_offset: int) -> None:
        """Note a fetch from ``offset``, at a time when the leader's log end offset is ``leader_end_offset``."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end_offset:
            # The follower now has all that the log held at its previous fetch.
            self.caught_up_ms = max(self.caught_up_ms, self._seen_ms)
        self.log_end_offset = offset
        self._leader_end_offset = leader_end_offset
        self._seen_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower has the whole log, or had it within the last ``max_lag_ms``."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


class Leading:
    """The state of a leadership.

    Args:
        broker_id: the id of this broker.
        assignment: the assignment that began the leadership.
        epoch_start_offset: the log end offset at that time.
        now_ms: the time, milliseconds since 1970.
        before: this broker's leadership of the epoch before, if it led then, too.

    Attributes:
        isr: the ISR, and the change under way.
        followers: the progress of each assigned replica but the leader's own, by broker id.
        epoch_start_offset: as given.
        waiting: (offset that must be committed, waiter) of produces, by offset; some waits may be over already.
        syncing: (offset below which the log must be synced, waiter) of produces, in their order.
    """

    __slots__ = ("_most_waiting", "epoch_start_offset", "followers", "isr", "syncing", "waiting")

    def __init__(
        self, broker_id: int, assignment: Assignment, epoch_start_offset: int, now_ms: int, before: Leading | None
    ) -> None:
        self.isr = Isr(assignment.isr)
        self.epoch_start_offset = epoch_start_offset
        known: dict[int, Progress] = {} if before is None else before.followers
        others = [each for each in assignment.replicas if each != broker_id]
        self.followers: dict[int, Progress] = {each: known.get(each) or Progress() for each in others}
        for each, progress in self.followers.items():
            progress.begin_epoch(now_ms, epoch_start_offset, is_in_sync=each in assignment.isr)
        self.waiting: deque[tuple[int, Waiter]] = deque() if before is None else before.waiting
        self._most_waiting = 2 * len(self.waiting) + _WAITING
        self.syncing: deque[tuple[int, Waiter]] = deque() if before is None else before.syncing

    def wait(self, offset: int, waiter: Waiter) -> None:
        """Have a produce wait until all records below ``offset`` are committed."""
        if len(self.waiting) >= self._most_waiting:  # produces time out, and are sent again
            self.waiting = deque(each for each in self.waiting if not each[1].is_over)
            self._most_waiting = 2 * len(self.waiting) + _WAITING
        waiting = self.waiting
        if waiting and waiting[-1][0] > offset:  # a batch is repeated behind later ones
            waiting.insert(bisect_right(waiting, offset, key=_offset), (offset, waiter))
        else:
            waiting.append((offset, waiter))

    def reassign(self, broker_id: int, assignment: Assignment, *, is_newer: bool) -> None:
        """Go on leading with other replicas, or another ISR.

        Args:
            broker_id: the id of this broker.
            assignment: the new assignment.
            is_newer: whether its partition epoch is newer. An assignment of an epoch that an answer to a proposal
                brought already says nothing new, and must not undo a later proposal that may have been accepted.
        """
        if is_newer or self.isr.is_settled:
            self.isr.commit(assignment.isr)
        others = [each for each in assignment.replicas if each != broker_id]
        self.followers = {each: self.followers.get(each) or Progress() for each in others}

    def had_all(self, replica_id: int, broker_epoch: int, now_ms: int) -> None:
        """Count a follower in the ISR as caught up until now: the partition was at rest in its fetch session.

        An earlier incarnation of the follower does not count.
        """
        progress = self.followers.get(replica_id)
        if progress is not None and replica_id in self.isr.committed and progress.broker_epoch == broker_epoch:
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)

    def replicated_end(
        self, log_end_offset: int, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> int:
        """The least log end offset of the ISR and of the followers that are about to join it.

        A follower outside the ISR that keeps up counts as well; it could else never catch up with a moving high
        watermark.
        """
        found = log_end_offset
        for each, progress in self.followers.items():
            if progress.log_end_offset < found and (
                each in self.isr.maximal
                or (
                    progress.is_caught_up(log_end_offset, now_ms, max_lag_ms)
                    and is_eligible(each, progress.broker_epoch)
                )
            ):
                found = progress.log_end_offset
        return found

    def lagging(self, broker_id: int, log_end_offset: int, now_ms: int, max_lag_ms: int) -> set[int]:
        """Members of the ISR that have not kept up."""
        return {
            each
            for each in self.isr.committed
            if each != broker_id and not self._keeps_up(each, log_end_offset, now_ms, max_lag_ms)
        }

    def _keeps_up(self, each: int, log_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        progress = self.followers.get(each)
        return progress is not None and progress.is_caught_up(log_end_offset, now_ms, max_lag_ms)
