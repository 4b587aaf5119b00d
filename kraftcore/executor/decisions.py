"""Decisions: records that depend on the offset they get.

A controller's records may name their own offset, and each depends on the records before it. So a decision is not given
records but is asked for them when they are about to be appended: it is told the offset of its first record and the
leader epoch. Decisions are made one after the other, in order of arrival. The records of several decisions share a
batch; those of one decision are in one batch, unless it allows otherwise. A decision may build on all earlier ones
before these are committed: no other record comes between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kraftcore.core.batch import build_batch
from kraftcore.errors import KraftError, LocalError
from kraftcore.executor.proposals import BATCH_OVERHEAD, GROUP_BYTES, RECORD_OVERHEAD
from kraftcore.executor.waiting_queue import WaitingQueue, check_order

_AT_ONCE = 512  # pending decisions: a larger batch would cost as much for each record, and come later
# Of the decisions that are made alone, one in so many waits for a turn, to notice callers that ask at the same time.
# For a single caller that costs one turn in seven. The number shares no factor with usual numbers of callers (powers of
# 2 and of 10): else the decision that waits could be that of each round's last caller, after whom no other comes.
_PROBE_EVERY = 7
_PATIENCE = 4  # decisions that wait for a turn each, after one that did not stay alone


class Decision:
    """Base class of decisions, which ``Executor.decide`` takes. The executor calls the methods; they must not wait.

    Exactly one of ``committed`` and ``failed`` ends a decision.

    Attributes:
        may_split: whether the records may lie in several batches, one right after the other. They then hold what makes
            them one change for readers, such as the markers of a metadata transaction (KIP-868).
        records_a_batch: of a decision that may be split, the most records in one batch; None: as many as fit.
        is_linearizable: for a decision without records: whether it is committed only after a read barrier, which
            confirms that no other leader had committed anything when it was made. With records none is needed.
    """

    may_split = False
    records_a_batch: int | None = None
    is_linearizable = False

    def decide(self, next_offset: int, leader_epoch: int) -> Sequence[bytes]:
        """Return the records to append, none of them empty.

        A decision without records is committed when all earlier ones are; see ``is_linearizable``. If this method
        raises, nothing of the decision is appended, and ``failed`` gets the error.

        Args:
            next_offset: the offset that the first record will have.
            leader_epoch: the leader epoch in which the records are appended.
        """
        raise NotImplementedError

    def appended(self, offset: int) -> None:
        """The records are in the log, the first at ``offset``; they are not committed yet."""

    def committed(self) -> None:
        """The records, and everything before them, are committed and applied here."""

    def failed(self, error: Exception) -> None:
        """The records are not committed, or the outcome is unknown.

        Args:
            error: `NotLeaderError`: nothing was appended, though ``decide`` may have been called;
                `OutcomeUnknownError`: leadership was lost before the outcome was known; `LocalError`: the records do
                not fit; `NodeStoppedError`; or what ``decide`` raised.
        """


class Decided:
    """Decisions whose records are appended together.

    Attributes:
        offset: the offset that the first record will have.
        batches: to append, all or none.
        ends: each decision with the offset of its first record and the offset after its last one, in order.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.batches: list[bytearray] = []
        self.ends: list[tuple[int, int, Decision]] = []

    @property
    def needs_barrier(self) -> bool:
        """Whether a read barrier has to confirm them: nothing is appended, and one decision is to be linearizable."""
        return not self.batches and any(decision.is_linearizable for _, _, decision in self.ends)

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.ends[-1][1] if self.ends else self.offset


