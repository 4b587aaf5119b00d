"""What the server keeps of a metadata log, held against snapshots that Kafka wrote of the same log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from project import ROOT

from kraftcore.cli.server_state import MetadataRecords
from kraftcore.core.batch import build_batch, iter_batches, validate_batch
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.protocol.metadata import MetadataRecordType, decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.abort_transaction_record import AbortTransactionRecord
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import MetadataRecord

GOLDEN = ROOT / "tests" / "golden" / "dynamic"
SNAPSHOTS = [
    path.relative_to(GOLDEN) for path in sorted(GOLDEN.glob("c[123]/*/*.checkpoint")) if int(path.stem.split("-")[0])
]
# Kafka folds these into one record; here a registration and what changed since are kept as they are.
OF_BROKERS = {
    MetadataRecordType.REGISTER_BROKER_RECORD,
    MetadataRecordType.FENCE_BROKER_RECORD,
    MetadataRecordType.UNFENCE_BROKER_RECORD,
    MetadataRecordType.BROKER_REGISTRATION_CHANGE_RECORD,
}


class Sink:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, values: Iterable[bytes]) -> None:
        self.values += values


def kept(state: MetadataRecords) -> list[bytes]:
    sink = Sink()
    state.snapshot(sink)
    return sink.values


def kind(value: bytes) -> int | None:
    return decode_metadata_record(value)[0].schema.api_key


def without_brokers(values: Iterable[bytes]) -> list[bytes]:
    return sorted(value for value in values if kind(value) not in OF_BROKERS)


def brokers(values: Iterable[bytes]) -> set[int]:
    found = (decode_metadata_record(value)[0] for value in values)
    return {record.broker_id for record in found if record.schema.api_key == MetadataRecordType.REGISTER_BROKER_RECORD}


def snapshot_values(path: Path) -> list[bytes]:
    return [bytes(v) for b in iter_batches(path.read_bytes()) if not b.is_control for v in b.values()]


def apply_log(state: MetadataRecords, folder: Path, start: int, end: int) -> None:
    for path in sorted(folder.glob("*.log")):
        for batch in iter_batches(path.read_bytes()):
            if start <= batch.base_offset < end and not batch.is_control:
                state.apply(batch)


@pytest.mark.parametrize("name", SNAPSHOTS, ids=str)
def test_it_keeps_what_kafka_keeps(name: Path) -> None:
    path = GOLDEN / name
    state = MetadataRecords()
    apply_log(state, path.parent, 0, int(path.stem.split("-")[0]))
    theirs = snapshot_values(path)
    ours = kept(state)
    assert without_brokers(ours) == without_brokers(theirs)
    assert brokers(ours) == brokers(theirs)
    again = MetadataRecords()
    again.restore(ours)
    assert kept(again) == ours


def test_it_goes_on_from_a_snapshot_of_kafka() -> None:
    folder = GOLDEN / "c4" / "__cluster_metadata-0"
    first, second = sorted(folder.glob("*.checkpoint"))
    state = MetadataRecords()
    state.restore(snapshot_values(first))
    apply_log(state, folder, int(first.stem.split("-")[0]), int(second.stem.split("-")[0]))
    assert without_brokers(kept(state)) == without_brokers(snapshot_values(second))


def record(message: MetadataRecord) -> bytes:
    return encode_metadata_record(message, 0)


def apply(state: MetadataRecords, *values: bytes) -> None:
    state.apply(validate_batch(build_batch(list(values), timestamp_ms=1)))


def setting(name: str, value: str | None) -> bytes:
    return record(ConfigRecord(resource_type=2, resource_name="t", name=name, value=value))


def test_a_topic_takes_its_settings_along() -> None:
    state = MetadataRecords()
    topic_id = Uuid(bytes(range(16)))
    topic = record(TopicRecord(name="t", topic_id=topic_id))
    apply(state, topic, setting("a", "1"), setting("b", "1"), setting("a", "2"), setting("b", None))
    assert kept(state) == [topic, setting("a", "2")]
    apply(state, record(RemoveTopicRecord(topic_id=topic_id)))
    assert kept(state) == []


def test_transactions_count_when_they_end() -> None:
    state = MetadataRecords()
    begin, end, abort = (
        record(each()) for each in (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
    )
    apply(state, begin, setting("a", "1"))
    with pytest.raises(LocalError, match="transaction is under way"):
        kept(state)
    apply(state, setting("b", "1"), abort)
    assert kept(state) == []
    apply(state, begin, setting("c", "1"), end)
    assert kept(state) == [setting("c", "1")]


def test_of_another_log_it_keeps_nothing() -> None:
    state = MetadataRecords()
    apply(state, setting("a", "1"), b"an application's own")
    apply(state, setting("a", "1"))
    with pytest.raises(LocalError, match="only metadata records"):
        kept(state)
    assert (state.metadata_version, state.incarnation(1)) == (0, None)
    state.restore([setting("a", "1")])
    assert kept(state) == [setting("a", "1")]
