"""Committed records into the state machine, and the state machine into snapshots and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.errors import InvariantError, LocalError
from kraftcore.node.proposals import AppendedMany, Group, Proposal, ProposalQueue
from kraftcore.node.sessions import Session, Sessions, session_of_batch
from kraftcore.raft.ports import LogPort
from kraftcore.state_machine import StateMachine
from kraftcore.storage.snapshot_batches import SnapshotReader

READ_BYTES = 1 << 20


class Applier:
    """Applies what is committed, once per log position, and settles the proposals that waited for it.

    Args:
        machine: the application's state machine.
        log: where committed records are read from.
        proposals: what was appended here.
        session_expiry_ms: see `Sessions`.
        on_group: called for every group of ours that was applied.

    Attributes:
        offset: everything below it is applied.
        size: bytes applied since ``take_size`` was last called.
        timestamp_ms: the largest of the batches applied last, for snapshots.
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
        self.expected: dict[tuple[int, int], Proposal] = {}  # numbered proposals that another node appends for us
        self.offset = 0
        self.epoch = 0
        self.timestamp_ms = 0

    def apply(self, high_watermark: int, max_bytes: int) -> int:
        """Apply what is committed, up to about ``max_bytes``.

        Returns:
            How many bytes were applied.

        Raises:
            Exception: whatever the state machine raised.
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
        self.timestamp_ms = batch.max_timestamp_ms
        self.sessions.pass_time(self.timestamp_ms)
        results: Sequence[Any] | None
        if batch.producer_id < 0:
            results = self._machine.apply(batch)
        else:
            first_offset, results = self._apply_numbered(batch)
        if results is not None and len(results) != batch.count:
            raise LocalError(
                f"{type(self._machine).__name__}.apply returned {len(results)} results for {batch.count} records: "
                "return one per record, or None"
            )
        self.offset = batch.next_offset
        self.epoch = batch.leader_epoch
        group = proposals.settle(batch.base_offset, batch.leader_epoch) if proposals.groups else None
        if group is not None:
            proposals.release(group)
            group.succeed(results, first_offset)
            if self._on_group is not None:
                self._on_group(group)

    def _apply_numbered(self, batch: RecordBatch) -> tuple[int, Sequence[Any] | None]:
        sessions = self.sessions
        first_offset: int = batch.base_offset
        if sessions.is_retry(batch):
            session = sessions.find(batch.producer_id)
            if session is None or session.sequence != batch.last_sequence:
                results = None  # older than the client's last one: what came of it is forgotten
            else:
                first_offset, results = session.offset, session.results
        else:
            results = self._machine.apply(batch)
            sessions.applied(batch, results)
        waiting = self.expected.pop((batch.producer_id, batch.base_sequence), None)
        if waiting is not None:
            waiting.succeed(AppendedMany(first_offset, results))
        return first_offset, results

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def collect(self) -> tuple[list[bytes], list[tuple[int, Session]]]:
        """The state machine's records and the sessions, as of ``offset``."""
        values = _Values()
        self._machine.snapshot(values)
        return values.values, list(self.sessions.entries())

    def restore(self, reader: SnapshotReader, end_offset: int, epoch: int) -> None:
        """Load a snapshot in place of everything applied."""
        sessions: list[tuple[int, Session]] = []

        def values() -> Iterator[bytes]:
            for batch in reader.batches():
                if batch.producer_id >= 0:
                    sessions.append(session_of_batch(batch))
                else:
                    yield from (value or b"" for value in batch.values())

        rest = values()
        self._machine.restore(rest)
        for _ in rest:
            pass  # what the machine did not want may be followed by sessions
        self.timestamp_ms = reader.last_contained_log_timestamp_ms
        self.sessions.restore(sessions, self.timestamp_ms)
        self.offset = end_offset
        self.epoch = epoch


class _Values:
    """Gathers what a state machine writes."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, values: Iterable[bytes]) -> None:
        if isinstance(values, bytes | bytearray | memoryview | str):
            raise LocalError("append takes a sequence of records: put the one into a list")
        for value in values:
            if not value:
                raise LocalError("a snapshot's record may not be empty")
            self.values.append(bytes(value))
