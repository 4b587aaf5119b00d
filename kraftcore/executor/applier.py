"""The applier: committed records go to the state machine, and the state machine goes to and from snapshots.

Every replica applies every committed record, in order and once. Where this replica appended the record itself, a caller
waits for the result; the applier ends that proposal with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.errors import (
    CorruptDataError,
    InvariantError,
    LocalError,
    SequenceError,
    SnapshotLaterError,
    StateMachineError,
    StorageError,
)
from kraftcore.executor.proposals import AppendedMany, Group, Proposal, ProposalQueue
from kraftcore.executor.sessions import Session, Sessions, digest_of, session_of_batch
from kraftcore.raft.ports import LogPort
from kraftcore.state_machine import StateMachine
from kraftcore.storage.snapshot_batches import SnapshotReader

READ_BYTES = 1 << 20


class Applier:
    """Applies each committed record once, and ends the proposals that wait for its result.

    Args:
        machine: the application's state machine.
        log: committed records are read from it.
        proposals: the groups that this replica appended.
        session_expiry_ms: see `Sessions`.
        on_group: called for every group that was applied.

    Attributes:
        sessions: of the clients that number their proposals.
        expected: numbered proposals that another node appends for this one, by client, its epoch, sequence and digest.
        offset: everything below this offset is applied.
        epoch: leader epoch of the last batch that was applied.
        timestamp_ms: the largest timestamp that was applied; snapshots keep it.
    """

    def __init__(
        self,
        machine: StateMachine,
        log: LogPort,
        proposals: ProposalQueue,
        session_expiry_ms: int,
        on_group: Callable[[Group], None] | None = None,
    ) -> None:
        self._machine = machine
        self._log = log
        self._proposals = proposals
        self._on_group = on_group
        self.sessions = Sessions(session_expiry_ms)
        self.expected: dict[tuple[int, int, int, bytes], Proposal] = {}
        self.offset = 0
        self.epoch = 0
        self.timestamp_ms = 0

    def apply(self, high_watermark: int, max_bytes: int) -> int:
        """Apply committed records, up to about ``max_bytes``.

        Returns:
            How many bytes were applied.

        Raises:
            StateMachineError: the state machine raised something.
        """
        done = 0
        while self.offset < high_watermark and done < max_bytes:
            data = self._log.read(self.offset, READ_BYTES, up_to=high_watermark)
            if not data:
                raise InvariantError(f"nothing to apply at {self.offset}, below the high watermark {high_watermark}")
            for batch in iter_batches(data, verify=False):
                self._apply(batch)
            done += len(data)
        return done

    def _apply(self, batch: RecordBatch) -> None:
        if batch.base_offset != self.offset:
            raise InvariantError(f"the batch at {batch.base_offset} follows what is applied up to {self.offset}")
        if batch.is_control:
            self.offset = batch.next_offset
            self.epoch = batch.leader_epoch
            return
        proposals = self._proposals
        first_offset = batch.base_offset
        self.sessions.pass_time(batch.max_timestamp_ms)
        self.timestamp_ms = self.sessions.now_ms
        results: Sequence[Any] | None
        refused: SequenceError | None = None
        if batch.producer_id < 0:
            results = self._run(batch)
        else:
            first_offset, results, refused = self._apply_numbered(batch)
        self.offset = batch.next_offset
        self.epoch = batch.leader_epoch
        group = proposals.settle(batch.base_offset, batch.leader_epoch) if proposals.groups else None
        if group is not None:
            proposals.release(group)
            if refused is None:
                group.succeed(results, first_offset)
            else:  # only a numbered proposal is refused, and it is alone in its group
                error = refused
                group.fail(lambda: error)
            if self._on_group is not None:
                self._on_group(group)

    def _run(self, batch: RecordBatch) -> Sequence[Any] | None:
        machine, offset = self._machine, batch.base_offset
        try:
            results = machine.apply(batch)
            count = batch.count
            if results is not None:
                count = len(results)
                results[:0]  # raises unless it is a sequence: an error later would leave callers waiting for ever
        except Exception as error:
            what = f"raised {describe_error(error)}, for the batch at offsets {offset} to {batch.last_offset}"
            raise StateMachineError(machine, "apply", offset, what) from error
        if count != batch.count:
            what = f"returned {count} results for the {batch.count} records at offsets {offset} to {batch.last_offset}"
            raise StateMachineError(machine, "apply", offset, f"{what}: return one per record, or None")
        return results

    def _apply_numbered(self, batch: RecordBatch) -> tuple[int, Sequence[Any] | None, SequenceError | None]:
        """Apply a numbered batch unless it is a retry.

        Returns:
            The offset of its first record, its results, and the error if it was refused.
        """
        sessions = self.sessions
        first_offset: int = batch.base_offset
        results: Sequence[Any] | None = None
        refused: SequenceError | None = None
        digest = digest_of(batch.raw)
        try:
            session = sessions.admit(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence, digest
            )
        except SequenceError as error:
            refused = error
        else:
            if session is None:
                results = self._run(batch)
                sessions.applied(batch, digest, results)
            else:
                first_offset, results = session.offset, session.results
        waiting = self.expected.pop((batch.producer_id, batch.producer_epoch, batch.base_sequence, digest), None)
        if waiting is None:
            pass
        elif refused is None:
            waiting.succeed(AppendedMany(first_offset, results))
        else:
            waiting.fail(refused)
        return first_offset, results, refused

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def collect(self) -> tuple[Iterable[bytes], list[tuple[int, Session]]]:
        """The state machine's records and the sessions, as of ``offset``; the records can be iterated once.

        Raises:
            SnapshotLaterError: the state machine gives no snapshot of this state.
            StateMachineError: ``snapshot`` raised something else.
        """
        values = _Values()
        try:
            self._machine.snapshot(values)
        except SnapshotLaterError:
            raise
        except Exception as error:
            what = f"raised {describe_error(error)}, of the state below offset {self.offset}"
            raise StateMachineError(self._machine, "snapshot", self.offset, what) from error
        return self._reading(values.parts, self.offset), list(self.sessions.entries())

    def _reading(self, parts: Iterable[Iterable[bytes]], offset: int) -> Iterator[bytes]:
        """Iterate over records that the application makes only now; an exception of it becomes `StateMachineError`."""
        try:
            yield from chain.from_iterable(parts)
        except Exception as error:
            what = f"gave records that raised {describe_error(error)}, of the state below offset {offset}"
            raise StateMachineError(self._machine, "snapshot", offset, what) from error

    def restore(self, reader: SnapshotReader, end_offset: int, epoch: int) -> None:
        """Load a snapshot in place of everything applied.

        Raises:
            StateMachineError: ``restore`` or ``restored`` raised something.
            CorruptDataError, StorageError: the snapshot cannot be read.
        """
        sessions: list[tuple[int, Session]] = []

        def values() -> Iterator[bytes]:
            for batch in reader.batches():
                if batch.producer_id >= 0:
                    sessions.append(session_of_batch(batch))
                else:
                    yield from (value or b"" for value in batch.values())

        rest = values()
        try:
            self._machine.restore(rest)
            told: Callable[[int], object] | None = getattr(self._machine, "restored", None)
            if told is not None:
                told(end_offset)
        except (CorruptDataError, StorageError):  # raised by `rest`
            raise
        except Exception as error:
            what = f"raised {describe_error(error)}, for the snapshot of everything below offset {end_offset}"
            raise StateMachineError(self._machine, "restore", end_offset, what) from error
        for _ in rest:
            pass  # sessions may follow records that the machine did not read
        self.timestamp_ms = reader.last_contained_log_timestamp_ms
        self.sessions.restore(sessions, self.timestamp_ms)
        self.offset = end_offset
        self.epoch = epoch


def describe_error(error: BaseException) -> str:
    """The class and the text of an exception."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class _Values:
    """The sink that a state machine writes its snapshot to."""

    def __init__(self) -> None:
        self.parts: list[Iterable[bytes]] = []

    def append(self, values: Iterable[bytes]) -> None:
        self.parts.append(list(_checked(values)))

    def append_later(self, values: Iterable[bytes]) -> None:
        self.parts.append(_checked(values))


def _checked(values: Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(values, bytes | bytearray | memoryview | str):
        raise LocalError("append takes a sequence of records: put the one into a list")
    for value in values:
        if not isinstance(value, bytes | bytearray | memoryview):  # bytes(5) would be five zeros
            raise LocalError(f"a snapshot's record is bytes, not {type(value).__name__}")
        if not value:
            raise LocalError("a snapshot's record may not be empty")
        yield bytes(value)
