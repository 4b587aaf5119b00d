"""State machines that simulated hosts replicate: their base class, and one of counters.

The counters come with a digest of everything ever applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import InvariantError
from kraftcore.state_machine import SnapshotSink, StateMachine

PLACED = b"@"  # begins a decision's record; eight bytes follow, the offset it was decided for
_KEYS_A_RECORD = 16


class Replicated(StateMachine):
    """A state machine whose states can be compared.

    Attributes:
        digest: the same for equal states; None while there is none.
    """

    digest: bytes | None


class Machine(Replicated):
    """Counts values by their first letter, and remembers the order of all of them in a digest.

    Args:
        applied: called after each batch with the offset after it and the digest.
        took: called with each batch.

    Attributes:
        digest: of every value applied, with its batch's offset, since offset 0.
        counters: values by first byte.
    """

    def __init__(self, applied: Callable[[int, bytes], None], took: Callable[[RecordBatch], None]) -> None:
        self._applied = applied
        self._took = took
        self.digest: bytes = b""
        self.counters: Counter[int] = Counter()

    def apply(self, batch: RecordBatch) -> None:
        """Take over a committed batch.

        Raises:
            InvariantError: a decision's record has another offset than it was decided for.
        """
        self._took(batch)
        hasher = blake2b(self.digest, digest_size=8)
        hasher.update(batch.base_offset.to_bytes(8))
        for offset, value in enumerate(batch.values(), batch.base_offset):
            value = value or b""
            if value[:1] == PLACED and int.from_bytes(value[1:9]) != offset:
                raise InvariantError(f"{value[:9]!r} was decided for another offset than {offset}")
            hasher.update(value)
            self.counters[value[0] if value else 0] += 1
        self.digest = hasher.digest()
        self._applied(batch.next_offset, self.digest)

    def snapshot(self, sink: SnapshotSink) -> None:
        """Write the state as records."""
        entries = sorted(self.counters.items())
        records = [b"d" + self.digest]
        for start in range(0, len(entries), _KEYS_A_RECORD):
            chunk = entries[start : start + _KEYS_A_RECORD]
            records.append(b"c" + b"".join(key.to_bytes(1) + count.to_bytes(8) for key, count in chunk))
        sink.append(records)

    def restore(self, values: Iterable[bytes]) -> None:
        """Load the state of a snapshot."""
        self.counters.clear()
        self.digest = b""
        for value in values:
            if value[:1] == b"d":
                self.digest = bytes(value[1:])
            else:
                for at in range(1, len(value), 9):
                    self.counters[value[at]] = int.from_bytes(value[at + 1 : at + 9])
