"""Sessions: which retried proposals were applied already.

A client whose proposal got no answer cannot know whether the proposal was applied. It may send the proposal again if it
names itself (client id) and numbers its records (sequence). Both are in the header of the proposal's own batch, in the
fields that Kafka has for idempotent producers, so every replica sees them in the log.

Every replica follows these rules when it applies a numbered batch, so all replicas decide the same:

* A batch that begins where the client's last one ended is new, and is applied. So is every batch of a client that is
  not known, and a batch that begins with 0 in a later epoch of the client.
* The client's last batch again, with the same numbers and the same records, is a retry: it is not applied, and is
  answered as it was the first time.
* Every other batch is refused and not applied: numbers used before, numbers left out, an earlier epoch.

The table of clients is part of every snapshot. A client that has proposed nothing for the expiry time, by the log's own
timestamps, is forgotten, and leaves the table with the next numbered batch; the same records make every replica forget
the same clients.

A client has one proposal in flight at a time. Source: the sessions of Raft's dissertation, 6.3; the errors of KIP-98; a
producer's epochs as in KIP-360. Unlike Kafka, only the last batch of a client is known as a retry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from kraftcore.core.batch import RecordBatch, build_batch
from kraftcore.core.batch.layout import HEADER_BYTES
from kraftcore.errors import LocalError, SequenceError
from kraftcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from typing_extensions import Buffer

SEQUENCE_MAX = 2**31 - 1
_ID_MASK = 2**63 - 1
_DIGEST_BYTES = 8


@dataclass(slots=True)
class Session:
    """What is remembered of a client.

    Attributes:
        epoch: of the client's last proposal.
        sequence: of the last record in that proposal.
        digest: of that proposal's records; empty if a snapshot did not have one.
        offset: at which that proposal was first appended.
        timestamp_ms: the log's time then.
        results: of the state machine for that proposal; None after a restart.
    """

    epoch: int
    sequence: int
    digest: bytes
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
        self._by_client: OrderedDict[int, Session] = OrderedDict()  # the longest silent first
        self.now_ms = 0  # the largest timestamp applied

    def __len__(self) -> int:
        return len(self._by_client)

    def find(self, producer_id: int) -> Session | None:
        """The session of a client; None if the client is not known, or is forgotten."""
        session = self._by_client.get(producer_id)
        return None if session is None or self._is_forgotten(session) else session

    def _is_forgotten(self, session: Session) -> bool:
        return self.now_ms - session.timestamp_ms > self._expiry_ms

    def pass_time(self, timestamp_ms: int) -> None:
        """Move the log's time on; an earlier time changes nothing."""
        if timestamp_ms > self.now_ms:
            self.now_ms = timestamp_ms

    def admit(self, producer_id: int, epoch: int, first: int, last: int, digest: bytes) -> Session | None:
        """Decide on a client's proposal after everything that is applied.

        Args:
            producer_id: the client's number.
            epoch: its epoch.
            first: the sequence of the proposal's first record.
            last: the sequence of its last record.
            digest: of its records, see `digest_of`.

        Returns:
            None: apply the proposal. Else the proposal is a retry, and this session says what was applied.

        Raises:
            SequenceError: the proposal must not be applied.
        """
        session = self.find(producer_id)
        if session is None:
            return None
        if _is_used(session, epoch, first):
            return _retried(session, producer_id, epoch, first, last, digest)
        wanted = session.sequence + 1 if epoch == session.epoch else 0
        if first != wanted:
            text = f"left out are {wanted} to {first - 1}: begin with {wanted}"
            raise _refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, session, producer_id, epoch, first, text)
        return None

    def seen(self, producer_id: int, epoch: int, first: int, values: Sequence[bytes]) -> Session | None:
        """Look, before a proposal is appended, whether it has been applied.

        Numbers that were left out are not refused here but in ``admit``: the client's earlier proposal may be in the
        log and not applied yet.

        Returns:
            The session, if the proposal is a retry; None if it is new, as far as is known here.

        Raises:
            SequenceError: the numbers were used for other records.
        """
        session = self.find(producer_id)
        if session is None or not _is_used(session, epoch, first):
            return None
        return _retried(session, producer_id, epoch, first, first + len(values) - 1, digest_of_values(values))

    def applied(self, batch: RecordBatch, digest: bytes, results: Sequence[Any] | None) -> None:
        """Remember a client's batch, and drop the clients that are forgotten."""
        by_client = self._by_client
        by_client[batch.producer_id] = Session(
            batch.producer_epoch, batch.last_sequence, digest, batch.base_offset, self.now_ms, results
        )
        by_client.move_to_end(batch.producer_id)
        while self._is_forgotten(by_client[next(iter(by_client))]):
            by_client.popitem(last=False)

    def entries(self) -> Iterator[tuple[int, Session]]:
        """Every client that is not forgotten, by number, for a snapshot."""
        for producer_id in sorted(self._by_client):
            session = self.find(producer_id)
            if session is not None:
                yield producer_id, session

    def restore(self, entries: Iterable[tuple[int, Session]], now_ms: int) -> None:
        """Forget all clients, and take over those of a snapshot."""
        self._by_client = OrderedDict(sorted(entries, key=lambda entry: entry[1].timestamp_ms))
        self.now_ms = now_ms


