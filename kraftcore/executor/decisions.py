"""Decisions: records that depend on the offset they get.

A decision is asked for its records when they are about to be appended: it is given the offset of the first one and the
leader epoch. Decisions are made one after the other, in order of arrival. The records of many share a batch; those of
one are in one batch, unless it allows otherwise. A decision may build on all earlier ones before they are committed: no
other record comes between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kraftcore.core.batch import build_batch
from kraftcore.errors import KraftError, LocalError
from kraftcore.executor.proposals import BATCH_OVERHEAD, GROUP_BYTES, RECORD_OVERHEAD
from kraftcore.executor.waiting_queue import WaitingQueue, check_order

_AT_ONCE = 512  # pending: a larger batch costs no less a record, and is only later
# Of decisions that are made alone every so many-th waits for a turn, to notice callers that ask at the same time. For a
# single caller that costs one turn in seven. It shares no factor with usual numbers of callers (powers of 2 and of 10):
# else the one that waits could be the last caller of each round, after whom no other comes.
_PROBE_EVERY = 7
_PATIENCE = 4  # decisions that wait for a turn each, after one that did not stay alone


class Decision:
    """Base class of what ``Executor.decide`` takes. Its methods are called by the executor, and must not wait.

    Exactly one of ``committed`` and ``failed`` ends it.

    Attributes:
        may_split: the records may lie in several batches, one right after the other; they then carry what makes them
            one for readers, such as the markers of a metadata transaction (KIP-868).
        records_a_batch: of a decision that may be split, most records that stand in one batch; None: as many as fit.
        is_linearizable: for one without records: it is committed only after a read barrier, which confirms that no
            other leader had committed anything when it was decided. One with records needs none.
    """

    may_split = False
    records_a_batch: int | None = None
    is_linearizable = False

    def decide(self, next_offset: int, leader_epoch: int) -> Sequence[bytes]:
        """Return the records to append, none of them empty.

        Without records it is committed with all earlier decisions; see ``is_linearizable``. If it raises, nothing of
        this decision is appended, and ``failed`` gets the error.

        Args:
            next_offset: what the first record's offset will be.
            leader_epoch: the epoch they are appended in.
        """
        raise NotImplementedError

    def appended(self, offset: int) -> None:
        """The records are in the log, the first at ``offset``; not committed yet."""

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
        offset: what the first record's offset will be.
        batches: to append, all or none.
        ends: each decision with its first offset and the one after its last record, in order.
        needs_barrier: nothing is to be appended, and one of them is to be linearizable.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.batches: list[bytearray] = []
        self.ends: list[tuple[int, int, Decision]] = []

    @property
    def needs_barrier(self) -> bool:
        """See the class."""
        return not self.batches and any(decision.is_linearizable for _, _, decision in self.ends)

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.ends[-1][1] if self.ends else self.offset


class DecisionQueue(WaitingQueue[Decision, Decided]):
    """Decisions that wait to be made, and made ones that wait to be committed.

    Args:
        max_batch_bytes: no batch is larger.
    """

    def __init__(self, max_batch_bytes: int) -> None:
        super().__init__()
        self._room = max_batch_bytes - BATCH_OVERHEAD
        self._gathered = min(self._room, GROUP_BYTES)
        self.appended: deque[tuple[int, Decision]] = deque()  # end offset, decision
        self._alone = 1  # decisions made alone since one was not; below 1: that many more, and one, wait for a turn

    @property
    def is_time(self) -> bool:
        """Whether so many are pending that a batch should be made now."""
        return len(self.pending) >= _AT_ONCE

    @property
    def is_alone(self) -> bool:
        """Whether a decision that comes now need not wait for others that come at the same time.

        Where one commit answers many callers, all of them ask again at once; made one by one, each of their decisions
        would be a batch with a flush of its own.
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
        """The batches are in the log; without any, a barrier has passed if it was needed."""
        self._proposed.discard(decided)
        for offset, end, decision in decided.ends:
            # Without records it waits for the last record decided with it: its commit shows that this replica led.
            self._wait(decided.end if decision.is_linearizable and offset == end else end, decision)
            decision.appended(offset)

    def _wait(self, end: int, decision: Decision) -> None:
        later: list[tuple[int, Decision]] = []
        while self.appended and self.appended[-1][0] > end:
            later.append(self.appended.pop())
        self.appended.append((end, decision))
        self.appended.extend(reversed(later))

    def refused(self, decided: Decided, make_error: Callable[[], KraftError]) -> None:
        """The batches were not appended."""
        self._proposed.discard(decided)
        for _, _, decision in decided.ends:
            decision.failed(make_error())

    def applied(self, offset: int) -> None:
        """Everything below ``offset`` is committed and applied."""
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
