"""What only a leader knows of its partition; it dies with the leadership."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from operator import itemgetter

from kraftcore.plugins.broker.partition.isr import Isr
from kraftcore.plugins.broker.partition.state import UNKNOWN_BROKER_EPOCH, Assignment, Waiter

UNKNOWN_OFFSET = -1
_WAITING = 1000  # produces that wait are looked through when there are so many more than were left last time
_offset = itemgetter(0)


class Progress:
    """How far a follower is, by what it fetches.

    Attributes:
        log_end_offset: what it asked for last: it has everything below. -1: it has not asked.
        caught_up_ms: when it last had all there was; 0: never.
        broker_epoch: of the incarnation that asked (KIP-903); -1: it did not say.
        log_start_offset: where its log starts; -1: it did not say.
    """

    __slots__ = ("_leader_end_offset", "_seen_ms", "broker_epoch", "caught_up_ms", "log_end_offset", "log_start_offset")

    def __init__(self) -> None:
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = self._leader_end_offset = UNKNOWN_OFFSET
        self._seen_ms = self.caught_up_ms = 0

    def begin_epoch(self, now_ms: int, leader_end_offset: int, *, is_in_sync: bool) -> None:
        """The same leader goes on in another epoch."""
        self._leader_end_offset = leader_end_offset
        self._seen_ms = self.caught_up_ms = now_ms if is_in_sync else 0

    def fetched(self, offset: int, now_ms: int, leader_end_offset: int) -> None:
        """It asked for ``offset``, when the leader's log ended at ``leader_end_offset``."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end_offset:
            # It has now what there was when it asked before.
            self.caught_up_ms = max(self.caught_up_ms, self._seen_ms)
        self.log_end_offset = offset
        self._leader_end_offset = leader_end_offset
        self._seen_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has everything, or had within the time allowed."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


class Leading:
    """A leadership.

    Args:
        broker_id: ours.
        assignment: what made us the leader.
        epoch_start_offset: where the log ended then.
        now_ms: the time.
        before: the leadership of the epoch before this one, if it was ours, too.

    Attributes:
        isr: who is in sync.
        followers: progress by broker id; of the assigned replicas but ourselves.
        epoch_start_offset: as given.
        waiting: produces: (offset that must be committed, who waits), by offset; also some that are over.
        syncing: produces: (offset below which the log must be synced, who waits), as they came.
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
        """Have somebody wait until everything below ``offset`` is committed."""
        if len(self.waiting) >= self._most_waiting:  # produces time out, and are sent again
            self.waiting = deque(each for each in self.waiting if not each[1].is_over)
            self._most_waiting = 2 * len(self.waiting) + _WAITING
        waiting = self.waiting
        if waiting and waiting[-1][0] > offset:  # a batch is repeated behind later ones
            waiting.insert(bisect_right(waiting, offset, key=_offset), (offset, waiter))
        else:
            waiting.append((offset, waiter))

    def reassign(self, broker_id: int, assignment: Assignment, *, is_newer: bool) -> None:
        """The same leadership with other replicas, or another ISR.

        Args:
            broker_id: ours.
            assignment: the present one.
            is_newer: its partition epoch is. An assignment of the epoch that an answer to a proposal brought before
                says nothing new, and must not take back a later proposal that the controller may have accepted.
        """
        if is_newer or self.isr.is_settled:
            self.isr.commit(assignment.isr)
        others = [each for each in assignment.replicas if each != broker_id]
        self.followers = {each: self.followers.get(each) or Progress() for each in others}

    def had_all(self, replica_id: int, broker_epoch: int, now_ms: int) -> None:
        """A follower in sync, for whom the partition was at rest until something changed just now, asked last then.

        An incarnation of it that was followed by another one does not count.
        """
        progress = self.followers.get(replica_id)
        if progress is not None and replica_id in self.isr.committed and progress.broker_epoch == broker_epoch:
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)

    def replicated_end(
        self, log_end_offset: int, now_ms: int, max_lag_ms: int, is_eligible: Callable[[int, int], bool]
    ) -> int:
        """Exclusive end of what all replicas that count have: the ISR, and who is about to join it.

        A follower outside the ISR that keeps up counts as well, or it could never catch up with a moving high
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
