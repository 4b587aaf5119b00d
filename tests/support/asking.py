"""What clients ask of a broker's partition 0 in tests, one request a connection."""

from __future__ import annotations

from typing import Any, Literal

import trio

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.transports.memory import MemoryTransport

PRODUCE_VERSION, FETCH_VERSION = 9, 12


async def ask(
    transport: MemoryTransport, address: Address, request: Any, version: int, number: int, client_id: str
) -> Any:
    """Send a request; the answer, or a `Failure`."""
    answers: list[bytes | Failure] = []
    came = trio.Event()

    def done(frame: bytes | Failure) -> None:
        answers.append(frame)
        came.set()

    transport.request(address, encode_request_parts(request, version, number, client_id), 60_000, done)
    with trio.fail_after(60):
        await came.wait()
    if isinstance(answers[0], Failure):
        return answers[0]
    return decode_response(answers[0], type(request).schema.api_key, version)[1]


def produce_request(
    *values: bytes,
    acks: int = -1,
    topic: str = "t",
    timeout_ms: int = 30_000,
    records: bytes | bytearray | Literal["of values"] | None = "of values",
) -> ProduceRequest:
    """One batch of these values, or these bytes as they are."""
    kind = ProduceRequest.TopicProduceData
    batch = build_batch(list(values), timestamp_ms=1) if records == "of values" else records
    data = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def produced(answer: Any) -> Any:
    """The partition's part of an answer; a `Failure` as it is."""
    return answer if isinstance(answer, Failure) else answer.responses[0].partition_responses[0]


def fetch_request(offset: int = 0, topic: str = "t", wait_ms: int = 0, min_bytes: int = 1, **more: Any) -> FetchRequest:
    """From an offset on."""
    kind = FetchRequest.FetchTopic
    asked = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [kind(topic=topic, partitions=[asked])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=topics, **more)


def fetched(answer: Any) -> Any:
    """The partition's part of an answer; an answer without one as it is."""
    return answer.responses[0].partitions[0] if answer.responses else answer


def values_in(partition: Any) -> list[bytes | None]:
    """Of all records that a partition's part has."""
    assert partition.error_code == 0, partition
    return [value for batch in iter_batches(bytes(partition.records)) for value in batch.values()]
