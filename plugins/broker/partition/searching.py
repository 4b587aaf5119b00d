"""A search for a time in batches read from a log, without any shared state, so that a thread may do it."""

from __future__ import annotations

from kraftcore.core.batch import iter_batches
from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES


class TimestampSearch:
    """A search for the first record at or after a time.

    Args:
        data: whole batches, at least one.
        timestamp_ms: the time.
        from_offset: records below it do not count.

    Attributes:
        found: (offset, timestamp, leader epoch); None: it is not there.
        next_offset: what follows the batches that were searched.
        size: bytes that were looked at.
    """

    __slots__ = ("_data", "_from_offset", "_timestamp_ms", "found", "next_offset", "size")

    def __init__(self, data: bytes, timestamp_ms: int, from_offset: int) -> None:
        self._data = data
        self._timestamp_ms = timestamp_ms
        self._from_offset = from_offset
        self.found: tuple[int, int, int] | None = None
        self.next_offset = -1
        self.size = 0

    def run(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> None:
        """Search; again from the start after an error.

        Args:
            max_decompressed_bytes: of a batch.

        Raises:
            CorruptBatchError: a batch is damaged.
            OversizedBatchError: a batch has more in it.
        """
        for batch in iter_batches(self._data, max_decompressed_bytes=max_decompressed_bytes):
            found = batch.find_timestamp(self._timestamp_ms, self._from_offset)
            self.size += batch.size + batch.decompressed
            if found is not None:
                self.found = (*found, batch.leader_epoch)
                return
            self.next_offset = batch.next_offset
