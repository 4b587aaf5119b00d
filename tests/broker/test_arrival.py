"""What a Produce request holds, as it is read when it comes: what all of it is refused for, and what a partition."""

from __future__ import annotations

import pytest
from noted_request import NotedRequest

from kraftcore.core.batch import Compression, build_batch
from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.api.arrival import Arrival
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode as E
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse

Data = ProduceRequest.TopicProduceData
PLAIN = bytes(build_batch([b"v"], timestamp_ms=1))
ZSTD = bytes(build_batch([b"v"], timestamp_ms=1, compression=Compression.ZSTD))
IN_TRANSACTION = bytes(
    build_batch([b"v"], timestamp_ms=1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
)


def changed(batch, **bytes_at):
    found = bytearray(batch)
    for place, value in bytes_at.items():
        found[int(place[2:])] = value
    return bytes(found)


def read(*topics, version=12, transactional_id=None, names=None):
    """An arrival of (name or id, [(index, records), ...]), read, and whether any batch is compressed."""
    data = [
        Data(
            **{"topic_id" if isinstance(topic, Uuid) else "name": topic},
            partition_data=[Data.PartitionProduceData(index=index, records=records) for index, records in parts],
        )
        for topic, parts in topics
    ]
    request = ProduceRequest(transactional_id=transactional_id, topic_data=data)
    arrival = Arrival(request, NotedRequest(version), ProduceResponse(), None)
    return arrival, arrival.read(names or {})


@pytest.mark.parametrize(
    ("records", "version", "error"),
    [
        (PLAIN, 12, None),
        (PLAIN + PLAIN[:40], 12, None),  # what is behind it is no batch
        (None, 12, "INVALID_RECORD"),
        (PLAIN[:-1], 12, "INVALID_RECORD"),
        (PLAIN + PLAIN, 12, "INVALID_RECORD"),
        (changed(PLAIN, at16=1), 12, "INVALID_RECORD"),  # an older format
        (PLAIN + changed(PLAIN, at16=3), 12, "CORRUPT_MESSAGE"),
        (ZSTD, 7, None),
        (ZSTD, 6, "UNSUPPORTED_COMPRESSION_TYPE"),
    ],
)
def test_what_a_partition_is_refused_for(records, version, error):
    arrival, is_compressed = read(("t", [(0, records), (1, PLAIN)]), version=version)
    assert arrival.refusal is E.NONE
    assert is_compressed == (records is ZSTD)
    first, second = arrival.parts
    assert (first.refusal and first.refusal.error, bytes(first.records)) == (
        error,
        b"" if error else records[: len(ZSTD if records is ZSTD else PLAIN)],
    )
    assert (second.refusal, second.header.count) == (None, 1)


@pytest.mark.parametrize(
    ("records", "version", "error"),
    [
        (changed(PLAIN, at16=3), 12, E.CORRUPT_MESSAGE),
        (changed(PLAIN, at11=13, at10=0), 12, E.CORRUPT_MESSAGE),  # shorter than any format
        (IN_TRANSACTION, 12, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (IN_TRANSACTION + PLAIN, 12, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (changed(IN_TRANSACTION, at22=0x10 | Compression.ZSTD), 3, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_what_a_whole_request_is_refused_for(records, version, error):
    arrival, _ = read(("t", [(0, PLAIN), (1, records)]), ("u", [(0, PLAIN)]), version=version)
    assert arrival.refusal is error
    assert [part.name for part in arrival.parts] == [("t", 0), ("t", 1), ("u", 0)]
    assert read(("t", [(0, IN_TRANSACTION)]), transactional_id="x")[0].refusal is E.NONE


def test_of_a_partition_that_is_named_twice_the_last_batch_counts():
    arrival, _ = read(("t", [(0, PLAIN), (1, PLAIN)]), ("u", []), ("t", [(0, ZSTD)]))
    assert [(part.name, bytes(part.records)) for part in arrival.parts] == [(("t", 0), ZSTD), (("t", 1), PLAIN)]
    assert [topic.name for topic in arrival.response.responses] == ["t", "u"]
    assert arrival.size == len(ZSTD) + len(PLAIN)


def test_a_topic_is_known_by_its_id_from_version_13_on():
    known, unknown = Uuid(b"k" * 16), Uuid(b"u" * 16)
    arrival, _ = read((known, [(0, PLAIN)]), (unknown, [(0, PLAIN)]), version=13, names={known: "t"})
    assert [part.name for part in arrival.parts] == [TopicPartition("t", 0), None]
    assert [topic.topic_id for topic in arrival.response.responses] == [known, unknown]
