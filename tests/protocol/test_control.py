from __future__ import annotations

import pytest

from kraftcore.core.uuid import Uuid
from kraftcore.core.wire import encode
from kraftcore.errors import LocalError, UnsupportedVersionError, WireError
from kraftcore.protocol import control
from kraftcore.protocol.control import (
    ControlRecordType,
    decode_control_record,
    decode_control_type,
    encode_control_key,
    encode_control_record,
)
from kraftcore.protocol.data.control_record_type_schema import ControlRecordTypeSchema
from kraftcore.protocol.data.end_txn_marker import EndTxnMarker
from kraftcore.protocol.data.headers import ResponseHeader
from kraftcore.protocol.data.leader_change_message import LeaderChangeMessage, Voter
from kraftcore.protocol.data.snapshot_footer_record import SnapshotFooterRecord

DIRECTORY = Uuid.from_string("CQ6IS1StQn2YarGcqPL8DQ")


def test_bytes_are_those_of_a_first_leader():
    # the first batch of a log that Kafka 4.3.1 began
    key, value = control.leader_change(1, [1], [1])
    assert key.hex() == "00000002"
    assert value.hex() == "00000000000102000000010002000000010000"
    assert [part.hex() for part in control.kraft_version(1)] == ["00000005", "0000000100"]
    voters = [control.voter(1, DIRECTORY, [("CONTROLLER", "127.0.0.1", 19093)])]
    key, value = control.kraft_voters(voters)
    assert key.hex() == "00000006"
    assert value.hex() == (
        "00000200000001090e884b54ad427d986ab19ca8f2fc0d020b434f4e54524f4c4c4552"
        "0a3132372e302e302e314a95000000000100" + "0000"
    )
    assert [part.hex() for part in control.snapshot_header(0)] == ["00000003", "0000000000000000000000"]
    assert [part.hex() for part in control.snapshot_footer()] == ["00000004", "000000"]


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        (control.leader_change(3, [3, 1, 2], [1, 3]), ControlRecordType.LEADER_CHANGE),
        (control.snapshot_header(1_700_000_000_000), ControlRecordType.SNAPSHOT_HEADER),
        (control.snapshot_footer(), ControlRecordType.SNAPSHOT_FOOTER),
        (control.kraft_version(0), ControlRecordType.KRAFT_VERSION),
        (control.kraft_voters([control.voter(1), control.voter(2, DIRECTORY)]), ControlRecordType.KRAFT_VOTERS),
    ],
)
def test_round_trip(pair, kind):
    record = decode_control_record(*pair)
    assert (record.type, record.version) == (kind, 0)
    assert isinstance(record.type, ControlRecordType)
    assert (record.key, record.value) == pair
    assert encode_control_record(record.body) == pair
    assert decode_control_record(memoryview(pair[0]), bytearray(pair[1])) == record


def test_fields_arrive():
    body = decode_control_record(*control.leader_change(3, [3, 1], [1])).body
    assert (body.leader_id, [voter.voter_id for voter in body.voters]) == (3, [3, 1])
    voter = control.voter(7, DIRECTORY, [("A", "h", 1), ("B", "i", 65535)], max_kraft_version=2)
    (found,) = decode_control_record(*control.kraft_voters([voter])).body.voters
    assert found == voter
    assert (found.endpoints[1].host, found.endpoints[1].port) == ("i", 65535)
    assert found.kraft_version_feature.max_supported_version == 2


def test_leader_change_1_is_read_as_what_it_is():
    body = LeaderChangeMessage(leader_id=1, voters=[Voter(voter_id=1, voter_directory_id=DIRECTORY)])
    key, value = encode_control_record(body, 1)
    assert value[:2] == b"\0\1"
    assert body.version == 0  # the caller's object is left alone
    record = decode_control_record(key, value)
    assert record.version == 1
    assert record.body.voters[0].voter_directory_id == DIRECTORY
    with pytest.raises(LocalError, match=r"LeaderChangeMessage v0, field voters\[0\].voter_directory_id"):
        encode_control_record(body)
    with pytest.raises(LocalError, match="no version 2"):
        encode_control_record(body, 2)


def test_transaction_markers():
    record = decode_control_record(encode_control_key(ControlRecordType.COMMIT), b"\0\0" + (9).to_bytes(4))
    assert record.type is ControlRecordType.COMMIT
    assert record.body == EndTxnMarker(coordinator_epoch=9)
    assert decode_control_record(encode_control_key(0), b"\0\0" + bytes(4)).type is ControlRecordType.ABORT


@pytest.mark.parametrize("number", [-1, 7, 1000, -32768])
def test_unknown_types_are_kept(number):
    key = encode_control_key(number)
    record = decode_control_record(key, b"whatever")
    assert (record.type, record.version, record.body) == (number, -1, None)
    assert (record.key, record.value) == (key, b"whatever")


def test_keys():
    for number in (-32768, 0, 6, 32767):
        assert encode_control_key(number) == b"\0\0" + encode(ControlRecordTypeSchema(type=number), 0)
        assert decode_control_type(encode_control_key(number)) == number
    assert decode_control_type(b"\0\1\0\2more") == 2  # a later key version
    for key in (b"", b"\0\0\0"):
        with pytest.raises(WireError, match=f"needs 4 bytes, {len(key)} in the key"):
            decode_control_type(key)
    with pytest.raises(WireError, match="negative version -1"):
        decode_control_type(b"\xff\xff\0\2")
    with pytest.raises(LocalError, match="32768 does not fit an int16"):
        encode_control_key(32768)


def test_damaged_records():
    key, value = control.leader_change(1, [1, 2, 3], [1, 2])
    for size in range(len(value)):
        with pytest.raises(WireError):
            decode_control_record(key, value[:size])
    with pytest.raises(WireError, match="1 bytes left over"):
        decode_control_record(key, value + b"\0")
    with pytest.raises(UnsupportedVersionError, match="LeaderChangeMessage version 2"):
        decode_control_record(key, b"\0\2" + value[2:])
    with pytest.raises(UnsupportedVersionError, match="version -1"):
        decode_control_record(key, b"\xff\xff" + value[2:])
    with pytest.raises(WireError, match="needs a key"):
        decode_control_record(None, value)
    with pytest.raises(WireError, match="needs a value"):
        decode_control_record(key, None)
    with pytest.raises(LocalError, match="ResponseHeader is no control record"):
        encode_control_record(ResponseHeader())
    assert encode_control_record(SnapshotFooterRecord(version=9)) == control.snapshot_footer()
