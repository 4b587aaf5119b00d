"""Proposals: pending, in a batch, committed, and how their callers learn the result.

Every batch costs a flush on each voter, so the records of callers that propose at the same time share a batch, and each
caller still gets its own result.

* A proposal is *pending* (nothing of it is appended), then part of a *group* (one batch). A group is *proposed* until
  the log has the batch or refuses it; then it is *appended* until the batch is applied. Each proposal ends exactly
  once: with its offset and results, or with an error that says whether its records may be in the log. When the node
  ends, all proposals end.
* All pending proposals share a batch, except that a client's numbered proposal has a batch of its own (``sessions``).
* A group is settled when its own batch is applied, at the same offset and in the same leader epoch. A leader that loses
  its leadership ends its groups with `OutcomeUnknownError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from kraftcore.core.batch import build_batch
from kraftcore.errors import InvariantError, KraftError, LocalError, OutcomeUnknownError, OverloadedError
from kraftcore.executor.waiting_queue import WaitingQueue, check_order
from kraftcore.state_machine import Result_co

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Ended_co = TypeVar("Ended_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Ended_co = TypeVar("Ended_co", covariant=True)

RECORD_OVERHEAD = 24  # bytes around a value in a batch, at most
BATCH_OVERHEAD = 61
_appended = tuple.__new__  # as Appended(...), at a third of its cost
GROUP_BYTES = 256 * 1024  # of a batch of several proposals: followers write one batch while the next is built


class Appended(NamedTuple, Generic[Result_co]):
    """The offset of one record, and the result of this node's state machine for it (None if it returns no results)."""

    offset: int
    result: Result_co


class AppendedMany(NamedTuple, Generic[Result_co]):
    """The offset of the first of consecutive records, and a result per record (or None)."""

    offset: int
    results: Sequence[Result_co] | None


class Proposal(Generic[Ended_co]):
    """Records that go into the log together, and the result.

    Attributes:
        values: one value, or with ``many`` a sequence of values.
        size: the bytes that the values take in a batch, at most.
        many: whether the result is `AppendedMany`.
        producer_id: the client's number, see ``sessions``; -1: the proposal is not numbered.
        producer_epoch: the client's epoch.
        sequence: of the first record; -1 without a number.
        done: whether the proposal has ended, with a result or an error.
        waiter: a function that is called with the proposal when it ends; a subclass may wake a task instead (``wake``).
    """

    __slots__ = (
        "_callbacks",
        "_error",
        "_value",
        "done",
        "many",
        "producer_epoch",
        "producer_id",
        "sequence",
        "size",
        "values",
        "waiter",
    )

    def __init__(
        self, values: Any, size: int, many: bool, producer_id: int = -1, sequence: int = -1, producer_epoch: int = 0
    ) -> None:
        self.values = values
        self.size = size
        self.many = many
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequence = sequence
        self.done = False
        self.waiter: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Proposal], None]] | None = None

    def __repr__(self) -> str:
        if not self.done:
            how = "not ended yet"
        elif self._error is not None:
            how = f"{type(self._error).__name__}: {self._error}"
        else:
            how = f"at offset {self._value.offset}"
        return f"<{type(self).__name__} of {self.size} bytes, {how}>"

    def result(self) -> Ended_co:
        """The result, `Appended` or `AppendedMany`.

        Raises:
            LocalError: the proposal has not ended.
            KraftError: the error with which it ended; see ``Node.append``.
        """
        if not self.done:
            raise LocalError("the proposal has not ended: wait for it")
        if self._error is not None:
            raise self._error
        value: Ended_co = self._value
        return value

    def add_done_callback(self, callback: Callable[[Proposal], None]) -> None:
        """Have ``callback(self)`` called when the proposal ends; at once if it has ended.

        An exception that the callback raises later goes to ``callback_raised``.
        """
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    @staticmethod
    def wake(waiter: Any, proposal: Proposal) -> None:
        """Wake the waiter; subclasses override it."""
        waiter(proposal)

    @staticmethod
    def callback_raised(error: Exception) -> None:
        """Raise an exception of a callback again. Subclasses may log it instead, so that later callbacks are called."""
        raise error

    def succeed(self, value: Any) -> None:
        """End the proposal: it is committed and applied."""
        if not self.done:
            self._value = value
            self._end()

    def fail(self, error: BaseException) -> None:
        """End the proposal: it is not committed, or the outcome is unknown."""
        if not self.done:
            self._error = error
            self._end()

    def _end(self) -> None:
        self.done = True
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            self.wake(waiter, self)
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                try:
                    callback(self)
                except Exception as error:
                    self.callback_raised(error)


