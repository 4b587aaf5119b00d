"""A topic's rules for the records that clients send: timestamps, keys, compression.

Compiled code validates a batch as a whole; single records are read only to say which of them are refused. The header
that is stored has the records' largest time, whatever the client wrote. Source: Kafka 4.3.1, LogValidator,
UnifiedLog.append; KIP-467.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kraftcore.core.batch import (
    BatchTotals,
    Compression,
    Record,
    RecordBatch,
    mark_create_time,
    recompress_batch,
    set_max_timestamp,
    stamp_batch,
)
from kraftcore.core.batch.layout import ATTRIBUTES_POSITION, CODEC_MASK, LOG_APPEND_TIME, MAX_TIMESTAMP_POSITION
from kraftcore.errors import RefusedError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

LOOKED_AT_MAX, TOLD_MAX = 10_000, 1000
"""The most records of a refused batch that are read one by one, and the most that the answer gives reasons for."""
NO_LIMIT = 2**63 - 1
"""The largest time difference, milliseconds, which no record exceeds."""
_NO_TIMESTAMP = -1
_MAX_TIMESTAMP = slice(MAX_TIMESTAMP_POSITION, MAX_TIMESTAMP_POSITION + 8)
ATTRIBUTES_LOW = ATTRIBUTES_POSITION + 1
"""The position of the lower byte of a batch's attributes, which holds all attributes in use."""


