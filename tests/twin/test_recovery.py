"""Kafka's broker and ours open copies of one damaged directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker_twin.directories import Directories
from broker_twin.recovery import OFFLINE, Found, Recovery
from broker_twin.recovery_rules import unexplained
from kafka_tools import KafkaTools

from kraftcore.core.batch import Record, build_records_batch

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def recovery(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recovery]:
    folder = tmp_path_factory.mktemp("directories")
    with Directories(kafka, folder) as directories:
        yield Recovery(directories, folder)


@pytest.mark.parametrize("seed", [4, 41534242, 252537272])
def test_damaged_directories(recovery: Recovery, seed: int) -> None:
    before = recovery.damaged
    found = [each for each in recovery.run(seed) if unexplained(each)]
    told = "\n".join(map(str, found))
    assert not found, f"python tests/twin/recovery.py --seeds {seed}\n{told}"
    assert recovery.damaged > before


@pytest.mark.parametrize(("is_clean", "left"), [(True, set()), (False, {"appended", "repeated"})])
def test_kafka_may_forget_a_producer_after_a_stop_in_order_alone(is_clean: bool, left: set[str]) -> None:
    """Then it takes a batch that it has once more: seed 91009."""
    disk = {"names": {}, "logs": {}}
    view: dict[str, Any] = {"state": "online", "start": (0, -1, 0), "end": (5, -1, 0), "read": {}, "disk": disk}
    theirs = {**view, "producers": [], "repeated": {"2": ("NONE", 5)}, "appended": ("NONE", 6)}
    ours = {**view, "producers": [{"producer_id": 2}], "repeated": {"2": ("NONE", 4)}, "appended": ("NONE", 5)}
    assert unexplained(Found("t", (), is_clean, "Kafka", theirs, ours, {})).keys() == left


def test_what_ours_lost_is_told_and_what_kafka_lost_is_not() -> None:
    record = Record(b"value", timestamp_ms=5)
    written = {base: bytes(build_records_batch([record], base_offset=base, leader_epoch=0)) for base in range(2)}

    def view(end: int) -> dict[str, Any]:
        held = b"".join(written[base] for base in range(end))
        read = {str(base): b"value".hex() for base in range(end)}
        disk = {"names": {}, "logs": {"0.log": held.hex()}}
        return {"state": "online", "start": (0, -1, 0), "end": (end, -1, 0), "read": read, "disk": disk}

    offline = {"state": OFFLINE, "disk": {"names": {}, "logs": {}}}
    assert not unexplained(Found("t", (), True, "Kafka", view(1), view(2), written))
    assert unexplained(Found("t", (), True, "Kafka", view(2), view(1), written)).keys() == {"disk", "end", "read"}
    assert not unexplained(Found("t", (), True, "Kafka", view(1), offline, written))
    assert unexplained(Found("t", (), True, "Kafka", view(2), offline, written)).keys() == {"state"}
