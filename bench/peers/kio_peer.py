"""kio: record batches and every message in Python, its readers and writers partly compiled."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench import inputs
from bench.harness import Missing, Operation, loop

try:
    from kio.records.readers import read_batch
    from kio.records.schema import NewRecordBatch, Record
    from kio.records.writers import write_new_batch
    from kio.schema.errors import ErrorCode
    from kio.schema.fetch.v17 import request as fetch_request
    from kio.schema.fetch.v17 import response as fetch_response
    from kio.schema.request_header.v2.header import RequestHeader
    from kio.schema.response_header.v1.header import ResponseHeader
    from kio.serial import entity_reader, entity_writer

    NAME = f"kio {version('kio')}"
except (ImportError, PackageNotFoundError):
    NAME = "kio"
    read_batch = None


def _require() -> None:
    if read_batch is None:
        raise Missing("pip install '.[bench]' brings kio")


def encode(records: int, size: int) -> Operation:
    """Build a batch from a list of values; kio wants a Record object for each."""
    _require()
    content = inputs.values(records, size)
    timestamp = datetime.datetime.fromtimestamp(inputs.TIMESTAMP_MS / 1000, datetime.UTC)

    def call() -> bytes:
        entries = tuple(
            Record(attributes=0, timestamp=timestamp, offset=delta, key=None, value=value, headers=())
            for delta, value in enumerate(content)
        )
        out = io.BytesIO()
        write_new_batch(
            out,
            NewRecordBatch(producer_id=-1, producer_epoch=-1, base_sequence=-1, records=entries, attributes=0),
        )
        return out.getvalue()

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
        position, end = 0, len(encoded)
        while position < end:
            batch, read = read_batch(encoded, position)
            position += read
            for record in batch.records:
                record.offset  # noqa: B018
                record.value  # noqa: B018

    return Operation(loop(call), lambda: inputs.digest_of_records(_records(encoded)))


def _records(encoded: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(encoded):
        batch, read = read_batch(encoded, position)
        position += read
        for record in batch.records:
            yield record.offset, record.value


def _exchange(header: Any, body: Any) -> tuple[Callable[[], bytes], Callable[[bytes], tuple[Any, Any]]]:
    write_header, write_body = entity_writer(type(header)), entity_writer(type(body))
    read_header, read_body = entity_reader(type(header)), entity_reader(type(body))

    def encode() -> bytes:
        out = io.BytesIO()
        write_header(out, header)
        write_body(out, body)
        return out.getvalue()

    def decode(data: bytes) -> tuple[Any, Any]:
        got, position = read_header(data, 0)
        return got, read_body(data, position)[0]

    return encode, decode


def _request() -> tuple[Any, Any]:
    partition = fetch_request.FetchPartition(
        partition=0,
        current_leader_epoch=inputs.LEADER_EPOCH,
        fetch_offset=inputs.FETCH_OFFSET,
        last_fetched_epoch=inputs.LEADER_EPOCH,
        log_start_offset=-1,
        partition_max_bytes=0,
        replica_directory_id=inputs.DIRECTORY_ID,
    )
    body = fetch_request.FetchRequest(
        cluster_id=inputs.CLUSTER_ID,
        replica_state=fetch_request.ReplicaState(replica_id=inputs.REPLICA_ID, replica_epoch=inputs.REPLICA_EPOCH),
        max_wait=datetime.timedelta(milliseconds=inputs.MAX_WAIT_MS),
        min_bytes=0,
        max_bytes=inputs.MAX_BYTES,
        topics=(fetch_request.FetchTopic(topic_id=inputs.TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    header = RequestHeader(
        request_api_key=1,
        request_api_version=inputs.FETCH_VERSION,
        correlation_id=inputs.CORRELATION_ID,
        client_id=inputs.CLIENT_ID,
    )
    return header, body


def _response() -> tuple[Any, Any]:
    partition = fetch_response.PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=inputs.HIGH_WATERMARK,
        last_stable_offset=-1,
        log_start_offset=0,
        aborted_transactions=None,
        records=inputs.one_batch(inputs.FETCH_RECORDS, 100),
    )
    body = fetch_response.FetchResponse(
        throttle_time=datetime.timedelta(0),
        error_code=ErrorCode.none,
        session_id=0,
        responses=(fetch_response.FetchableTopicResponse(topic_id=inputs.TOPIC_ID, partitions=(partition,)),),
    )
    return ResponseHeader(correlation_id=inputs.CORRELATION_ID), body


def _encode_operation(message: Callable[[], tuple[Any, Any]]) -> Operation:
    _require()
    encode, _ = _exchange(*message())
    return Operation(loop(encode), lambda: inputs.digest_of_bytes(encode()))


def _decode_operation(message: Callable[[], tuple[Any, Any]], encoded: bytes) -> Operation:
    _require()
    _, decode = _exchange(*message())
    return Operation(
        loop(lambda: decode(encoded)),
        lambda: inputs.digest_of_bytes(_exchange(*decode(encoded))[0]()),
    )


def fetch_request_encode() -> Operation:
    """Serialise existing entities, header included."""
    return _encode_operation(_request)


def fetch_request_decode() -> Operation:
    """Parse header and body into entities."""
    return _decode_operation(_request, inputs.fetch_request())


def fetch_response_encode() -> Operation:
    """Serialise existing entities, header included."""
    return _encode_operation(_response)


def fetch_response_decode() -> Operation:
    """Parse header and body into entities."""
    return _decode_operation(_response, inputs.fetch_response())
