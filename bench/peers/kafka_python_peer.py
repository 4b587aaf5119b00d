"""kafka-python: record batches in pure Python over the crc32c package, messages by generated Python code."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from bench import inputs
from bench.harness import Missing, Operation, loop

try:
    from kafka.protocol.consumer import FetchRequest, FetchResponse
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

    NAME = f"kafka-python {version('kafka-python')}"
except (ImportError, PackageNotFoundError):
    NAME = "kafka-python"
    DefaultRecordBatch = None


def _require() -> None:
    if DefaultRecordBatch is None:
        raise Missing("pip install '.[bench]' brings kafka-python")


def encode(records: int, size: int) -> Operation:
    """Build a batch from a list of values."""
    _require()
    content = inputs.values(records, size)
    timestamp = inputs.TIMESTAMP_MS

    def call() -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
        append = builder.append
        for delta, value in enumerate(content):
            append(delta, timestamp, None, value, [])
        return builder.build()

    return Operation(loop(call), lambda: inputs.digest_of_batch(call()))


def decode_objects(records: int, size: int) -> Operation:
    """Check one batch's CRC and visit its records as Python objects."""
    _require()
    return _decode(inputs.one_batch(records, size))


def decode(records: int, size: int) -> Operation:
    """The same over a buffer of many batches."""
    _require()
    return _decode(inputs.stream(records, size)[0])


def _decode(encoded: bytes) -> Operation:
    def call() -> None:
        batches = MemoryRecords(encoded)
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("checksum")
            for record in batch:
                record.offset  # noqa: B018
                record.value  # noqa: B018

    return Operation(loop(call), lambda: inputs.digest_of_records(_records(encoded)))


def _records(encoded: bytes) -> Iterator[tuple[int, bytes]]:
    batches = MemoryRecords(encoded)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("checksum")
        for record in batch:
            yield record.offset, bytes(record.value)


def _request() -> FetchRequest:
    topic, partition = FetchRequest.FetchTopic, FetchRequest.FetchTopic.FetchPartition
    message = FetchRequest(
        cluster_id=inputs.CLUSTER_ID,
        replica_state=FetchRequest.ReplicaState(replica_id=inputs.REPLICA_ID, replica_epoch=inputs.REPLICA_EPOCH),
        max_wait_ms=inputs.MAX_WAIT_MS,
        min_bytes=0,
        max_bytes=inputs.MAX_BYTES,
        session_epoch=-1,
        topics=[
            topic(
                topic_id=inputs.TOPIC_ID,
                partitions=[
                    partition(
                        partition=0,
                        current_leader_epoch=inputs.LEADER_EPOCH,
                        fetch_offset=inputs.FETCH_OFFSET,
                        last_fetched_epoch=inputs.LEADER_EPOCH,
                        log_start_offset=-1,
                        partition_max_bytes=0,
                        replica_directory_id=inputs.DIRECTORY_ID,
                    )
                ],
            )
        ],
        version=inputs.FETCH_VERSION,
    )
    message.with_header(correlation_id=inputs.CORRELATION_ID, client_id=inputs.CLIENT_ID)
    return message


def fetch_request_encode() -> Operation:
    """Serialise an existing message object, header included."""
    _require()
    message = _request()

    def call() -> bytes:
        return message.encode(header=True)

    return Operation(loop(call), lambda: inputs.digest_of_bytes(call()))


def fetch_request_decode() -> Operation:
    """Parse header and body into objects."""
    _require()
    encoded = inputs.fetch_request()

    def call() -> FetchRequest:
        return FetchRequest.decode(encoded, version=inputs.FETCH_VERSION, header=True)

    def digest() -> str:
        message = call()
        message.with_header(correlation_id=message.header.correlation_id, client_id=message.header.client_id)
        return inputs.digest_of_bytes(message.encode(version=inputs.FETCH_VERSION, header=True))

    return Operation(loop(call), digest)


def fetch_response_encode() -> Operation:
    """Serialise an existing message object, header included."""
    _require()
    topic = FetchResponse.FetchableTopicResponse
    message = FetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[
            topic(
                topic_id=inputs.TOPIC_ID,
                partitions=[
                    topic.PartitionData(
                        partition_index=0,
                        error_code=0,
                        high_watermark=inputs.HIGH_WATERMARK,
                        last_stable_offset=-1,
                        log_start_offset=0,
                        aborted_transactions=None,
                        preferred_read_replica=-1,
                        records=inputs.one_batch(inputs.FETCH_RECORDS, 100),
                    )
                ],
            )
        ],
        version=inputs.FETCH_VERSION,
    )
    message.with_header(correlation_id=inputs.CORRELATION_ID)

    def call() -> bytes:
        return message.encode(header=True)

    return Operation(loop(call), lambda: inputs.digest_of_bytes(call()))


def fetch_response_decode() -> Operation:
    """Parse header and body into objects."""
    _require()
    encoded = inputs.fetch_response()

    def call() -> FetchResponse:
        return FetchResponse.decode(encoded, version=inputs.FETCH_VERSION, header=True)

    def digest() -> str:
        message = call()
        header = struct.pack(">ib", message.header.correlation_id, 0)
        message._header = None  # it would have to know the request's version to encode itself
        return inputs.digest_of_bytes(header + message.encode(version=inputs.FETCH_VERSION))

    return Operation(loop(call), digest)
