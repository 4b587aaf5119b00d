"""Batches of clients as they are to be stored: checked, with times and codec as their topic wants them.

Of a request as much is done on the loop as takes some milliseconds; if that is not enough, all of it is done aside. No
more than ``DEFAULT_MAX_DECOMPRESSED_BYTES`` come out of a batch; where Kafka has no such limit, it is INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kraftcore.core.batch import BatchTotals, RecordBatch, validate_batches
from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from kraftcore.errors import CorruptBatchError, KraftError, OversizedBatchError
from kraftcore.plugins.broker.api.record_rules import RecordRules
from kraftcore.plugins.broker.heavy import COMPRESSING, LoopRoom
from kraftcore.plugins.broker.partition.state import TopicPartition, refused
from kraftcore.plugins.broker.turns import ITEMS
from kraftcore.protocol.error_codes import ErrorCode

_LENGTH_POSITION = 8


class BatchLimits(NamedTuple):
    """How large a client's batch may be, in bytes.

    Attributes:
        message_max_bytes: ``max.message.bytes`` of the topic.
        segment_bytes: ``segment.bytes`` of the log.
    """

    message_max_bytes: int
    segment_bytes: int


class Unprepared(NamedTuple):
    """A batch as it came.

    Attributes:
        records: exactly one batch.
        limits: of its size.
        rules: what its topic asks of records.
        takes_transactions: whether it may be one of a transaction.
        name: of the partition, for refusals.
    """

    records: memoryview
    limits: BatchLimits
    rules: RecordRules
    takes_transactions: bool
    name: TopicPartition


class Prepared(NamedTuple):
    """A batch as it is to be stored.

    Attributes:
        batch: it.
        append_time_ms: the time of all its records where the leader's clock counts; else -1.
        weight: for how many bytes it counts that were looked at.
    """

    batch: bytearray
    append_time_ms: int
    weight: int


Outcome: TypeAlias = Prepared | KraftError
"""What became of a batch: it can be stored, or why not."""


def prepare_here(parts: Sequence[Unprepared | None], wall_ms: int, room: LoopRoom) -> list[Outcome] | None:
    """Prepare the batches of a request on the loop, those that are led here; None: there is no room for it."""
    if len(parts) > ITEMS:
        return None
    found: list[Outcome] = []
    for part in parts:
        if part is None:
            found.append(_not_led())
            continue
        try:
            prepared = prepare(*part, wall_ms, room)
            room.left -= prepared.weight
            found.append(prepared)
        except OversizedBatchError:
            return None
        except KraftError as error:
            room.left -= room.most  # so much may have been looked at
            found.append(error)
    return found


def prepare_aside(parts: Sequence[Unprepared | None], wall_ms: int, found: list[Outcome]) -> None:
    """Prepare the batches of a request, however long that takes."""
    for part in parts:
        try:
            found.append(_not_led() if part is None else prepare(*part, wall_ms))
        except KraftError as error:
            found.append(error)


def _not_led() -> KraftError:
    return refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition was not led here when the request came")


def prepare(
    records: memoryview,
    limits: BatchLimits,
    rules: RecordRules,
    takes_transactions: bool,
    name: TopicPartition,
    wall_ms: int,
    room: LoopRoom | None = None,
) -> Prepared:
    """A batch as it is to be stored.

    Args:
        records, limits, rules, takes_transactions, name: see `Unprepared`.
        wall_ms: the time.
        room: for it on the loop; None: it may take any time.

    Raises:
        KraftError: it cannot be stored.
        OversizedBatchError: it takes more than there is room for.
    """
    most, weight = DEFAULT_MAX_DECOMPRESSED_BYTES, COMPRESSING if rules.recompresses(records) else 1
    if room is not None:
        most = room.batch_bytes // weight
        if len(records) > (room.left if weight == 1 else most):
            raise OversizedBatchError(f"{len(records)} bytes are too many here")
    totals = _check_batch(records, limits, most, takes_transactions=takes_transactions)
    received = bytearray(records)
    batch = rules.prepare(received, wall_ms, totals, name)
    if batch is not received:
        _check_size(len(batch), limits)
    append_time_ms = wall_ms if rules.has_append_time else -1
    return Prepared(batch, append_time_ms, (len(records) + totals.decompressed) * weight)


def _check_size(size: int, limits: BatchLimits) -> None:
    """See that a batch of so many bytes may be appended.

    Raises:
        RefusedError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE.
    """
    if size > limits.message_max_bytes:
        raise refused(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes: max.message.bytes is {limits.message_max_bytes}"
        )
    if size > limits.segment_bytes:
        raise refused(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes: segment.bytes is {limits.segment_bytes}"
        )


def _check_batch(
    records: memoryview, limits: BatchLimits, max_decompressed_bytes: int, *, takes_transactions: bool
) -> BatchTotals:
    """See that a client's batch may be appended.

    Args:
        records: exactly one batch.
        limits: of its size.
        max_decompressed_bytes: of its records.
        takes_transactions: whether it may be one of a transaction.

    Returns:
        What it holds.

    Raises:
        RefusedError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE.
        OversizedBatchError: there is more in it than may be decompressed here.
    """
    base_offset = int.from_bytes(records[:_LENGTH_POSITION], "big", signed=True)
    if base_offset != 0:
        raise refused(ErrorCode.INVALID_RECORD, f"a client's batch with base offset {base_offset}, not 0")
    _check_size(len(records), limits)
    try:
        batch = RecordBatch(records, verify=False)
    except CorruptBatchError as error:  # shorter than a batch's header
        raise refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    try:
        totals = validate_batches(records, max_decompressed_bytes=max_decompressed_bytes)
    except CorruptBatchError as error:
        if isinstance(error, OversizedBatchError) and max_decompressed_bytes < DEFAULT_MAX_DECOMPRESSED_BYTES:
            raise
        code = ErrorCode.INVALID_RECORD if batch.is_valid else ErrorCode.CORRUPT_MESSAGE
        raise refused(code, str(error)) from None
    if batch.count < 1 or batch.last_offset_delta != batch.count - 1:
        raise refused(ErrorCode.INVALID_RECORD, "not one or more records without gaps")
    if batch.is_control:
        raise refused(ErrorCode.INVALID_RECORD, "clients do not write control records")
    if batch.is_transactional and not takes_transactions:
        raise refused(ErrorCode.INVALID_RECORD, "batches of transactions are not taken")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise refused(
            ErrorCode.INVALID_RECORD, f"sequence {batch.base_sequence} in epoch {batch.producer_epoch} of a producer"
        )
    return totals
