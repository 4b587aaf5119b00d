from __future__ import annotations

import pytest

from kraftcore.errors import LocalError, UnsupportedVersionError, WireError
from kraftcore.protocol.log_contents import ContentsJudge
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.protocol.metadata import MetadataRecordType, decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord
from kraftcore.protocol.records.partition_record import PartitionRecord


def test_noop():
    assert encode_metadata_record(NoOpRecord(), 0).hex() == "01140000"
    assert decode_metadata_record(bytes.fromhex("01140000")) == (NoOpRecord(), 0)
    assert MetadataRecordType.NO_OP_RECORD == 0x14


def test_bytes_of_a_bootstrap_checkpoint():
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    value = encode_metadata_record(record, 0)
    assert value.hex() == "010c0011" + b"metadata.version".hex() + "001e00"
    assert decode_metadata_record(memoryview(value)) == (record, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_version_is_part_of_the_frame(version):
    record = PartitionRecord(partition_id=1, replicas=[1, 2], isr=[2], leader=2)
    value = encode_metadata_record(record, version)
    assert value[:3] == bytes([1, 3, version])
    assert decode_metadata_record(value) == (record, version)


@pytest.mark.parametrize("frame", ["00", "02", "ff01"])
def test_other_frame_versions_are_refused(frame):
    with pytest.raises(UnsupportedVersionError, match="frame version"):
        decode_metadata_record(bytes.fromhex(frame + "140000"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("010600", "record type 6 is not known"),
        ("01ffffffff0f00", "record type 4294967295 is not known"),
        ("011401", "NoOpRecord version 1 is not supported; known are 0-0"),
        ("0114ffffffff0f", "NoOpRecord version 4294967295 is not supported"),
    ],
)
def test_unknown_types_and_versions(value, text):
    with pytest.raises(UnsupportedVersionError, match=text):
        decode_metadata_record(bytes.fromhex(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "frame of a metadata record ends too early .*byte 0"),
        ("0114", "ends too early .*byte 2"),
        ("01ffffffff1f00", "bad varint .*byte 1"),
        ("011400", "NoOpRecord v0: needs 1 bytes, 0 left .byte 3"),
        ("0114000000", "NoOpRecord v0: 1 bytes left over after the message .byte 4"),
    ],
)
def test_damage(value, text):
    with pytest.raises(WireError, match=text):
        decode_metadata_record(bytes.fromhex(value))


def test_only_metadata_records_are_framed():
    with pytest.raises(LocalError, match="VoteRequest is no metadata record"):
        encode_metadata_record(VoteRequest(), 0)
    with pytest.raises(LocalError, match="NoOpRecord has no version 1"):
        encode_metadata_record(NoOpRecord(), 1)


@pytest.mark.parametrize(
    ("batches", "is_metadata"),
    [
        ([], None),
        ([[encode_metadata_record(NoOpRecord(), 0)]], True),
        ([[b"\x01\x7f\x00"], [b"text", encode_metadata_record(NoOpRecord(), 0)]], True),  # a type of a newer release
        ([[b"+1"], [encode_metadata_record(NoOpRecord(), 0)]], False),
        ([[None, b""]], False),
        ([[b"\x01\x7f\x00"]], None),
        ([[b"\x01\x7f\x00"] * 32] * 2, False),
    ],
)
def test_a_log_is_judged_by_its_first_records(batches, is_metadata):
    judge = ContentsJudge()
    for values in batches:
        judge.look(values)
    assert judge.is_metadata is is_metadata