class DecisionQueue(WaitingQueue[Decision, Decided]):
    """Decisions that wait to be made, and decisions that were made and wait to be committed.

    Args:
        max_batch_bytes: no batch is larger.
    """

    def __init__(self, max_batch_bytes: int) -> None:
        super().__init__()
        self._room = max_batch_bytes - BATCH_OVERHEAD
        self._gathered = min(self._room, GROUP_BYTES)
        self.appended: deque[tuple[int, Decision]] = deque()  # end offset, decision
        self._alone = 1  # decisions made alone, one after the other; below 1: one more than so many wait for a turn

    @property
    def is_time(self) -> bool:
        """Whether so many decisions are pending that a batch should be made now."""
        return len(self.pending) >= _AT_ONCE

    @property
    def is_alone(self) -> bool:
        """Whether a decision that comes now is made at once, for no other is likely to come at the same time.

        Where one commit answers many callers, all of them ask again at once. If their decisions were made one by one,
        each would be a batch with a flush of its own.
        """
        return self._alone > 0 and self._alone % _PROBE_EVERY != 0

    def decide(self, next_offset: int, leader_epoch: int, now_ms: int) -> Decided:
        """Make all pending decisions, and batches of their records."""
        self._alone = self._alone + 1 if len(self.pending) <= 1 else -_PATIENCE
        decided = Decided(next_offset)
        offset = next_offset
        values: list[bytes] = []
        size = 0

        def close() -> None:
            nonlocal size
            if values:
                decided.batches.append(build_batch(values, timestamp_ms=now_ms))
                values.clear()
            size = 0

        for _ in range(len(self.pending)):
            decision = self.pending.popleft()
            try:
                records = decision.decide(offset, leader_epoch)
                sizes = [len(record) + RECORD_OVERHEAD for record in records]
                self._check(decision, records, sizes)
            except Exception as error:
                decision.failed(error)
                continue
            total = sum(sizes)
            if size + total > self._gathered:
                close()
            most = decision.records_a_batch if decision.may_split else None
            if size + total <= self._room and (most is None or len(records) <= most):
                values.extend(records)
                size += total
            else:
                for at, (record, one) in enumerate(zip(records, sizes, strict=True)):
                    if size + one > self._room or (most is not None and at and at % most == 0):
                        close()
                    values.append(record)
                    size += one
            decided.ends.append((offset, offset + len(records), decision))
            offset += len(records)
        close()
        self._proposed.add(decided)
        return decided

    def _check(self, decision: Decision, records: Sequence[bytes], sizes: list[int]) -> None:
        if not all(records):
            raise LocalError("a record may not be empty")
        largest = max(sizes, default=0) if decision.may_split else sum(sizes)
        if largest > self._room:
            raise LocalError(
                f"{largest} bytes do not fit a batch of {self._room + BATCH_OVERHEAD}: decide less at once"
            )

    def took(self, decided: Decided) -> None:
        """The batches are in the log; without batches, a read barrier has passed if one was needed."""
        self._proposed.discard(decided)
        for offset, end, decision in decided.ends:
            # A linearizable decision without records waits for the last record that was decided together with it: the
            # commit of that record shows that this replica still led.
            self._wait(decided.end if decision.is_linearizable and offset == end else end, decision)
            decision.appended(offset)

    def _wait(self, end: int, decision: Decision) -> None:
        later: list[tuple[int, Decision]] = []
        while self.appended and self.appended[-1][0] > end:
            later.append(self.appended.pop())
        self.appended.append((end, decision))
        self.appended.extend(reversed(later))

    def refused(self, decided: Decided, make_error: Callable[[], KraftError]) -> None:
        """End decisions whose batches were not appended."""
        self._proposed.discard(decided)
        for _, _, decision in decided.ends:
            decision.failed(make_error())

    def applied(self, offset: int) -> None:
        """End decisions whose records lie below ``offset``: everything there is committed and applied."""
        appended = self.appended
        while appended and appended[0][0] <= offset:
            appended.popleft()[1].committed()

    def fail_pending(self, make_error: Callable[[], KraftError]) -> None:
        """See ``WaitingQueue.fail_pending``."""
        pending, self.pending = self.pending, deque()
        for decision in pending:
            decision.failed(make_error())

    def fail_appended(self, make_error: Callable[[], KraftError]) -> None:
        """See ``WaitingQueue.fail_appended``."""
        appended, self.appended = self.appended, deque()
        for _, decision in appended:
            decision.failed(make_error())

    def check_invariants(self, applied: int, end: int) -> None:
        """See ``WaitingQueue.check_invariants``."""
        check_order([(after, after) for after, _ in self.appended], applied, end)
