"""Answers as plain values, without what two brokers may rightly do differently."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from broker_twin.side import Side
from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import CorruptDataError
from kraftcore.protocol.schema import Struct

LEFT_OUT = {
    "throttle_time_ms",
    "unknown_tagged_fields",
    "total_bytes",
    "usable_bytes",
    "cordoned_log_dirs",
    "partition_size",
    "cluster_id",
}
MAY_BE_NULL = {"aborted_transactions"}  # where there are none
MESSAGES = {"error_message", "batch_index_error_message"}
DAY_MS = 86_400_000
MEMBER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ORDERED_BY = (
    "node_id",
    "name",
    "topic",
    "topic_id",
    "topic_name",
    "group_id",
    "key",
    "partition_index",
    "partition",
    "index",
    "member_id",
    "producer_id",
    "resource_type",
    "resource_name",
)
IN_ORDER = {"batches", "record_errors"}


def plain(value: Any, side: Side, field: str = "") -> Any:
    """Any part of an answer."""
    if isinstance(value, Struct):
        return {
            name: plain(getattr(value, name), side, name)
            for name in type(value).__slots__
            if name not in LEFT_OUT and hasattr(value, name)
        }
    if isinstance(value, Uuid):
        return _named(value, side)
    if field == "records" and value is not None:
        return _batches(value, side)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple) or field in MAY_BE_NULL:
        found = _together([plain(each, side) for each in value or ()])
        return found if field in IN_ORDER else sorted(found, key=_place)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return _number(value, side, field)
    return _text(value, side)


def _place(value: Any) -> str:
    if isinstance(value, dict):
        return str([value.get(name) for name in ORDERED_BY])
    return str(value)


def _together(found: list[Any]) -> list[Any]:
    """One entry a topic: answers to Fetch name a topic again where partitions of others stand between."""
    topics: dict[str, Any] = {}
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get("partitions"), list):
            return found
        first = topics.setdefault(str([each.get(name) for name in ORDERED_BY]), each)
        if first is not each:
            first["partitions"] = sorted(first["partitions"] + each["partitions"], key=_place)
    return list(topics.values())


def _named(value: Uuid, side: Side) -> str:
    if value == ZERO_UUID:
        return "zero"
    return next((name for name, topic_id in side.ids.items() if topic_id == value), str(value))


def _number(value: int, side: Side, field: str) -> Any:
    if field == "port" and value == side.node.port:
        return "port"
    if field == "session_id":
        return value if value <= 0 else "session"
    if field == "producer_id":
        return next(
            (name for name, (number, _) in side.producers.items() if number == value), value if value < 0 else "new"
        )
    if ("timestamp" in field or field.endswith("time_ms")) and abs(value - time.time() * 1000) < DAY_MS / 24:
        return "now"
    return value


def _text(value: str, side: Side) -> str:
    for name, member in side.members.items():
        value = value.replace(member, name)
    return MEMBER.sub("#", value.replace(str(side.node.port), "PORT").replace(str(side.node.folder), "FOLDER"))


def _batches(records: bytes | memoryview, side: Side) -> list[Any]:
    found: list[Any] = []
    try:
        for batch in iter_batches(records):
            found.append(
                {
                    "base_offset": batch.base_offset,
                    "last_offset": batch.last_offset,
                    "leader_epoch": batch.leader_epoch,
                    "attributes": batch.attributes,
                    "producer_id": _number(batch.producer_id, side, "producer_id"),
                    "producer_epoch": batch.producer_epoch,
                    "base_sequence": batch.base_sequence,
                    "timestamp": _number(batch.base_timestamp_ms, side, "timestamp"),
                    "max_timestamp": _number(batch.max_timestamp_ms, side, "timestamp"),
                    "records": [(record.offset, record.key, record.value) for record in batch],
                }
            )
    except CorruptDataError:
        pass  # Kafka cuts an answer where it is long enough, in the middle of a batch
    return found


def differences(left: Any, right: Any, path: str = "") -> Iterable[tuple[str, Any, Any]]:
    """Where two plain values differ: the place, and both."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in left.keys() | right.keys():
            yield from differences(left.get(name), right.get(name), f"{path}.{name}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif left != right:
        yield path, left, right


def is_message(path: str) -> bool:
    """Whether it is a text for people."""
    return path.rpartition(".")[2] in MESSAGES
