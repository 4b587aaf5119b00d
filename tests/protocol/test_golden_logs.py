"""Every record that real nodes left on disk: decoded, encoded again, and printed as Kafka printed it."""

from __future__ import annotations

import json
import re

import pytest
from messages import GOLDEN

from kraftcore.core.batch import iter_batches
from kraftcore.protocol.control import decode_control_record, encode_control_record
from kraftcore.protocol.json_form import from_json_dict, to_json_dict
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.registry import MetadataRecordType

LINE = re.compile(r"^\| offset: (\d+) .* headerKeys: \[\] (.*)$", re.MULTILINE)
FILES = sorted(path for kind in ("*.log", "*.checkpoint") for path in GOLDEN.rglob(kind))
DUMPED = [path for path in FILES if (path.parent / "dump" / f"{path.name}.txt").exists()] + [
    path for path in FILES if (path.parents[1] / "dump" / f"{path.name}.txt").exists()
]


def compact(value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def printed(record, is_control) -> str:
    """What kafka-dump-log prints behind the header keys."""
    if is_control:
        control = decode_control_record(record.key, record.value)
        assert encode_control_record(control.body, control.version) == (control.key, control.value)
        names = {"LEADER_CHANGE": "LeaderChange:", "KRAFT_VERSION": "KRaftVersion", "KRAFT_VOTERS": "KRaftVoters"}
        name = names.get(control.type.name, control.type.name.title().replace("_", ""))
        return f"{name} {compact(to_json_dict(control.body, control.version))}"
    message, version = decode_metadata_record(record.value)
    assert encode_metadata_record(message, version) == record.value
    data = to_json_dict(message, version)
    assert from_json_dict(type(message), json.loads(json.dumps(data)), version) == message
    name = MetadataRecordType(message.schema.api_key).name
    return f"payload: {compact({'type': name, 'version': version, 'data': data})}"


def test_there_is_something_to_read():
    assert len(DUMPED) == 42


@pytest.mark.parametrize("path", DUMPED, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_records(path):
    dump = path.parent / "dump" / f"{path.name}.txt"
    if not dump.exists():
        dump = path.parents[1] / "dump" / f"{path.name}.txt"
    expected = [(int(offset), text) for offset, text in LINE.findall(dump.read_text())]
    found = [
        (record.offset, printed(record, batch.is_control))
        for batch in iter_batches(path.read_bytes())
        for record in batch
    ]
    assert [offset for offset, _ in found] == [offset for offset, _ in expected]
    for (offset, ours), (_, theirs) in zip(found, expected, strict=True):
        assert ours == theirs, offset
