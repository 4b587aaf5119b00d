"""Preparing a client's batch for the log: it is checked, and gets the times and the codec that its topic asks for.

The event loop prepares as much of a request as takes some milliseconds; a thread prepares the rest (``heavy_steps``).
A batch that decompresses to more than ``DEFAULT_MAX_DECOMPRESSED_BYTES``, which Kafka would take, is INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.core.batch import BatchTotals, RecordBatch, validate_batches
from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from kraftcore.errors import CorruptBatchError, KraftError, OversizedBatchError
from kraftcore.plugins.broker.api.arrival import BatchRules, Part, Prepared
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.work.heavy_steps import COMPRESSING, LoopRoom
from kraftcore.plugins.broker.work.turns import ITEMS
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.topics import TopicPartition

_LENGTH_POSITION = 8


def prepare_here(parts: Sequence[Part], wall_ms: int, room: LoopRoom) -> bool:
    """Prepare the batches of a request on the event loop while ``room`` lasts; return whether all were prepared."""
    if len(parts) > ITEMS:
        return False
    for part in parts:
        if part.name is None or part.rules is None:
            part.outcome = _not_led()
            continue
        try:
            prepared = part.outcome = prepare(part.records, part.header, part.rules, part.name, wall_ms, room)
            room.left -= prepared.weight
        except OversizedBatchError:
            return False
        except KraftError as error:
            room.left -= room.most  # up to so many bytes may have been decompressed before the error
            part.outcome = error
    return True


def prepare_aside(parts: Sequence[Part], wall_ms: int) -> None:
    """Prepare the batches of a request that are not prepared yet, however long that takes."""
    for part in parts:
        if part.outcome is None:
            try:
                if part.name is None or part.rules is None:
                    raise _not_led()
                part.outcome = prepare(part.records, part.header, part.rules, part.name, wall_ms)
            except KraftError as error:
                part.outcome = error


def _not_led() -> KraftError:
    return refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition was not led here when the request came")


def prepare(
    records: memoryview,
    header: RecordBatch | None,
    rules: BatchRules,
    name: TopicPartition,
    wall_ms: int,
    room: LoopRoom | None = None,
) -> Prepared:
    """Make the batch that is stored from a client's batch.

    Args:
        records, header, rules, name: see `Part`.
        wall_ms: the time of day, milliseconds since 1970.
        room: how many bytes may be processed on the event loop; None: there is no limit.

    Raises:
        KraftError: the batch cannot be stored.
        OversizedBatchError: preparing the batch takes more than ``room`` has.
    """
    most, weight = DEFAULT_MAX_DECOMPRESSED_BYTES, COMPRESSING if rules.records.recompresses(records) else 1
    if room is not None:
        most = room.batch_bytes // weight
        if len(records) > (room.left if weight == 1 else most):
            raise OversizedBatchError(f"{len(records)} bytes are too many here")
    totals = _check_batch(records, header, rules, most)
    received = bytearray(records)
    batch = rules.records.prepare(received, wall_ms, totals, name)
    if batch is not received:
        _check_size(len(batch), rules)
    append_time_ms = wall_ms if rules.records.has_append_time else -1
    return Prepared(batch, append_time_ms, (len(records) + totals.decompressed) * weight)


def _check_size(size: int, rules: BatchRules) -> None:
    """Refuse a batch with too many bytes.

    Raises:
        RefusedError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE.
    """
    if size > rules.message_max_bytes:
        raise refused(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes: max.message.bytes is {rules.message_max_bytes}"
        )
    if size > rules.segment_bytes:
        raise refused(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes: segment.bytes is {rules.segment_bytes}"
        )


def _check_batch(
    records: memoryview, batch: RecordBatch | None, rules: BatchRules, max_decompressed_bytes: int
) -> BatchTotals:
    """Refuse a batch that clients may not append.

    Args:
        records: the bytes of exactly one batch.
        batch: the fields of the batch; None: the bytes are fewer than a header has.
        rules: the partition's rules for the batch.
        max_decompressed_bytes: the most bytes that the records may decompress to.

    Returns:
        The count, the sizes and the times of the batch's records.

    Raises:
        RefusedError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE.
        OversizedBatchError: the records decompress to more than ``max_decompressed_bytes``.
    """
    base_offset = int.from_bytes(records[:_LENGTH_POSITION], "big", signed=True)
    if base_offset != 0:
        raise refused(ErrorCode.INVALID_RECORD, f"a client's batch with base offset {base_offset}, not 0")
    _check_size(len(records), rules)
    if batch is None:
        raise refused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(records)} bytes is shorter than its header")
    try:
        totals = validate_batches(records, max_decompressed_bytes=max_decompressed_bytes)
    except CorruptBatchError as error:
        if isinstance(error, OversizedBatchError) and max_decompressed_bytes < DEFAULT_MAX_DECOMPRESSED_BYTES:
            raise
        code = ErrorCode.INVALID_RECORD if batch.is_valid else ErrorCode.CORRUPT_MESSAGE
        raise refused(code, str(error)) from None
    if batch.count < 1 or batch.last_offset_delta != batch.count - 1:
        raise refused(ErrorCode.INVALID_RECORD, "the offsets of the batch's records have gaps, or it has none")
    if batch.is_control:
        raise refused(ErrorCode.INVALID_RECORD, "clients do not write control records")
    if batch.is_transactional and not rules.takes_transactions:
        raise refused(ErrorCode.INVALID_RECORD, "this broker takes no batches of transactions")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise refused(
            ErrorCode.INVALID_RECORD, f"sequence {batch.base_sequence} in epoch {batch.producer_epoch} of a producer"
        )
    return totals
