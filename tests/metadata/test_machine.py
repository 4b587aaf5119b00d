"""The image of a real log against the snapshots that Kafka wrote of it, and what the machine makes of other logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from image_records import snapshot_values
from metadata_replay import State, printed_log
from project import ROOT

from kraftcore.core.batch import build_batch, iter_batches, validate_batch
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, SnapshotLaterError
from kraftcore.metadata import MetadataMachine, Partition
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import MetadataRecord
from kraftcore.testing.comparison import state_of

GOLDEN = ROOT / "tests" / "golden" / "dynamic"
SNAPSHOTS = [
    path.relative_to(GOLDEN) for path in sorted(GOLDEN.glob("c[123]/*/*.checkpoint")) if int(path.stem.split("-")[0])
]


def apply_log(machine: MetadataMachine, folder: Path, start: int, end: int) -> None:
    for path in sorted(folder.glob("*.log")):
        for batch in iter_batches(path.read_bytes()):
            if start <= batch.base_offset < end and not batch.is_control:
                machine.apply(batch)


def ordered(values: Iterable[bytes]) -> list[tuple[MetadataRecord, int]]:
    """The records of a snapshot, with what Kafka takes out of hash tables sorted."""
    return sorted((_sorted_inside(*decode_metadata_record(value)) for value in values), key=repr)


def _sorted_inside(record: Any, version: int) -> tuple[MetadataRecord, int]:
    for name in ("end_points", "features"):
        if hasattr(record, name):
            getattr(record, name).sort(key=lambda each: each.name)
    return record, version


@pytest.mark.parametrize("name", SNAPSHOTS, ids=str)
def test_the_image_of_a_log_is_the_one_that_kafka_wrote(name: Path) -> None:
    path = GOLDEN / name
    machine = MetadataMachine()
    apply_log(machine, path.parent, 0, int(path.stem.split("-")[0]))
    theirs, ours = snapshot_values(path), state_of(machine)
    assert ordered(ours) == ordered(theirs)
    assert kinds(ours) == kinds(theirs)
    again = MetadataMachine()
    again.restore(theirs)
    assert ordered(state_of(again)) == ordered(theirs)


def kinds(values: Iterable[bytes]) -> list[int | None]:
    """Types of the records in their order; neighbours of one type, and a topic's partitions, count once."""
    found: list[int | None] = []
    for value in values:
        kind = decode_metadata_record(value)[0].schema.api_key
        if kind not in found[-2:]:
            found.append(kind)
    return found


@pytest.mark.parametrize("node", ["dynamic/c1", "dynamic/c2", "dynamic/c3", "static/c1"])
def test_the_image_of_a_log_is_what_kafkas_dump_tool_printed_replayed_plainly(node: str) -> None:
    folder = ROOT / "tests" / "golden" / node
    machine, plain = MetadataMachine(), State()
    apply_log(machine, folder / "__cluster_metadata-0", 0, 2**62)
    for printed in printed_log(folder):
        plain.apply(printed)
    image = machine.image
    assert {str(each.id): each.name for each in image.topics.values()} == plain.topics
    assert {
        (str(topic_id), number): plain_partition(each)
        for topic_id in image.topics
        for number, each in image.partitions.of_topic(topic_id)
    } == plain.partitions
    assert {
        (resource.type, resource.name, name): value
        for resource, settings in image.configs.items()
        for name, value in settings.items()
    } == plain.configs
    assert dict(image.features) == {name: level for name, level in plain.features.items() if name != "kraft.version"}
    assert {(user.name, user.mechanism): each.iterations for user, each in image.scram.items()} == plain.scram
    assert {
        (entity, key): each for entity, found in image.quotas.items() for key, each in found.items()
    } == plain.quotas
    assert {number: each.epoch for number, each in image.brokers.items()} == {
        number: each["epoch"] for number, each in plain.brokers.items()
    }
    assert {number: (each.is_fenced, each.is_shutting_down) for number, each in image.brokers.items()} == {
        number: (each["fenced"], each["shutdown"]) for number, each in plain.brokers.items()
    }
    assert {number: str(each.incarnation_id) for number, each in image.controllers.items()} == plain.controllers
    assert image.producer_ids.next_id == (plain.producer_ids or 0)


def plain_partition(partition: Partition) -> dict[str, object]:
    return {
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "removing": list(partition.removing),
        "adding": list(partition.adding),
        "leader": partition.leader,
        "recovery": partition.recovery_state,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "elr": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
    }


def test_it_goes_on_from_a_snapshot_of_kafka() -> None:
    folder = GOLDEN / "c4" / "__cluster_metadata-0"
    first, second = sorted(folder.glob("*.checkpoint"))
    machine = MetadataMachine()
    machine.restore(snapshot_values(first))
    apply_log(machine, folder, int(first.stem.split("-")[0]), int(second.stem.split("-")[0]))
    assert ordered(state_of(machine)) == ordered(snapshot_values(second))


def record(message: MetadataRecord) -> bytes:
    return encode_metadata_record(message, 0)


def apply(machine: MetadataMachine, *values: bytes) -> None:
    machine.apply(validate_batch(build_batch(list(values), timestamp_ms=1)))


def setting(name: str, value: str | None) -> bytes:
    return record(ConfigRecord(resource_type=2, resource_name="t", name=name, value=value))


def test_a_topic_takes_its_settings_along() -> None:
    """Within one load of the log, too, where Kafka 4.3.1 keeps them."""
    machine = MetadataMachine()
    topic_id = Uuid(bytes(range(16)))
    topic = record(TopicRecord(name="t", topic_id=topic_id))
    apply(machine, topic, setting("a", "1"), setting("b", "1"), setting("a", "2"), setting("b", None))
    assert state_of(machine) == [topic, setting("a", "2")]
    apply(machine, record(RemoveTopicRecord(topic_id=topic_id)))
    assert state_of(machine) == []


def test_no_snapshot_inside_a_transaction() -> None:
    machine = MetadataMachine()
    apply(machine, record(BeginTransactionRecord()), setting("a", "1"))
    with pytest.raises(SnapshotLaterError, match="transaction is under way"):
        state_of(machine)
    apply(machine, record(EndTransactionRecord()))
    assert state_of(machine) == [setting("a", "1")]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"an application's own", "frame version 97"),
        (record(RemoveTopicRecord(topic_id=Uuid(b"x" * 16))), "RemoveTopicRecord cannot be applied"),
    ],
)
def test_of_another_log_it_keeps_nothing(value: bytes, why: str) -> None:
    machine = MetadataMachine()
    apply(machine, record(FeatureLevelRecord(name="metadata.version", feature_level=30)), setting("a", "1"), value)
    apply(machine, setting("a", "1"))
    with pytest.raises(LocalError, match=f"only metadata records.*{why}"):
        state_of(machine)
    assert (machine.image.features.metadata_version, len(machine.image.configs)) == (None, 0)
    machine.restore([setting("a", "1")])
    assert state_of(machine) == [setting("a", "1")]


def test_a_snapshot_is_read_while_the_image_moves_on() -> None:
    class Later:
        def append(self, values: Iterable[bytes]) -> None:
            raise AssertionError("nothing is gathered at once")

        def append_later(self, values: Iterable[bytes]) -> None:
            self.values: Iterator[bytes] = iter(values)

    machine, sink = MetadataMachine(), Later()
    apply(machine, setting("a", "1"))
    machine.snapshot(sink)
    apply(machine, setting("a", "2"))
    assert list(sink.values) == [setting("a", "1")]