def digest_of(batch: Buffer) -> bytes:
    """A digest of a batch's records; it does not depend on offset, time and client."""
    return blake2b(memoryview(batch)[HEADER_BYTES:], digest_size=_DIGEST_BYTES).digest()


def digest_of_values(values: Sequence[bytes]) -> bytes:
    """As `digest_of`, of the batch that these values will be."""
    return digest_of(build_batch(values, timestamp_ms=0))


def _is_used(session: Session, epoch: int, first: int) -> bool:
    return epoch < session.epoch or (epoch == session.epoch and first <= session.sequence)


def _retried(session: Session, producer_id: int, epoch: int, first: int, last: int, digest: bytes) -> Session:
    if epoch < session.epoch:
        text = f"it is in epoch {session.epoch} by now: its next one begins with {session.sequence + 1}"
        raise _refusal(ErrorCode.INVALID_PRODUCER_EPOCH, session, producer_id, epoch, first, text)
    if last == session.sequence and session.digest in (digest, b""):
        return session
    what = "other records had" if last == session.sequence else "the client has gone beyond"
    text = f"{what} this number; its next one begins with {session.sequence + 1}"
    raise _refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, session, producer_id, epoch, first, text)


def _refusal(code: ErrorCode, session: Session, producer_id: int, epoch: int, first: int, reason: str) -> SequenceError:
    text = (
        f"client {producer_id} proposes with sequence {first} in epoch {epoch}; its last proposal ended with sequence "
        f"{session.sequence} in epoch {session.epoch}, at offset {session.offset}; {reason}. Nothing was applied"
    )
    return SequenceError(code.name, text, session.sequence + 1 if epoch <= session.epoch else 0)


def session_batch_value(session: Session) -> bytes:
    """The one record of a session's batch in a snapshot: offset and digest of the client's last proposal."""
    return session.offset.to_bytes(8) + session.digest


def session_of_batch(batch: RecordBatch) -> tuple[int, Session]:
    """A session from its batch in a snapshot."""
    value = batch.values()[0] or b""
    offset, digest = int.from_bytes(value[:8]), value[8:]
    session = Session(batch.producer_epoch, batch.last_sequence, digest, offset, batch.max_timestamp_ms)
    return batch.producer_id, session


def producer_id_of(client_id: str | int) -> int:
    """The 63-bit number that stands for a client in the log.

    Args:
        client_id: a number in 0 to 2**63 - 1 stands for itself; a name for its BLAKE2b hash.

    Raises:
        LocalError: out of range.
    """
    if isinstance(client_id, str):
        return int.from_bytes(blake2b(client_id.encode(), digest_size=8).digest()) & _ID_MASK
    if not isinstance(client_id, int):
        raise LocalError(f"client id {client_id!r} is neither a text nor an int")
    if not 0 <= client_id <= _ID_MASK:
        raise LocalError(f"client id {client_id} is not in 0 to 2**63 - 1")
    return client_id


def numbering(client_id: str | int | None, sequence: int | None, count: int) -> tuple[int, int] | None:
    """A client's number in the log, and the sequence of its first record; None if the caller gave neither.

    Args:
        client_id: see `producer_id_of`.
        sequence: of the first record.
        count: how many records there are.

    Raises:
        LocalError: only one of the two was given, or one is out of range.
    """
    if (client_id is None) != (sequence is None):
        raise LocalError("client_id and sequence come together: give both, or neither")
    if client_id is None or sequence is None:
        return None
    if not isinstance(sequence, int):
        raise LocalError(f"sequence {sequence!r} is not an int")
    if not 0 <= sequence <= SEQUENCE_MAX - count:
        raise LocalError(f"sequence {sequence} is not in 0 to {SEQUENCE_MAX - count}: take another client id")
    return producer_id_of(client_id), sequence
