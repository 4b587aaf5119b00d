"""From ``append`` to its result: proposals that wait, the batch they become, and who is told.

Rules of this file:

* A proposal is *pending* (nothing appended), then part of a *group* (one batch, appended here), then done. Each ends
  exactly once: with its offset and results, or with an error that says whether it may be in the log.
* Everything pending becomes one batch, except that a client's numbered proposal has a batch of its own (``sessions``).
* A group is settled when its own batch is applied: same offset, same leader epoch. A leader that loses its epoch does
  not wait to learn what became of its groups; it says that it does not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import trio
from trio.lowlevel import cancel_shielded_checkpoint, current_task, reschedule, wait_task_rescheduled

from kraftcore.core.batch import build_batch
from kraftcore.errors import KraftError, LocalError, OutcomeUnknownError

RECORD_OVERHEAD = 24  # at most, around a value in a batch
BATCH_OVERHEAD = 61
_appended = tuple.__new__  # as Appended(...), at a third of its cost
_SUCCEEDED = trio.lowlevel.Abort.SUCCEEDED
GROUP_BYTES = 256 * 1024  # proposals are gathered up to this: followers work on one batch while the next is built


class Appended(NamedTuple):
    """Where one record went, and what the state machine here returned for it (None without results)."""

    offset: int
    result: Any


class AppendedMany(NamedTuple):
    """Where consecutive records went: the first's offset, and a result per record (or None)."""

    offset: int
    results: Sequence[Any] | None


class Proposal:
    """Records that go into the log together.

    Also what ``Node.append_nowait`` returns: a future for whoever is not a task. And what trio hands to the task it
    wakes (see ``unwrap``): an ``outcome`` object a proposal would cost as much as appending its record.
    """

    __slots__ = ("_callbacks", "_error", "_value", "done", "many", "producer_id", "sequence", "size", "task", "values")

    def __init__(self, values: Any, size: int, many: bool, producer_id: int = -1, sequence: int = -1) -> None:
        self.values = values  # one value, or with `many` a sequence of them
        self.size = size
        self.many = many
        self.producer_id = producer_id
        self.sequence = sequence
        self.done = False  # whether it ended, well or not
        self.task: trio.lowlevel.Task | None = None  # that waits
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Proposal], None]] | None = None

    def result(self) -> Any:
        """`Appended` or `AppendedMany`.

        Raises:
            LocalError: it has not ended.
            KraftError: what went wrong; see ``Node.append``.
        """
        if not self.done:
            raise LocalError("the proposal has not ended: wait for it")
        if self._error is not None:
            raise self._error
        return self._value

    unwrap = result  # by this name trio takes what a task is woken with

    def add_done_callback(self, callback: Callable[[Proposal], None]) -> None:
        """Call ``callback(self)`` in the node's task once it ended; at once if it has."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    async def wait(self) -> Any:
        """Wait for the end; returns or raises as ``result``. Cancelling the wait does not undo the proposal."""
        if self.done:
            await cancel_shielded_checkpoint()
            return self.result()
        if self.task is not None:
            raise LocalError("another task waits for this proposal: use add_done_callback for more than one")
        self.task = current_task()
        return await wait_task_rescheduled(self)

    def __call__(self, _: Any) -> trio.lowlevel.Abort:
        """Its task is cancelled: trio's abort function. A bound method would be one object more for each caller."""
        self.task = None
        return _SUCCEEDED

    def succeed(self, value: Any) -> None:
        """It is committed and applied."""
        if not self.done:
            self._value = value
            self._end()

    def fail(self, error: BaseException) -> None:
        """It is not, or nobody knows."""
        if not self.done:
            self._error = error
            self._end()

    def _end(self) -> None:
        self.done = True
        task = self.task
        if task is not None:
            self.task = None
            reschedule(task, self)  # type: ignore[arg-type]  # trio only calls its `unwrap`
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                callback(self)


