"""What a real Kafka controller answered to a long script of requests, and wrote: tests/golden/controller.

A recording is a gzipped file of JSON lines. The first says how the controller was configured; each further one is a
step: the frames of a request and its response (base64, null where the connection was closed), and the batches that the
log grew by. Steps without a request are starts of the controller.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golden import GOLDEN

from kraftcore.core.batch import iter_batches
from kraftcore.protocol.frames import decode_request, decode_response
from kraftcore.protocol.json_form import to_json_dict
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.protocol.schema import MetadataRecord, Request, Response

RECORDINGS = sorted((GOLDEN / "controller").glob("*.jsonl.gz"))
# Kafka takes them from hash tables.
_IN_HASH_ORDER = {
    "RemoveAccessControlEntryRecord",
    "ConfigRecord",
    "ClientQuotaRecord",
    "UserScramCredentialRecord",
    "RemoveUserScramCredentialRecord",
    "FeatureLevelRecord",
}
# Lists that go by the order of the request.
_ORDERED = {"filterResults", "CreateAclsResponse"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a recording.

    Attributes:
        number: its line.
        note: what the script had in mind.
        request: what was asked; None at a start.
        version: of the request.
        response: the answer; None where the connection was closed.
        log: batches of data records that were appended: base offset and records.
    """

    number: int
    note: str
    request: Request | None
    version: int
    response: Response | None
    log: tuple[tuple[int, tuple[tuple[MetadataRecord, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording: how the controller was configured, and what it did."""

    name: str
    cluster_id: str
    properties: Mapping[str, str]
    steps: tuple[Step, ...]


def read_recording(path: Path) -> Recording:
    with gzip.open(path, "rt") as file:
        head, *lines = map(json.loads, file)
    steps = tuple(_step(number, line) for number, line in enumerate(lines, 2))
    return Recording(path.name, head["cluster_id"], head["properties"], steps)


def _step(number: int, line: dict[str, Any]) -> Step:
    log = tuple(_batches(line["log"]))
    if line.get("request") is None:
        return Step(number, line.get("op") or "", None, 0, None, log)
    header, request = decode_request(base64.b64decode(line["request"]))
    version = header.request_api_version
    response = None
    if line["answer"] is not None:
        _, response = decode_response(base64.b64decode(line["answer"]), header.request_api_key, version)
    return Step(number, line["note"], request, version, response, log)


def _batches(log: list[tuple[int, str]]) -> Iterator[tuple[int, tuple[tuple[MetadataRecord, int], ...]]]:
    for first, data in log:
        for batch in iter_batches(base64.b64decode(data)):
            if batch.base_offset >= first and not batch.is_control:
                yield batch.base_offset, tuple(decode_metadata_record(value) for value in batch.values())


def answer_as_data(response: Response, version: int) -> Any:
    """An answer in a form to compare: without time, lists sorted where Kafka's order is that of a hash table."""
    data = to_json_dict(response, version)
    data.pop("throttleTimeMs", None)
    return data if type(response).__name__ in _ORDERED else _sorted(data)


def records_as_data(records: tuple[tuple[MetadataRecord, int], ...] | list[tuple[MetadataRecord, int]]) -> list[Any]:
    """Records in a form to compare: without random ids, neighbours sorted where Kafka takes them from a hash table."""
    runs: list[list[Any]] = []
    for record, version in records:
        name = type(record).__name__
        data = {"record": name, "version": version, **to_json_dict(record, version)}
        if name == "AccessControlEntryRecord":
            del data["id"]
        if runs and name in _IN_HASH_ORDER and runs[-1][-1]["record"] == name:
            runs[-1].append(data)
        else:
            runs.append([data])
    return [data for run in runs for data in _sorted(run)]


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: [*map(_sorted, each)] if key in _ORDERED else _sorted(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=lambda each: json.dumps(each, sort_keys=True))
    return value
