"""What a topic's configuration asks of the records that clients send: times, keys, compression.

A batch is looked at as a whole. Its records are only where a topic asks for keys or limits how old records may be, and
to say which of them were refused. Source: Kafka 4.3.1, LogValidator, UnifiedLog.append; KIP-467.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraftcore.core.batch import Compression, RecordBatch, mark_create_time, recompress_batch, stamp_batch
from kraftcore.errors import RefusedError
from kraftcore.protocol.error_codes import ErrorCode

NO_LIMIT = 2**63 - 1
"""Of times, ms."""
_NO_TIMESTAMP = -1
_MAX_TIMESTAMP = slice(35, 43)
ATTRIBUTES_LOW = 22
CODEC_MASK = 7
_APPEND_TIME = 8


class RecordsRefusedError(RefusedError):
    """Records of a batch are not taken.

    Attributes:
        records: place in the batch, and why, for each of them.
    """

    def __init__(self, error: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(error.name, message)
        self.records = records


@dataclass(frozen=True, slots=True)
class RecordRules:
    """See the module text.

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

    def prepare(self, batch: bytearray, now_ms: int) -> bytearray:
        """The batch as it is to be stored: the same object, changed in place, unless it is compressed anew.

        Args:
            batch: exactly one batch of a client, validated.
            now_ms: the time.

        Raises:
            RecordsRefusedError: INVALID_RECORD, INVALID_TIMESTAMP.
            CorruptBatchError: it cannot be decompressed.
            MissingDependencyError: a codec's library is not installed.
        """
        if self.needs_keys:
            self._refuse(self._keyless(batch))
        says_append_time = batch[ATTRIBUTES_LOW] & _APPEND_TIME != 0
        if not self.has_append_time:
            self._check_times(batch, now_ms)
        if says_append_time:
            self._refuse(self._of_no_client(batch))
            mark_create_time(batch)
        if self.codec is not None and batch[ATTRIBUTES_LOW] & CODEC_MASK != self.codec:
            batch = recompress_batch(batch, self.codec, self.level)
        if self.has_append_time:
            stamp_batch(batch, 0, 0, now_ms)
        return batch

    def _check_times(self, batch: bytearray, now_ms: int) -> None:
        largest = int.from_bytes(batch[_MAX_TIMESTAMP], signed=True)
        if largest - now_ms > self.after_max_ms or self.before_max_ms < NO_LIMIT:
            self._refuse(self._untimely(batch, now_ms))

    def _untimely(self, batch: bytearray, now_ms: int) -> Iterator[tuple[ErrorCode, int, str]]:
        earliest, latest = now_ms - self.before_max_ms, now_ms + self.after_max_ms
        for place, record in enumerate(RecordBatch(batch, verify=False)):
            time_ms = record.timestamp_ms
            if time_ms != _NO_TIMESTAMP and not earliest <= time_ms <= latest:
                text = (
                    f"Timestamp {time_ms} of message with offset {place} is out of range. The timestamp should be "
                    f"within [{earliest}, {latest}]"
                )
                yield ErrorCode.INVALID_TIMESTAMP, place, text

    def _of_no_client(self, batch: bytearray) -> Iterator[tuple[ErrorCode, int, str]]:
        """A client that says that its time is that of the append is refused where Kafka would believe it."""
        for place, record in enumerate(RecordBatch(batch, verify=False)):
            if self.has_append_time or record.timestamp_ms == _NO_TIMESTAMP:
                text = "Invalid timestamp type: a producer should not set it to LogAppendTime"
                yield ErrorCode.INVALID_TIMESTAMP, place, text

    def _keyless(self, batch: bytearray) -> Iterator[tuple[ErrorCode, int, str]]:
        for place, record in enumerate(RecordBatch(batch, verify=False)):
            if record.key is None:
                yield ErrorCode.INVALID_RECORD, place, "Compacted topic cannot accept message without key"

    def _refuse(self, found: Iterator[tuple[ErrorCode, int, str]]) -> None:
        """Kafka says of all records of a batch what is wrong with them."""
        refused = list(found)
        if not refused:
            return
        error = refused[0][0]
        records = [(place, text) for _, place, text in refused]
        text = (
            "One or more records have been rejected due to invalid timestamp"
            if error is ErrorCode.INVALID_TIMESTAMP
            else f"One or more records have been rejected due to {len(records)} record errors in total, and only the "
            f"first three errors at most are included here: {records[:3]}"
        )
        raise RecordsRefusedError(error, text, records)