class Group:
    """The proposals of one batch."""

    __slots__ = ("appended_at", "count", "epoch", "offset", "proposals", "size")

    def __init__(self, proposals: list[Proposal], size: int, appended_at: float) -> None:
        self.proposals = proposals
        self.size = size
        self.appended_at = appended_at
        self.offset = -1
        self.epoch = -1
        self.count = 0

    def build(self, now_ms: int) -> bytearray:
        """Their batch."""
        first = self.proposals[0]
        if len(self.proposals) == 1:
            values = first.values if first.many else (first.values,)
            self.count = len(values)
            return build_batch(
                values,
                timestamp_ms=now_ms,
                producer_id=first.producer_id,
                producer_epoch=-1 if first.producer_id < 0 else 0,
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
        """The batch was applied; ``offset`` is where its records first went (not here, for a retry)."""
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
        """None of them is known to be committed. Each gets its own error, with its own traceback."""
        for proposal in self.proposals:
            proposal.fail(make_error())


class ProposalQueue:
    """What waits to be appended, and what waits to be committed.

    Args:
        max_batch_bytes: no batch is larger; a proposal that cannot fit is refused.
        max_bytes_in_flight: bound of everything pending and uncommitted.
    """

    def __init__(self, max_batch_bytes: int, max_bytes_in_flight: int) -> None:
        self._max_batch_bytes = max_batch_bytes
        self.max_bytes_in_flight = max_bytes_in_flight
        self._room = trio.lowlevel.ParkingLot()
        self.pending: deque[Proposal] = deque()
        self.groups: deque[Group] = deque()
        self.bytes_in_flight = 0
        self.pending_bytes = 0
        self.last_settled = 0  # proposals that ended together; what comes back at once was probably waiting for them

    @property
    def is_full(self) -> bool:
        """Whether nobody may add to it now."""
        return self.bytes_in_flight >= self.max_bytes_in_flight

    async def wait_for_room(self) -> None:
        """Wait, in turn, until it is not full."""
        while self.is_full:
            await self._room.park()

    def add(self, proposal: Proposal) -> None:
        """Take a proposal in.

        Raises:
            LocalError: its records do not fit a batch.
        """
        if proposal.size + BATCH_OVERHEAD > self._max_batch_bytes:
            raise LocalError(
                f"{proposal.size} bytes do not fit a batch of at most {self._max_batch_bytes}: append less at once"
            )
        self.bytes_in_flight += proposal.size
        self.pending_bytes += proposal.size
        self.pending.append(proposal)

    def next_group(self, appended_at: float) -> Group | None:
        """What goes into the next batch; None if nothing is pending."""
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
        return Group(chosen, size, appended_at)

    def appended(self, group: Group, offset: int, epoch: int) -> None:
        """The group's batch is in the log, at this offset."""
        group.offset = offset
        group.epoch = epoch
        self.groups.append(group)

    def settle(self, offset: int, epoch: int) -> Group | None:
        """The batch at ``offset`` is being applied: the group it belongs to, if it was appended here."""
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
        """The group ended: there is room for others."""
        self.forget(group.size)

    def forget(self, size: int) -> None:
        """So many bytes ended."""
        self.bytes_in_flight -= size
        if self._room and not self.is_full:
            self._room.unpark_all()

    def fail_pending(self, make_error: Callable[[], KraftError]) -> None:
        """Nothing of what is pending was appended, and nothing will be."""
        pending, self.pending = self.pending, deque()
        self.pending_bytes = 0
        for proposal in pending:
            self.forget(proposal.size)
            proposal.fail(make_error())

    def fail_groups(self, make_error: Callable[[], KraftError], before_epoch: int | None = None) -> None:
        """What was appended (in epochs below ``before_epoch``) has an unknown outcome."""
        kept: deque[Group] = deque()
        failed: list[Group] = []
        for group in self.groups:
            (kept if before_epoch is not None and group.epoch >= before_epoch else failed).append(group)
        self.groups = kept
        for group in failed:
            self.release(group)
            group.fail(make_error)
