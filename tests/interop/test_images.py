"""Kafka's own metadata image takes the same records as ours, and both write the same snapshots of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from image_records import Played, canonical, latest
from kafka_tools import KafkaTools
from metadata_records import records

from kraftcore.errors import LocalError, MetadataRecordError
from kraftcore.metadata import Image
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord

# With ELR off Kafka leaves it out of snapshots though there may be some; see docs/compatibility.md.
OPENING = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
]
LEVELS = [7, 8, 11, 13, 14, 16, 17, 22, 23, 29, 30]


def written(image: Image, level: int) -> tuple[str, list[str]]:
    """What a snapshot at a level holds, or what it would lose."""
    try:
        return "", canonical(list(image.freeze().values(MetadataVersion.from_level(level))))
    except LocalError as error:
        return str(error).partition(": ")[2], []


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script"


@given(data=st.data())
@settings(max_examples=12, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_both_images_write_the_same_snapshots(kafka: KafkaTools, script: Path, data: st.DataObject) -> None:
    """Any records that ours accepts; the two ways in which Kafka's forgets (docs/compatibility.md) need several
    records in one delta, and here each has one of its own."""
    images, lines = [], []
    for _ in range(data.draw(st.integers(5, 12))):
        image = Image()
        lines.append("new")
        for record in [*OPENING, *data.draw(st.lists(records, max_size=12))]:
            try:
                image.apply(record)
            except MetadataRecordError:
                continue
            lines.append(f"record {latest(record).hex()}")
        lines += [f"write {level}" for level in LEVELS]
        images.append(image)
    script.write_text("\n".join(lines))
    played = Played(kafka.interop("play-image", script))
    assert not played.refused
    expected = [(image, level) for image in images for level in LEVELS]
    assert len(played.writes) == len(expected)
    for (image, level), (lost, values) in zip(expected, played.writes, strict=True):
        our_loss, ours = written(image, level)
        assert bool(our_loss) == bool(lost), (level, our_loss, lost)
        if not lost:
            assert ours == canonical(values), level
            again = Image()
            again.apply_values(values)
            assert canonical([latest(record) for record, _ in again.records()]) == canonical(
                [latest(decode_metadata_record(value)[0]) for value in values]
            )
