"""Metadata records, appended through a kraftcore leader as a Kafka producer would, and logs held against each other."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from kafka_lab import HOST, KafkaNode
from partition_files import batches

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.registry import api_of

METADATA_VERSION = 30  # of Kafka 4.3; its controllers refuse a log that does not begin with it
TOPIC = 2


def opening() -> bytes:
    """The record without which Kafka's controllers do not take a log."""
    return encode_metadata_record(FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION), 0)


def setting(number: int) -> bytes:
    """One of a hundred topics' settings."""
    record = ConfigRecord(
        resource_type=TOPIC, resource_name=f"t{number % 100}", name="retention.ms", value=str(1000 + number)
    )
    return encode_metadata_record(record, 0)


def propose(leader: KafkaNode, *values: bytes) -> int:
    """Append records in one batch; returns the first one's offset when they are committed."""
    _, _, version = api_of(ProduceRequest)
    data = ProduceRequest.TopicProduceData
    batch = build_batch(list(values), timestamp_ms=time.time_ns() // 1_000_000)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            data(
                topic_id=METADATA_TOPIC_ID,
                partition_data=[data.PartitionProduceData(index=0, records=batch)],
            )
        ],
    )
    frame = encode_request(request, version, correlation_id=1)
    with socket.create_connection((HOST, leader.port), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(answers.read(4), "big")
        response = decode_response(answers.read(size), api_of(ProduceRequest).key, version)[1]
    (part,) = response.responses[0].partition_responses
    assert part.error_code == 0, part
    return int(part.base_offset)


def log_folder(node: KafkaNode) -> Path:
    return node.folder / "__cluster_metadata-0"


def log_of(node: KafkaNode) -> dict[int, bytes]:
    """The whole batches in a node's segments, by base offset."""
    return batches(log_folder(node))


def end_offset(node: KafkaNode) -> int:
    held = log_of(node)
    if not held:
        return 0
    (batch,) = iter_batches(held[max(held)])
    return int(batch.next_offset)
