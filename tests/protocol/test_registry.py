"""Api keys, record types and classes agree with each other and with the files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from messages import FOLDERS, classes, versions

import kraftcore.protocol
from kraftcore.errors import UnsupportedVersionError
from kraftcore.protocol import data, messages, records
from kraftcore.protocol.lazy import module_of
from kraftcore.protocol.registry import (
    ApiKey,
    MetadataRecordType,
    apis_on,
    record_class,
    request_class,
    response_class,
)
from kraftcore.protocol.schema import Data, MetadataRecord, Request, Response

HEADER_VERSIONS = json.loads((Path(__file__).parents[1] / "data" / "header-versions.json").read_text())
# What a 4.3.1 controller listener answered to ApiVersions.
ON_CONTROLLER = [
    1, 17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 51, 52, 53, 54, 55, 56, 57,
    58, 59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82,
]  # fmt: skip


def test_every_class_is_registered():
    by_key = {cls: None for key in ApiKey for cls in (request_class(key), response_class(key))}
    assert set(by_key) == {cls for cls in classes().values() if issubclass(cls, Request | Response)}
    by_type = {record_class(number) for number in MetadataRecordType}
    assert by_type == {cls for cls in classes().values() if issubclass(cls, MetadataRecord)}
    for key in ApiKey:
        assert request_class(key).schema.api_key == response_class(key).schema.api_key == key
        assert request_class(key).schema.decodable_versions == response_class(key).schema.decodable_versions
    for number in MetadataRecordType:
        assert record_class(number).schema.api_key == number


def test_counts():
    kinds = [sum(issubclass(cls, kind) for cls in classes().values()) for kind in (Request, Response, MetadataRecord)]
    assert kinds == [93, 93, 26]
    assert sum(issubclass(cls, Data) for cls in classes().values()) == 13


@pytest.mark.parametrize("folder", FOLDERS)
def test_lazy_names_lead_to_the_classes(folder):
    package = {"messages": messages, "records": records, "data": data}[folder]
    source = Path(package.__file__).read_text()
    for name, cls in classes().items():
        if cls.__module__.startswith(package.__name__ + "."):
            assert getattr(package, name) is cls
            assert cls.__module__ == f"{package.__name__}.{module_of(name)}"
            assert f"{name} as {name}" in source, f"type checkers do not see {name}"
    with pytest.raises(AttributeError, match="Missing"):
        _ = package.Missing


def test_importing_loads_no_messages():
    code = (
        "import sys, kraftcore.protocol, kraftcore.protocol.registry, kraftcore.protocol.frames, "
        "kraftcore.protocol.metadata, kraftcore.protocol.messages, kraftcore.protocol.records\n"
        "print(*[name for name in sys.modules if name.startswith('kraftcore.protocol.')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "kraftcore.protocol.data.headers" in loaded
    assert not [
        name for name in loaded if name.startswith(("kraftcore.protocol.messages.", "kraftcore.protocol.records."))
    ]
    assert kraftcore.protocol.__doc__


@pytest.mark.parametrize("name", sorted(HEADER_VERSIONS))
def test_header_versions(name):
    schema = classes()[name].schema
    for first, last, header in HEADER_VERSIONS[name]:
        assert {schema.header_version(version) for version in range(first, last + 1)} == {header}


def test_unknown_numbers():
    with pytest.raises(UnsupportedVersionError, match="api key 999"):
        request_class(999)
    with pytest.raises(UnsupportedVersionError, match="api key -1"):
        response_class(-1)
    with pytest.raises(UnsupportedVersionError, match="record type 6"):
        record_class(6)


def test_what_a_controller_serves():
    assert apis_on("controller") == ON_CONTROLLER
    assert request_class(ApiKey.INIT_PRODUCER_ID).schema.versions == (0, 6)
    assert request_class(ApiKey.INIT_PRODUCER_ID).schema.stable_versions == (0, 5)
    assert request_class(ApiKey.FETCH).schema.stable_versions == (4, 18)
    assert request_class(ApiKey.STOP_REPLICA).schema.stable_versions is None


def test_removed_versions_are_known():
    removed = {
        name: cls.schema.removed_versions for name, cls in classes().items() if cls.schema.removed_versions is not None
    }
    assert removed["StopReplicaRequest"] == (0, 4)
    assert removed["LeaderAndIsrRequest"] == (0, 7)
    assert removed["UpdateMetadataRequest"] == (0, 8)
    assert removed["ControlledShutdownRequest"] == (0, 3)
    assert removed["AlterPartitionRequest"] == (0, 1)
    assert removed["FetchRequest"] == (0, 3)
    assert versions(classes()["AlterPartitionResponse"]) == [0, 1, 2, 3]
