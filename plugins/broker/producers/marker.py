"""The control record that ends a producer's transaction in a partition (KIP-98).

Source: Kafka 4.3.1, EndTransactionMarker, ControlRecordType.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from kraftcore.core.batch import Record, RecordBatch, build_records_batch

EPOCH_MAX = 2**15 - 1
EPOCH_OF_ITS_OWN = 2
"""``transaction.version`` from which each transaction has an epoch of its own."""
_ABORT, _COMMIT = 0, 1
_VERSION = 0
_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch


@dataclass(frozen=True, slots=True)
class Marker:
    """A control record that commits or aborts a producer's transaction in a partition (KIP-98).

    Attributes:
        producer_id: whose transaction it ends.
        producer_epoch: the producer's epoch.
        coordinator_epoch: the coordinator's epoch; -1: unknown.
        is_commit: whether the transaction is committed; else it is aborted.
        transaction_version: ``transaction.version`` of the transaction, as far as known; no part of the record.
        has_append_time: whether its partition's topic has message.timestamp.type=LogAppendTime.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0
    has_append_time: bool = False

    @classmethod
    def read(cls, batch: RecordBatch, record: Record) -> Marker | None:
        """The marker in a control record; None: the record is no marker."""
        kind = _type_of(record)
        if kind not in (_ABORT, _COMMIT):
            return None
        value = record.value or b""
        epoch = _VALUE.unpack_from(value)[1] if len(value) >= _VALUE.size else -1
        return cls(batch.producer_id, batch.producer_epoch, epoch, kind == _COMMIT)

    def ends(self, epoch: int) -> bool:
        """Whether it ends a transaction of this epoch of its producer.

        From ``transaction.version`` 2 on it has a higher one than what it ends, that of the next transaction, which may
        have begun (KIP-890).
        """
        has_next = self.transaction_version >= EPOCH_OF_ITS_OWN and self.producer_epoch < EPOCH_MAX
        return epoch < self.producer_epoch if has_next else epoch <= self.producer_epoch

    def batch(self, now_ms: int) -> bytearray:
        """A batch of this one record."""
        kind = _COMMIT if self.is_commit else _ABORT
        value = _VALUE.pack(_VERSION, self.coordinator_epoch)
        return build_records_batch(
            [Record(value, _KEY.pack(_VERSION, kind), timestamp_ms=now_ms)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transactional=True,
            control=True,
            timestamp_type=int(self.has_append_time),
            timestamp_ms=now_ms,
        )


def is_abort(record: Record) -> bool:
    """Whether a control record ends a transaction as aborted."""
    return _type_of(record) == _ABORT


def _type_of(record: Record) -> int:
    key = record.key
    return -1 if key is None or len(key) < _KEY.size else int(_KEY.unpack_from(key)[1])
