"""kraftcore's wire codec."""

from __future__ import annotations

from bench import inputs
from bench.harness import Operation, loop
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.frames import decode_request, decode_response, encode_request, encode_response
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse

API_KEY = 1


def _request() -> FetchRequest:
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=0,
        current_leader_epoch=inputs.LEADER_EPOCH,
        fetch_offset=inputs.FETCH_OFFSET,
        last_fetched_epoch=inputs.LEADER_EPOCH,
        log_start_offset=-1,
        partition_max_bytes=0,
        replica_directory_id=Uuid(inputs.DIRECTORY_ID.bytes),
    )
    return FetchRequest(
        cluster_id=inputs.CLUSTER_ID,
        replica_state=FetchRequest.ReplicaState(replica_id=inputs.REPLICA_ID, replica_epoch=inputs.REPLICA_EPOCH),
        max_wait_ms=inputs.MAX_WAIT_MS,
        min_bytes=0,
        max_bytes=inputs.MAX_BYTES,
        topics=[topic(topic_id=Uuid(inputs.TOPIC_ID.bytes), partitions=[partition])],
    )


def _response() -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData(
        partition_index=0,
        high_watermark=inputs.HIGH_WATERMARK,
        last_stable_offset=-1,
        log_start_offset=0,
        aborted_transactions=None,
        records=inputs.one_batch(inputs.FETCH_RECORDS, 100),
    )
    return FetchResponse(responses=[topic(topic_id=Uuid(inputs.TOPIC_ID.bytes), partitions=[partition])])


def fetch_request_encode() -> Operation:
    """Serialise an existing message object, header included."""
    message = _request()

    def call() -> bytes:
        return encode_request(message, inputs.FETCH_VERSION, inputs.CORRELATION_ID, inputs.CLIENT_ID)

    return Operation(loop(call), lambda: inputs.digest_of_bytes(call()))


def fetch_request_decode() -> Operation:
    """Parse header and body into objects."""
    encoded = inputs.fetch_request()

    def digest() -> str:
        header, message = decode_request(encoded)
        return inputs.digest_of_bytes(
            encode_request(message, header.request_api_version, header.correlation_id, header.client_id)
        )

    return Operation(loop(lambda: decode_request(encoded)), digest)


def fetch_response_encode() -> Operation:
    """Serialise an existing message object, header included, into one bytes object (the records are copied)."""
    message = _response()

    def call() -> bytes:
        return encode_response(message, inputs.FETCH_VERSION, inputs.CORRELATION_ID)

    return Operation(loop(call), lambda: inputs.digest_of_bytes(call()))


def fetch_response_decode() -> Operation:
    """Parse header and body into objects; records are a view."""
    encoded = inputs.fetch_response()

    def digest() -> str:
        header, message = decode_response(encoded, API_KEY, inputs.FETCH_VERSION)
        return inputs.digest_of_bytes(encode_response(message, inputs.FETCH_VERSION, header.correlation_id))

    return Operation(loop(lambda: decode_response(encoded, API_KEY, inputs.FETCH_VERSION)), digest)
