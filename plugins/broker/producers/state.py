"""The state of one producer in a partition. Source: Kafka 4.3.1, ProducerStateEntry, ProducerAppendInfo."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kraftcore.errors import RefusedError
from kraftcore.plugins.broker.producers.marker import EPOCH_MAX, EPOCH_OF_ITS_OWN
from kraftcore.protocol.error_codes import ErrorCode

KEPT_BATCHES = 5
"""The batches that are remembered: a client has at most so many on their way, and repeats any of them."""
NO_EPOCH = -1
NO_SEQUENCE = -1
_SEQUENCE_MAX = 2**31 - 1


class StoredBatch(NamedTuple):
    """A batch of a producer that is in the log.

    Attributes:
        last_sequence: the sequence of its last record, 0 to 2**31 - 1.
        last_offset: the offset of its last record.
        offset_delta: offsets from its first record to its last.
        timestamp: the largest of its records' timestamps, milliseconds since 1970.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record; sequences wrap around to 0."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + _SEQUENCE_MAX + 1

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducersBatch(Protocol):
    """The fields of anything that a producer writes: see ``kraftcore.core.batch.RecordBatch``."""

    @property
    def producer_id(self) -> int:
        """The producer's id; -1: none."""

    @property
    def producer_epoch(self) -> int:
        """The producer's epoch."""

    @property
    def base_sequence(self) -> int:
        """The sequence of the first record; -1: none."""


class NumberedBatch(ProducersBatch, Protocol):
    """The fields of a batch whose records have sequences."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record."""

    @property
    def last_offset_delta(self) -> int:
        """Offsets from its first record to its last."""

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp of the records, milliseconds since 1970."""

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""


@dataclass(slots=True)
class ProducerState:
    """The epoch, sequence numbers and open transaction of one producer in a partition.

    Attributes:
        producer_id: >= 0.
        epoch: of the producer; -1: not known.
        coordinator_epoch: of the transaction coordinator that ended its last transaction; -1: none did.
        last_timestamp: of its last batch or marker, ms; -1: none.
        transaction_start: where its open transaction begins; -1: none is open.
        batches: the last ones of this epoch, oldest first.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    transaction_start: int = -1
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))

    def repeated(self, batch: NumberedBatch) -> StoredBatch | None:
        """The stored batch of which this is a repetition; None: it is new."""
        if batch.producer_epoch != self.epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        return next((each for each in self.batches if (each.first_sequence, each.last_sequence) == (first, last)), None)

    def check(self, batch: NumberedBatch) -> None:
        """See that a client's batch comes next.

        Raises:
            RefusedError: INVALID_PRODUCER_EPOCH; OUT_OF_ORDER_SEQUENCE_NUMBER; INVALID_TXN_STATE for one outside of
                the transaction that is open.
        """
        epoch, first = batch.producer_epoch, batch.base_sequence
        self.check_epoch(epoch)
        if epoch != self.epoch:
            # An unknown producer may begin at any sequence: its earlier records may have been deleted.
            if first != 0 and self.epoch != NO_EPOCH:
                raise self._refused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"epoch {epoch} begins at sequence {first}, not at 0"
                )
        elif first != self.next_sequence:
            raise self._refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {first} follows {self.next_sequence - 1}"
            )
        if self.transaction_start >= 0 and not batch.is_transactional:
            raise self._refused(ErrorCode.INVALID_TXN_STATE, "a batch outside of the transaction that is open")

    def check_epoch(self, epoch: int) -> None:
        """Refuse a producer whose epoch is older than the known one.

        Raises:
            RefusedError: INVALID_PRODUCER_EPOCH.
        """
        if epoch < self.epoch:
            raise self._refused(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} is below {self.epoch}")

    def check_marker(self, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """See that a coordinator may end the producer's transaction.

        From ``transaction.version`` 2 on each transaction has its own epoch, which its marker raises unless that is the
        last there is (KIP-890, KIP-1228): a marker of the present epoch is a repetition, or comes late.

        Args:
            epoch: of the producer.
            coordinator_epoch: of the coordinator.
            transaction_version: ``transaction.version`` of the transaction.

        Raises:
            RefusedError: INVALID_PRODUCER_EPOCH; TRANSACTION_COORDINATOR_FENCED.
        """
        is_raised = transaction_version >= EPOCH_OF_ITS_OWN and epoch < EPOCH_MAX
        is_late = is_raised and epoch == self.epoch and self.transaction_start >= 0
        if epoch < self.epoch or is_late:
            raise self._refused(ErrorCode.INVALID_PRODUCER_EPOCH, f"a marker of epoch {epoch} follows {self.epoch}")
        if coordinator_epoch < self.coordinator_epoch:
            raise self._refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is below {self.coordinator_epoch}",
            )

    @property
    def next_sequence(self) -> int:
        """The sequence that the next batch of this epoch begins with."""
        last = self.batches[-1].last_sequence if self.batches else NO_SEQUENCE
        return 0 if last == _SEQUENCE_MAX else last + 1

    def _refused(self, error: ErrorCode, reason: str) -> RefusedError:
        return RefusedError(error.name, f"producer {self.producer_id}: {reason}")

    def add(self, batch: NumberedBatch, base_offset: int) -> None:
        """Note a batch that is in the log."""
        self._begin(batch.producer_epoch)
        delta, timestamp = batch.last_offset_delta, batch.max_timestamp_ms
        self.batches.append(StoredBatch(batch.last_sequence, base_offset + delta, delta, timestamp))
        self.last_timestamp = timestamp
        if batch.is_transactional and self.transaction_start < 0:
            self.transaction_start = base_offset

    def end_transaction(self, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Note a marker that is in the log and ends the producer's transaction."""
        self._begin(epoch)
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        self.transaction_start = -1

    def _begin(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
