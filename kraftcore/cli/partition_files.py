"""The JSON files that kafka-leader-election and kafka-reassign-partitions read and print. Source: Kafka 4.3.1."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraftcore.admin import Replica, TopicPartition
from kraftcore.config.given_file import read_given_file
from kraftcore.errors import LocalError, StorageError

ANY_LOG_DIR = "any"


@dataclass(frozen=True, slots=True)
class Plan:
    """The content of --reassignment-json-file.

    Attributes:
        partitions: each with its broker ids, the preferred leader first, in the file's order; may repeat one.
        log_dirs: directories of replicas, where the file names them.
    """

    partitions: tuple[tuple[TopicPartition, tuple[int, ...]], ...]
    log_dirs: Mapping[Replica, str]


def read_file(path: str) -> str:
    """The text of a file.

    Raises:
        LocalError: the file cannot be read, or is not UTF-8.
    """
    try:
        return read_given_file(path).decode()
    except StorageError as error:
        raise LocalError(f"Unable to read file {path}\n{error.strerror}") from None
    except UnicodeDecodeError as error:
        raise LocalError(f"{path}: {error}") from None


def read_election(text: str) -> tuple[TopicPartition, ...]:
    """Partitions to elect leaders for: ``{"partitions": [{"topic": "foo", "partition": 1}]}``.

    Raises:
        LocalError: something else.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise LocalError("Replica election data is empty") from None
    entries = _object(whole).get("partitions")
    if entries is None:
        raise LocalError('Replica election data is missing "partitions" field')
    found = [_partition(_object(each)) for each in _array(entries)]
    twice = sorted(each for each, count in Counter(found).items() if count > 1)
    if twice:
        raise LocalError(f"Replica election data contains duplicate partitions: [{', '.join(map(str, twice))}]")
    return tuple(found)


def read_topics(text: str) -> tuple[str, ...]:
    """Topics to move: ``{"topics": [{"topic": "foo"}], "version": 1}``.

    Raises:
        LocalError: something else.
    """
    whole = _read(text)
    return tuple(_text(_field(_object(each), "topic")) for each in _array(whole.get("topics", [])))


def read_plan(text: str) -> Plan:
    """Read a plan: ``{"partitions": [{"topic": "foo", "partition": 0, "replicas": [1, 2]}], "version": 1}``

    A partition may have ``log_dirs``, one for each replica: a directory, or ``any``.

    Raises:
        LocalError: something else.
    """
    partitions = []
    log_dirs: dict[Replica, str] = {}
    for each in _array(_read(text).get("partitions", [])):
        fields = _object(each)
        partition = _partition(fields)
        replicas = tuple(_integer(number) for number in _array(_field(fields, "replicas")))
        places = [_text(place) for place in _array(fields.get("log_dirs", [ANY_LOG_DIR] * len(replicas)))]
        if len(replicas) != len(places):
            raise LocalError(
                f"Size of replicas list {_java_list(replicas)} is different from size of log dirs list "
                f"{_java_list(places)} for partition {partition}"
            )
        partitions.append((partition, replicas))
        for broker_id, place in zip(replicas, places, strict=True):
            if place != ANY_LOG_DIR:
                log_dirs[Replica(partition.topic, partition.partition, broker_id)] = place
    return Plan(tuple(partitions), log_dirs)


def format_plan(replicas: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[Replica, str] | None = None) -> str:
    """Write a plan as Kafka's tool prints it, in order of topics and partitions.

    Args:
        replicas: broker ids by partition.
        log_dirs: directories of replicas; a replica that is not in it may be in any.
    """
    known = log_dirs or {}
    partitions = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": list(replicas[each]),
            "log_dirs": [known.get(Replica(*each, broker_id), ANY_LOG_DIR) for broker_id in replicas[each]],
        }
        for each in sorted(replicas)
    ]
    return json.dumps({"version": 1, "partitions": partitions}, ensure_ascii=False, separators=(",", ":"))


def _read(text: str) -> Mapping[str, Any]:
    try:
        whole = _object(json.loads(text))
    except (ValueError, RecursionError) as error:
        if isinstance(error, LocalError):
            raise
        raise LocalError(f"The input string is not a valid JSON: {error}") from None
    version = _integer(whole.get("version", 1))
    if version != 1:
        raise LocalError(f"Not supported version field value {version}")
    return whole


def _partition(fields: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(_text(_field(fields, "topic")), _integer(_field(fields, "partition")))


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise LocalError(f"No such field exists: `{name}`")
    return fields[name]


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise LocalError(f"Expected JSON object, received {_json(value)}")
    return value


def _array(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise LocalError(f"Expected JSON array, received {_json(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise LocalError(f"Expected `String` value, received {_json(value)}")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise LocalError(f"Expected `Int` value, received {_json(value)}")
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _java_list(values: Sequence[object]) -> str:
    return f"[{', '.join(map(str, values))}]"
