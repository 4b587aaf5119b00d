"""Which retried proposals were applied already.

A client that may retry names itself (client id) and numbers its proposals (sequence). Both travel in the header of
the proposal's own batch, in the fields that Kafka has for idempotent producers, so every replica sees them in the log.
A batch whose sequence is not above the client's last one is a retry: it is skipped, and answered as the first was.
The table is part of every snapshot. A client unheard of for the expiry time, by the log's own timestamps, is
forgotten; the same records make every replica forget the same clients.

A client has one proposal in flight at a time. Source: the sessions of Raft's dissertation, 6.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import LocalError

SEQUENCE_MAX = 2**31 - 1
_ID_MASK = 2**63 - 1


@dataclass(slots=True)
class Session:
    """What is remembered of a client.

    Attributes:
        sequence: of its last record.
        offset: where its last proposal was first appended.
        timestamp_ms: the log's time then.
        results: what the state machine returned for it, while this process lives.
    """

    sequence: int
    offset: int
    timestamp_ms: int
    results: Sequence[Any] | None = None


class Sessions:
    """The clients that numbered their proposals.

    Args:
        expiry_ms: how long a silent client is remembered, > 0; the same on every replica.
    """

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self._by_client: dict[int, Session] = {}
        self.now_ms = 0  # the largest timestamp applied

    def __len__(self) -> int:
        return len(self._by_client)

    def find(self, producer_id: int) -> Session | None:
        """What is known of a client, unless it is forgotten."""
        session = self._by_client.get(producer_id)
        if session is not None and self.now_ms - session.timestamp_ms > self._expiry_ms:
            return None
        return session

    def pass_time(self, timestamp_ms: int) -> None:
        """The log's time goes on; it never falls."""
        if timestamp_ms > self.now_ms:
            self.now_ms = timestamp_ms

    def is_retry(self, batch: RecordBatch) -> bool:
        """Whether a client's batch was applied before."""
        session = self.find(batch.producer_id)
        return session is not None and batch.base_sequence <= session.sequence

    def applied(self, batch: RecordBatch, results: Sequence[Any] | None) -> None:
        """Remember a client's batch."""
        self._by_client[batch.producer_id] = Session(batch.last_sequence, batch.base_offset, self.now_ms, results)

    def entries(self) -> Iterator[tuple[int, Session]]:
        """Every client to remember, for a snapshot; forgets the silent ones."""
        for producer_id in sorted(self._by_client):
            session = self.find(producer_id)
            if session is None:
                del self._by_client[producer_id]
            else:
                yield producer_id, session

    def restore(self, entries: Iterator[tuple[int, Session]] | Sequence[tuple[int, Session]], now_ms: int) -> None:
        """Forget everything, and take over a snapshot's."""
        self._by_client = dict(entries)
        self.now_ms = now_ms


def session_batch_value(session: Session) -> bytes:
    """The one record of a session's batch in a snapshot: where its last proposal was appended."""
    return session.offset.to_bytes(8)


def session_of_batch(batch: RecordBatch) -> tuple[int, Session]:
    """A session from its batch in a snapshot."""
    value = batch.values()[0] or b""
    return batch.producer_id, Session(batch.last_sequence, int.from_bytes(value), batch.max_timestamp_ms)


def producer_id_of(client_id: str | int) -> int:
    """The 63-bit number that stands for a client in the log.

    Args:
        client_id: a number in 0 to 2**63 - 1 stands for itself; a name for its BLAKE2b hash.

    Raises:
        LocalError: out of range.
    """
    if isinstance(client_id, str):
        return int.from_bytes(blake2b(client_id.encode(), digest_size=8).digest()) & _ID_MASK
    if not 0 <= client_id <= _ID_MASK:
        raise LocalError(f"client id {client_id} is not in 0 to 2**63 - 1")
    return client_id