class RecordsRefusedError(RefusedError):
    """Records of a batch are refused.

    Attributes:
        records: the place in the batch, and the reason, for each refused record.
    """

    def __init__(self, error: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(error.name, message)
        self.records = records


class _WrongTimesError(Exception):
    """Records have timestamps that the topic does not allow.

    Attributes:
        found: the place in the batch, and the reason, for each such record that was read.
        are_all: whether every record of the batch is such a record.
    """

    def __init__(self, found: Iterator[tuple[int, str]], *, are_all: bool) -> None:
        super().__init__()
        self.found = found
        self.are_all = are_all


class RecordRules(NamedTuple):
    """The rules of a topic for the records that clients send: timestamps, keys, compression.

    Attributes:
        has_append_time: the leader's clock counts, not the client's (message.timestamp.type=LogAppendTime).
        before_max_ms: how old records may be when they come (message.timestamp.before.max.ms).
        after_max_ms: how far in the future they may be (message.timestamp.after.max.ms).
        codec: of what is stored (compression.type); None: as the client compressed it.
        level: of the codec (compression.gzip.level, compression.zstd.level); None: its default.
        needs_keys: records without a key are refused (cleanup.policy has compact).
    """

    has_append_time: bool = False
    before_max_ms: int = NO_LIMIT
    after_max_ms: int = NO_LIMIT
    codec: Compression | None = None
    level: int | None = None
    needs_keys: bool = False

    def recompresses(self, batch: Buffer) -> bool:
        """Whether a batch is stored with another codec than the client used."""
        return self.codec is not None and memoryview(batch)[ATTRIBUTES_LOW] & CODEC_MASK != self.codec

    def prepare(self, batch: bytearray, now_ms: int, totals: BatchTotals, name: TopicPartition) -> bytearray:
        """Return the batch as it is stored: the same object, changed in place, unless it is compressed anew.

        Args:
            batch: exactly one batch of a client, validated.
            now_ms: the time, milliseconds since 1970.
            totals: the result of validating the batch.
            name: of the partition, for refusals.

        Raises:
            RecordsRefusedError: INVALID_RECORD, INVALID_TIMESTAMP.
            CorruptBatchError: the records cannot be decompressed.
            MissingDependencyError: a codec's library is not installed.
        """
        try:
            self._take_times(batch, now_ms, totals)
        except _WrongTimesError as wrong:
            if self.needs_keys and totals.keyless:
                raise self._keyless_refusal(batch, name, totals, wrong) from None
            raise _refused(ErrorCode.INVALID_TIMESTAMP, wrong.found) from None
        if self.needs_keys and totals.keyless:
            raise self._keyless_refusal(batch, name, totals, _WrongTimesError(iter(()), are_all=False))
        if self.codec is not None and self.recompresses(batch):
            batch = recompress_batch(batch, self.codec, self.level)
        if self.has_append_time:
            stamp_batch(batch, 0, 0, now_ms)
        return batch

    def _take_times(self, batch: bytearray, now_ms: int, totals: BatchTotals) -> None:
        says_append_time = batch[ATTRIBUTES_LOW] & LOG_APPEND_TIME != 0
        largest = int.from_bytes(batch[_MAX_TIMESTAMP], signed=True)
        if says_append_time:
            if not self.has_append_time:
                self._check_times(batch, now_ms, largest, largest, are_all=True)
            if self.has_append_time or largest == _NO_TIMESTAMP:
                raise _WrongTimesError(self._of_no_client(batch), are_all=True)
            mark_create_time(batch)
        if not self.has_append_time:
            self._check_times(batch, now_ms, totals.earliest_ms, totals.latest_ms)
            # Such a header's time was checked as every record's time, and stays unless a record has a larger one.
            latest = max(largest, totals.latest_ms) if says_append_time else totals.latest_ms
            if largest != latest:
                set_max_timestamp(batch, latest)

    def _check_times(
        self, batch: bytearray, now_ms: int, earliest_ms: int, latest_ms: int, *, are_all: bool = False
    ) -> None:
        is_early = earliest_ms != _NO_TIMESTAMP and now_ms - earliest_ms > self.before_max_ms
        if is_early or latest_ms - now_ms > self.after_max_ms:
            raise _WrongTimesError(self._untimely(batch, now_ms), are_all=are_all)

    def _untimely(self, batch: bytearray, now_ms: int) -> Iterator[tuple[int, str]]:
        earliest, latest = now_ms - self.before_max_ms, now_ms + self.after_max_ms
        for place, record in _first_records(batch):
            time_ms = record.timestamp_ms
            if time_ms != _NO_TIMESTAMP and not earliest <= time_ms <= latest:
                text = (
                    f"Timestamp {time_ms} of message with offset {place} is out of range. The timestamp should be "
                    f"within [{earliest}, {latest}]"
                )
                yield place, text

    def _of_no_client(self, batch: bytearray) -> Iterator[tuple[int, str]]:
        """Refusals of all records: a client's header may not claim append time, which Kafka would accept."""
        for place, record in _first_records(batch):
            sizes = f"key={len(record.key or b'')} bytes, value={len(record.value or b'')} bytes"
            shown = f"DefaultRecord(offset={place}, timestamp={record.timestamp_ms}, {sizes})"
            text = (
                f"Invalid timestamp type in message {shown}. Producer should not set timestamp type to LogAppendTime."
            )
            yield place, text

    def _keyless_refusal(
        self, batch: bytearray, name: TopicPartition, totals: BatchTotals, wrong: _WrongTimesError
    ) -> RecordsRefusedError:
        """The refusal of a batch with records without keys: a wrong time of the same batch names the error.

        If the batch has more records than are read one by one, the error is that of the missing keys.
        """
        keyless = dict(self._keyless(batch, name))
        others = [each for each in wrong.found if each[0] not in keyless]
        if others or (wrong.are_all and totals.keyless < totals.records):
            return _refused(ErrorCode.INVALID_TIMESTAMP, iter(sorted([*keyless.items(), *others])))
        return _refused(ErrorCode.INVALID_RECORD, iter(keyless.items()), totals.keyless)

    def _keyless(self, batch: bytearray, name: TopicPartition) -> Iterator[tuple[int, str]]:
        text = f"Compacted topic cannot accept message without key in topic partition {name}"
        for place, record in _first_records(batch):
            if record.key is None:
                yield place, text


def _first_records(batch: bytearray) -> Iterator[tuple[int, Record]]:
    return islice(enumerate(RecordBatch(batch, verify=False)), LOOKED_AT_MAX)


def _refused(error: ErrorCode, found: Iterator[tuple[int, str]], count: int = 0) -> RecordsRefusedError:
    """The refusal with reasons for the first ``TOLD_MAX`` records; Kafka gives reasons for all."""
    records = list(islice(found, TOLD_MAX))
    shown = ", ".join(f"RecordError(batchIndex={place}, message='{why}')" for place, why in records[:3])
    text = (
        "One or more records have been rejected due to invalid timestamp"
        if error is ErrorCode.INVALID_TIMESTAMP
        else f"One or more records have been rejected due to {count} record errors in total, and only showing the "
        f"first three errors at most: [{shown}]"
    )
    return RecordsRefusedError(error, text, records)