def empty_record() -> LocalError:
    """The error for a proposal without a record, or with an empty record."""
    return LocalError("a record may not be empty, nor may there be none: Kafka's readers refuse that")


def record_bytes(value: Any) -> bytes:
    """A record's value as bytes; a mutable value is copied, for it may change before its batch is built.

    Raises:
        LocalError: the value is not bytes. While the batch is built, that would stop the node.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise LocalError(f"a record is bytes, not {type(value).__name__}")


class Group:
    """The proposals of one batch.

    Attributes:
        proposals: in the order of their records.
        size: the bytes that their values take in the batch, at most.
        appended_at: free for the caller of the executor, to measure.
        offset: of the first record; -1 until the batch is in the log.
        epoch: the leader epoch in which the batch was appended; -1 before.
        count: how many records the batch has; 0 until it is built.
    """

    __slots__ = ("appended_at", "count", "epoch", "offset", "proposals", "size")

    def __init__(self, proposals: list[Proposal], size: int) -> None:
        self.proposals = proposals
        self.size = size
        self.appended_at = 0.0
        self.offset = -1
        self.epoch = -1
        self.count = 0

    def build(self, now_ms: int) -> bytearray:
        """The batch of these proposals."""
        first = self.proposals[0]
        if len(self.proposals) == 1:
            values = first.values if first.many else (first.values,)
            self.count = len(values)
            return build_batch(
                values,
                timestamp_ms=now_ms,
                producer_id=first.producer_id,
                producer_epoch=-1 if first.producer_id < 0 else first.producer_epoch,
                base_sequence=first.sequence,
            )
        gathered: list[Any] = []
        for proposal in self.proposals:
            if proposal.many:
                gathered.extend(proposal.values)
            else:
                gathered.append(proposal.values)
        self.count = len(gathered)
        return build_batch(gathered, timestamp_ms=now_ms)

    def succeed(self, results: Sequence[Any] | None, offset: int) -> None:
        """End all proposals: the batch was applied.

        Args:
            results: one for each record, or None.
            offset: of the first record; for a retry the offset at which it was applied first.
        """
        at = 0
        for proposal in self.proposals:
            if proposal.many:
                count = len(proposal.values)
                found = None if results is None else results[at : at + count]
                proposal.succeed(AppendedMany(offset + at, found))
                at += count
            else:
                proposal.succeed(_appended(Appended, (offset + at, None if results is None else results[at])))
                at += 1

    def fail(self, make_error: Callable[[], KraftError]) -> None:
        """End all proposals, each with an error of its own: the batch is not known to be committed."""
        for proposal in self.proposals:
            proposal.fail(make_error())


class ProposalQueue(WaitingQueue[Proposal, Group]):
    """Proposals that wait to be appended, and groups of them that wait to be committed.

    Args:
        max_batch_bytes: no batch is larger; a proposal that cannot fit is refused.
        max_bytes_in_flight: bound of all pending and uncommitted proposals.
    """

    def __init__(self, max_batch_bytes: int, max_bytes_in_flight: int) -> None:
        super().__init__()
        self._max_batch_bytes = max_batch_bytes
        self.max_bytes_in_flight = max_bytes_in_flight
        self.on_room: Callable[[], object] | None = None  # called, once, when the queue is no longer full
        self.groups: deque[Group] = deque()  # in the log
        self.bytes_in_flight = 0
        self.pending_bytes = 0
        self.last_settled = 0  # proposals that the last commit ended together

    @property
    def is_full(self) -> bool:
        """Whether ``add`` refuses."""
        return self.bytes_in_flight >= self.max_bytes_in_flight

    def add(self, proposal: Proposal) -> None:
        """Take a proposal in.

        Raises:
            OverloadedError: the queue is full.
            LocalError: its records do not fit a batch.
        """
        if self.bytes_in_flight >= self.max_bytes_in_flight:
            raise OverloadedError(f"{self.bytes_in_flight} bytes are in flight: wait for some to be committed")
        if proposal.size + BATCH_OVERHEAD > self._max_batch_bytes:
            raise LocalError(
                f"{proposal.size} bytes do not fit a batch of at most {self._max_batch_bytes}: append less at once"
            )
        self.bytes_in_flight += proposal.size
        self.pending_bytes += proposal.size
        self.pending.append(proposal)

    def next_group(self) -> Group | None:
        """The proposals for the next batch; None if none is pending."""
        pending = self.pending
        if not pending:
            return None
        first = pending.popleft()
        chosen = [first]
        size = first.size
        if first.producer_id < 0:
            limit = min(self._max_batch_bytes, GROUP_BYTES) - BATCH_OVERHEAD
            while pending and pending[0].producer_id < 0 and size + pending[0].size <= limit:
                size += pending[0].size
                chosen.append(pending.popleft())
        self.pending_bytes -= size
        group = Group(chosen, size)
        self._proposed.add(group)
        return group

    def appended(self, group: Group, offset: int, epoch: int) -> None:
        """Take note that the group's batch is in the log, at this offset."""
        self._proposed.discard(group)
        group.offset = offset
        group.epoch = epoch
        self.groups.append(group)

    def refused(self, group: Group, make_error: Callable[[], KraftError]) -> None:
        """End a group whose batch was not appended."""
        self._proposed.discard(group)
        self.release(group)
        group.fail(make_error)

    def settle(self, offset: int, epoch: int) -> Group | None:
        """The group whose batch, at ``offset``, is being applied; None if this replica did not append that batch."""
        groups = self.groups
        while groups and groups[0].offset < offset:
            self.release(groups[0])
            groups.popleft().fail(lambda: OutcomeUnknownError("the log went on without the batch's own application"))
        if not groups or groups[0].offset != offset:
            return None
        group = groups.popleft()
        if group.epoch != epoch:
            self.release(group)
            group.fail(lambda: OutcomeUnknownError(f"another leader's records stand at offset {offset}"))
            return None
        self.last_settled = len(group.proposals)
        return group

    def release(self, group: Group) -> None:
        """Subtract the bytes of a group that ended."""
        self.forget(group.size)

    def forget(self, size: int) -> None:
        """Subtract the bytes of proposals that ended, and call ``on_room`` if there is room again."""
        self.bytes_in_flight -= size
        if self.on_room is not None and not self.is_full:
            on_room, self.on_room = self.on_room, None
            on_room()

    def fail_pending(self, make_error: Callable[[], KraftError]) -> None:
        """See ``WaitingQueue.fail_pending``."""
        pending, self.pending = self.pending, deque()
        self.pending_bytes = 0
        for proposal in pending:
            self.forget(proposal.size)
            proposal.fail(make_error())

    def fail_appended(self, make_error: Callable[[], KraftError], before_epoch: int | None = None) -> None:
        """See ``WaitingQueue.fail_appended``; with ``before_epoch`` only groups of earlier epochs."""
        kept: deque[Group] = deque()
        failed: list[Group] = []
        for group in self.groups:
            (kept if before_epoch is not None and group.epoch >= before_epoch else failed).append(group)
        self.groups = kept
        for group in failed:
            self.release(group)
            group.fail(make_error)

    def check_invariants(self, applied: int, end: int) -> None:
        """See ``WaitingQueue.check_invariants``."""
        pending = sum(proposal.size for proposal in self.pending)
        waiting = sum(group.size for group in (*self.groups, *self._proposed))
        if (self.pending_bytes, self.bytes_in_flight) != (pending, pending + waiting):
            raise InvariantError(
                f"{self.pending_bytes} bytes pending, {self.bytes_in_flight} in flight: they are {pending} and "
                f"{pending + waiting}"
            )
        check_order([(group.offset, group.offset + group.count) for group in self.groups], applied, end)
        if self.groups and self.groups[0].offset < applied:
            raise InvariantError(f"a batch at {self.groups[0].offset} is waited for, {applied} is applied")
        if any(proposal.done for proposal in self.pending):
            raise InvariantError("a proposal that ended is pending")
