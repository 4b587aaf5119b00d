"""The state machine that the simulated hosts replicate: counters, and a digest of everything ever applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import InvariantError

_KEYS_A_RECORD = 16


class Machine:
    """Counts values by their first letter, and remembers the order of all of them in a digest.

    Attributes:
        offset: everything below it is applied.
        digest: of every value applied, with its offset, since offset 0.
        counters: values by first byte.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.digest = b""
        self.counters: Counter[int] = Counter()

    def apply(self, batch: RecordBatch) -> None:
        """Take over a committed batch.

        Raises:
            InvariantError: it does not continue what was applied.
        """
        if batch.base_offset != self.offset:
            raise InvariantError(f"batch at {batch.base_offset} applied at offset {self.offset}")
        if not batch.is_control:
            hasher = blake2b(self.digest, digest_size=8)
            hasher.update(batch.base_offset.to_bytes(8))
            for value in batch.values():
                value = value or b""
                hasher.update(value)
                self.counters[value[0] if value else 0] += 1
            self.digest = hasher.digest()
        self.offset = batch.next_offset

    def save(self) -> list[bytes]:
        """The state as records of a snapshot."""
        entries = sorted(self.counters.items())
        records = [b"d" + self.digest]
        for start in range(0, len(entries), _KEYS_A_RECORD):
            chunk = entries[start : start + _KEYS_A_RECORD]
            records.append(b"c" + b"".join(key.to_bytes(1) + count.to_bytes(8) for key, count in chunk))
        return records

    def load(self, end_offset: int, values: Iterable[Any]) -> None:
        """Take over the state of a snapshot."""
        self.counters.clear()
        for value in values:
            if value[:1] == b"d":
                self.digest = bytes(value[1:])
            else:
                for at in range(1, len(value), 9):
                    self.counters[value[at]] = int.from_bytes(value[at + 1 : at + 9])
        self.offset = end_offset
