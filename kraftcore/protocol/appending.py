"""How a client appends to a quorum's log: Produce with one batch, numbered so that it may be repeated."""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.core.batch import build_batch
from kraftcore.core.uuid import Uuid
from kraftcore.errors import RefusedError, RemoteProtocolError, SequenceError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse

_SEQUENCE = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
ALL = -1  # acks: answer when every in-sync replica has it


def append_request(
    values: Sequence[bytes],
    *,
    topic: str,
    topic_id: Uuid,
    client_id: int,
    client_epoch: int = 0,
    sequence: int,
    timestamp_ms: int,
    timeout_ms: int,
) -> ProduceRequest:
    """Ask for records to be appended in one batch, and for an answer when they are committed.

    Args:
        values: of the records, none empty.
        topic: the log's name.
        topic_id: and id; which of them counts depends on the version.
        client_id: who asks, 0 to 2**63 - 1.
        client_epoch: 0 to 32767; a later one begins with sequence 0 again.
        sequence: of the first record, 0 to 2**31 - 1; a request repeated with both is carried out once.
        timestamp_ms: of the records, milliseconds since 1970.
        timeout_ms: how long to wait for the commit.

    Raises:
        LocalError: a number out of range.
    """
    batch = build_batch(
        values,
        timestamp_ms=timestamp_ms,
        producer_id=client_id,
        producer_epoch=client_epoch,
        base_sequence=sequence,
    )
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=ALL, timeout_ms=timeout_ms, topic_data=[data(name=topic, topic_id=topic_id, partition_data=[part])]
    )


def append_answer(response: ProduceResponse) -> ProduceResponse.TopicProduceResponse.PartitionProduceResponse:
    """What an answer to `append_request` says.

    Raises:
        RemoteProtocolError: it is not about one partition.
    """
    found = [part for topic in response.responses for part in topic.partition_responses]
    if len(found) != 1:
        raise RemoteProtocolError(f"the answer to an append is about {len(found)} partitions, not one")
    return found[0]


def append_refusal(part: ProduceResponse.TopicProduceResponse.PartitionProduceResponse) -> RefusedError:
    """Why records were refused; for the client's numbers a `SequenceError`."""
    error = ErrorCode.of(part.error_code)
    kind = SequenceError if error in _SEQUENCE else RefusedError
    return kind(error.name, part.error_message or error.message or "")
