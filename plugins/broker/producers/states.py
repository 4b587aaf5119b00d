"""The producers of a partition, and their snapshots beside its log.

The states are those at ``end_offset`` of the log. A snapshot is written when a segment begins, of the states before it,
and when the log is closed. At a start, and after the log was cut, the newest undamaged snapshot is read, and then the
batches behind it. A producer that was silent for long is forgotten. Source: Kafka 4.3.1, ProducerStateManager,
UnifiedLog.rebuildProducerState.

A consumer with ``read_committed`` reads up to the last stable offset, below which each transaction has ended with a
committed marker, and is told which transactions were aborted.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import deque

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.log.segment import Segment
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.broker.producers.aborted import AbortedTransaction, AbortedTransactions
from kraftcore.plugins.broker.producers.marker import Marker, is_abort
from kraftcore.plugins.broker.producers.snapshot import SUFFIX, decode_snapshot, encode_snapshot
from kraftcore.plugins.broker.producers.state import ProducerState, StoredBatch

NO_PRODUCER = -1
EXPIRATION_MS = 24 * 3600 * 1000
_READ_BYTES = 1024 * 1024
_FILE = re.compile(r"([0-9]{20})\.snapshot", re.ASCII)

_logger = logging.getLogger("kraftcore.broker")


class ProducerStates:
    """The states of a partition's producers, and their snapshot files beside the log.

    Args:
        log: the partition's.
        files: where its folder is; None: no snapshots are read or written.
        expiration_ms: how long a producer may be silent (``producer.id.expiration.ms``).

    Attributes:
        all: by producer id.
        end_offset: they are what the log below this says.
        aborted: transactions of the log.
    """

    def __init__(self, log: Log, files: Files | None = None, expiration_ms: int = EXPIRATION_MS) -> None:
        self.all: dict[int, ProducerState] = {}
        self.end_offset = log.log_start_offset
        self._log = log
        self._files = files
        self._expiration_ms = expiration_ms
        self._snapshots: list[int] = []
        self.aborted = AbortedTransactions(log, files)
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self._ended: deque[tuple[int, int]] = (
            deque()
        )  # (first offset, marker's offset) of ended ones whose marker is not committed
        self._committed_end = 0  # the high watermark, as far as known
        self._active_base = self._newest_base()

    # --- finding out --------------------------------------------------------------------------------------------------

    def load(self, now_ms: int, high_watermark: int = 0) -> None:
        """Read the newest snapshot, and the log behind it.

        Args:
            now_ms: the time, milliseconds since 1970.
            high_watermark: the partition's high watermark as last stored.

        Raises:
            CorruptDataError, StorageError: the log cannot be read.
        """
        if self._files is not None:
            names = self._files.list_folder(self._log.folder)
            self._snapshots = sorted(int(match[1]) for name in names if (match := _FILE.fullmatch(name)))
        self.end_offset = -1
        self._committed_end = high_watermark
        is_readable = self.aborted.load()
        self.truncated()
        lacking = [segment.base_offset for segment in self._uncovered() if self._has_abort(segment)]
        if not is_readable or lacking:
            self._find_aborted(lacking)
        self._cover()
        self.expire(now_ms)

    def _uncovered(self) -> list[Segment]:
        """The segments with markers that have no ``.txnindex`` file."""
        return [
            segment
            for segment in self._log.segment_list()
            if segment.control_offsets and not self.aborted.covers(segment.base_offset)
        ]

    def _cover(self) -> None:
        """Write the missing ``.txnindex`` files of searched segments, so that the next start need not search them."""
        self.aborted.cover([each.base_offset for each in self._uncovered() if each.base_offset < self.end_offset])

    def _has_abort(self, segment: Segment) -> bool:
        offset = max(segment.control_offsets[0], self._log.log_start_offset)
        while offset < segment.next_offset:
            data = self._log.read(offset, _READ_BYTES)
            if not data:
                break
            for batch in iter_batches(data, verify=False):
                if batch.is_control and any(is_abort(record) for record in batch):
                    return True
                offset = batch.next_offset
        return False

    def _find_aborted(self, lacking: list[int]) -> None:
        """Find aborted transactions in the log; a file stays empty if they wrote no records to the segment."""
        _logger.warning("%s: aborted transactions are looked for in the log", self._log.folder)
        reader = ProducerStates(self._log)
        reader.end_offset = -1
        reader.truncated()
        self.aborted.replace(reader.aborted.all, lacking)

    # --- transactions -------------------------------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which every transaction has ended with a committed marker.

        Markers that a snapshot knows of count as committed after a restart, as in Kafka.

        Args:
            high_watermark: of the partition: the answer where no transaction is open, and never less than that.
        """
        if not self._open and not self._ended:
            return high_watermark
        self.committed(high_watermark)
        first = min((*self._open.values(), *(first for first, _ in self._ended)), default=high_watermark)
        return min(max(first, self._log.log_start_offset), high_watermark)

    def committed(self, high_watermark: int) -> None:
        """Forget transactions whose markers are below it: readers need not wait for them any more."""
        self._committed_end = max(self._committed_end, high_watermark)
        while self._ended and self._ended[0][1] < high_watermark:
            self._ended.popleft()

    def truncated(self) -> None:
        """Go back to the states at the log's end, after the log was cut.

        Raises:
            CorruptDataError, StorageError: the log or a snapshot cannot be read, or removed.
        """
        log = self._log
        self._committed_end = min(self._committed_end, log.log_end_offset)
        self._remove_above(log.log_end_offset)
        self.aborted.truncate(log.log_end_offset)
        if self.end_offset != log.log_end_offset:
            ended = tuple(self._ended)
            self._read_snapshot()
            # It does not say which transactions ended just before it, with markers that are not committed yet.
            self._ended.extend(each for each in ended if each[1] < self.end_offset)
            self._read_log()
        self._active_base = self._newest_base()

    def restarted(self) -> None:
        """Forget all producers, after the log began anew."""
        self._remove_above(-1)
        self.all.clear()
        self._open.clear()
        self._ended.clear()
        self.aborted.truncate(-1)
        self.end_offset = self._committed_end = self._log.log_end_offset
        self._active_base = self._newest_base()

    def _read_snapshot(self) -> None:
        self.all.clear()
        self._open.clear()
        self._ended.clear()
        self.end_offset = self._log.log_start_offset
        while self._files is not None and self._snapshots and self._snapshots[-1] >= self._log.log_start_offset:
            path = self._path(self._snapshots[-1])
            try:
                found = decode_snapshot(self._files.read_file(path), path)
            except CorruptDataError as error:
                _logger.warning("%s is left out: %s", path, error)
                self._remove(self._snapshots.pop())
                continue
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._snapshots.pop()  # it went with its segment
                continue
            self.all = {each.producer_id: each for each in found}
            self._open = {each.producer_id: each.transaction_start for each in found if each.transaction_start >= 0}
            self.end_offset = self._snapshots[-1]
            return

    def _read_log(self) -> None:
        log = self._log
        bases = self._bases_above(self.end_offset)
        while self.end_offset < log.log_end_offset:
            data = log.read(self.end_offset, _READ_BYTES)
            if not data:
                break
            for batch in iter_batches(data, verify=False):
                self._pass(bases, batch.base_offset)
                self._take(batch)
        self.end_offset = log.log_end_offset

    # --- following ----------------------------------------------------------------------------------------------------

    def check(self, batch: RecordBatch, *, has_sequence: bool = True) -> StoredBatch | None:
        """See that a client's batch, which has a producer id, comes next.

        Args:
            batch: see above.
            has_sequence: whether its sequence counts, or its epoch alone.

        Returns:
            The batch of the log that it repeats; None: it is new, and may be appended.

        Raises:
            RefusedError: see ``ProducerState.check``.
        """
        state = self.all.get(batch.producer_id)
        if state is None:
            return None
        if not has_sequence:
            state.check_epoch(batch.producer_epoch)
            return None
        comes_next = batch.producer_epoch == state.epoch and batch.base_sequence == state.next_sequence
        repeated = None if comes_next else state.repeated(batch)
        if repeated is None:
            state.check(batch)
        return repeated

    def appended(self, batch: RecordBatch | None, base_offset: int) -> None:
        """Note the batch that was appended here last.

        Args:
            batch: of a client with a producer id; None: without.
            base_offset: of its first record.

        Raises:
            StorageError: the snapshot of the segment before could not be written.
        """
        if self._newest_base() == base_offset:
            self._segment_began(base_offset)
        if batch is not None:
            self._add(batch, base_offset)
        self.end_offset = self._log.log_end_offset

    def _add(self, batch: RecordBatch, base_offset: int) -> None:
        """Note a batch of records that is in the log."""
        state = self._state(batch.producer_id)
        state.add(batch, base_offset)
        if state.transaction_start >= 0:
            self._open.setdefault(batch.producer_id, state.transaction_start)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer and epoch is open in this partition."""
        state = self.all.get(producer_id)
        return state is not None and state.transaction_start >= 0 and state.epoch == epoch

    def check_marker(self, marker: Marker) -> None:
        """See that a marker may be appended.

        Raises:
            RefusedError: see ``ProducerState.check_marker``.
        """
        state = self.all.get(marker.producer_id)
        if state is not None:
            state.check_marker(marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version)

    def ended(self, marker: Marker, offset: int, now_ms: int) -> None:
        """Note the marker that was appended here last.

        Raises:
            StorageError: the snapshot of the segment before could not be written.
        """
        if self._newest_base() == offset:
            self._segment_began(offset)
        self._end(marker, offset, now_ms)
        self.end_offset = self._log.log_end_offset

    def _end(self, marker: Marker, offset: int, timestamp_ms: int) -> None:
        state = self._state(marker.producer_id)
        state.end_transaction(marker.producer_epoch, marker.coordinator_epoch, timestamp_ms)
        self._transaction_ended(marker.producer_id, offset, is_aborted=not marker.is_commit)

    def replicated(self, data: memoryview) -> None:
        """Note the batches that were replicated last.

        Raises:
            StorageError: as ``appended``.
        """
        bases = self._bases_above(self._active_base)
        for batch in iter_batches(data, verify=False):
            if bases:
                self._pass(bases, batch.base_offset)
            if batch.producer_id != NO_PRODUCER:
                self._take(batch)
            self.end_offset = batch.next_offset

    def _newest_base(self) -> int:
        return self._log.segment_list()[-1].base_offset

    def _bases_above(self, offset: int) -> list[int]:
        """The base offsets of the segments above an offset, the last one first."""
        if self._newest_base() <= offset:
            return []
        return [segment.base_offset for segment in reversed(self._log.segment_list()) if segment.base_offset > offset]

    def _pass(self, bases: list[int], offset: int) -> None:
        """Segments that begin up to the next batch have begun: its offsets may be missing from there to its own."""
        while bases and bases[-1] <= offset:
            self._segment_began(bases.pop())

    def _segment_began(self, base_offset: int) -> None:
        self._active_base = base_offset
        self.end_offset = base_offset
        self.snapshot()

    def _take(self, batch: RecordBatch) -> None:
        self.end_offset = batch.next_offset
        if batch.producer_id == NO_PRODUCER:
            return
        if not batch.is_control:
            self._add(batch, batch.base_offset)
            return
        # A marker that ends a transaction. An empty batch is what cleaning left of one.
        for record in batch:
            marker = Marker.read(batch, record)
            if marker is not None:
                self._end(marker, record.offset, record.timestamp_ms)

    def _transaction_ended(self, producer_id: int, marker: int, *, is_aborted: bool) -> None:
        first = self._open.pop(producer_id, None)
        if first is None:
            return  # it wrote nothing here
        if marker >= self._committed_end:
            self._ended.append((first, marker))
        if is_aborted:
            stable = min(self._open.values(), default=marker + 1)
            self.aborted.add(AbortedTransaction(producer_id, first, marker, stable))

    def _state(self, producer_id: int) -> ProducerState:
        state = self.all.get(producer_id)
        if state is None:
            state = self.all[producer_id] = ProducerState(producer_id)
        return state

    # --- forgetting ---------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Forget producers that were silent for ``expiration_ms``."""
        last = now_ms - self._expiration_ms
        for each in [each for each in self.all.values() if each.last_timestamp <= last and each.transaction_start < 0]:
            del self.all[each.producer_id]

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot(self, *, durable: bool = False) -> None:
        """Write a snapshot at ``end_offset``, unless there is one already.

        Args:
            durable: wait until it is on the disk. What is lost or damaged is made up for from the log.

        Raises:
            StorageError: the disk failed.
        """
        last = self._snapshots[-1] if self._snapshots else self._log.log_start_offset
        if self._files is None or last >= self.end_offset:
            return
        self._cover()
        self.aborted.sync()
        path, data = self._path(self.end_offset), encode_snapshot(self.all.values())
        if durable:
            self._files.replace_file(path, data)
        else:
            with self._files.open(path, create=True, truncate=True) as file:
                file.write_at(0, data)
        self._snapshots.append(self.end_offset)

    def _path(self, offset: int) -> str:
        return os.path.join(self._log.folder, f"{offset:020d}{SUFFIX}")

    def _remove_above(self, end: int) -> None:
        """Remove snapshots above ``end`` durably: one that came back after a crash would count for later records."""
        found = [offset for offset in self._snapshots if offset > end]
        for offset in found:
            self._remove(offset)
            self._snapshots.remove(offset)
        if found and self._files is not None:
            self._files.sync_folder(self._log.folder)

    def _remove(self, offset: int) -> None:
        if self._files is not None and self._files.exists(self._path(offset)):
            self._files.unlink(self._path(offset))
