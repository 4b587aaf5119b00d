"""Control records: what the quorum writes between the data, to itself.

The key is a version (0) and a type, both int16. The value starts with its own version as int16; there is no frame as
around metadata records.

Kafka 4.3.1 writes version 0 of every type and reads every value as version 0, whatever it states. Here a value is read
as the version it states, so that a LeaderChange of version 1 (KIP-853 defines it, no release writes it) is not misread.
Records of types that are not known are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.core.wire import decode, encode
from kraftcore.errors import LocalError, WireError
from kraftcore.protocol.data.end_txn_marker import EndTxnMarker
from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord
from kraftcore.protocol.data.leader_change_message import LeaderChangeMessage, Voter
from kraftcore.protocol.data.snapshot_footer_record import SnapshotFooterRecord
from kraftcore.protocol.data.snapshot_header_record import SnapshotHeaderRecord
from kraftcore.protocol.data.voters_record import VotersRecord

if TYPE_CHECKING:
    from typing_extensions import Buffer

KeyAndValue = tuple[bytes, bytes]
Body = (
    EndTxnMarker | LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
)
_VersionedBody = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord


class ControlRecordType(IntEnum):
    """Types of control records. ABORT and COMMIT end transactions and do not occur in the metadata log."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


CONTROL_BODIES: dict[int, type[_VersionedBody]] = {
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}
_TYPES = {body: ControlRecordType(number) for number, body in CONTROL_BODIES.items()}
_KEY_SIZE = 4
_VERSION_SIZE = 2


class ControlRecord(NamedTuple):
    """A decoded control record.

    Attributes:
        type: a ControlRecordType, or the bare number of a type that is not known.
        version: version of the body; -1 for an unknown type.
        body: the typed body, or None for an unknown type.
        key: the key's bytes.
        value: the value's bytes.
    """

    type: int
    version: int
    body: Body | None
    key: bytes
    value: bytes


def decode_control_record(key: Buffer | None, value: Buffer | None) -> ControlRecord:
    """Decode the key and value of a record in a control batch.

    Raises:
        WireError: no key or value, a damaged key or body.
        UnsupportedVersionError: a version of the body that is not known.
    """
    if key is None or value is None:
        raise WireError(f"a control record needs a {'key' if key is None else 'value'}", message_name="control record")
    key, value = bytes(key), bytes(value)
    record_type = decode_control_type(key)
    if record_type not in CONTROL_BODIES and record_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return ControlRecord(record_type, -1, None, key, value)
    number = ControlRecordType(record_type)
    if len(value) < _VERSION_SIZE:
        raise WireError(f"needs 2 bytes of version, {len(value)} in the value", message_name=number.name)
    version = int.from_bytes(value[:_VERSION_SIZE], signed=True)
    body: Body
    if number in CONTROL_BODIES:
        body = decode(CONTROL_BODIES[number], value, version)
    else:
        body = decode(EndTxnMarker, value[_VERSION_SIZE:], version)
    return ControlRecord(number, version, body, key, value)


def decode_control_type(key: Buffer) -> int:
    """The record type in a control record's key, known or not.

    Bytes behind the type, which a later key version might bring, are ignored as Kafka ignores them.

    Raises:
        WireError: the key is shorter than four bytes or has a negative version.
    """
    key = bytes(key)
    if len(key) < _KEY_SIZE:
        raise WireError(f"needs {_KEY_SIZE} bytes, {len(key)} in the key", message_name="control record key")
    version = int.from_bytes(key[:2], signed=True)
    if version < 0:
        raise WireError(f"negative version {version}", message_name="control record key")
    return int.from_bytes(key[2:_KEY_SIZE], signed=True)


def encode_control_key(record_type: int) -> bytes:
    """The key of a control record.

    Raises:
        LocalError: the type is no int16.
    """
    if not -(2**15) <= record_type < 2**15:
        raise LocalError(f"control record type {record_type} does not fit an int16")
    return b"\0\0" + record_type.to_bytes(2, signed=True)


def encode_control_record(body: _VersionedBody, version: int = 0) -> KeyAndValue:
    """Encode a control record of the metadata log.

    Args:
        body: its ``version`` attribute is written as ``version``, whatever it holds.
        version: 0 is the only one Kafka 4.3.1 understands, for all types.

    Returns:
        Key and value, for a record of a control batch.

    Raises:
        LocalError: no control record, unknown version, or a value that does not fit.
    """
    record_type = _TYPES.get(type(body))
    if record_type is None:
        raise LocalError(f"{type(body).__name__} is no control record of the metadata log")
    if body.version != version:
        body = body.replace(version=version)
    return encode_control_key(record_type), encode(body, version)


def leader_change(leader_id: int, voters: Iterable[int], granting_voters: Iterable[int]) -> KeyAndValue:
    """The first record of a new leader's epoch, as Kafka writes it (version 0, without directory ids)."""
    body = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[Voter(voter_id=voter_id) for voter_id in voters],
        granting_voters=[Voter(voter_id=voter_id) for voter_id in granting_voters],
    )
    return encode_control_record(body)


def snapshot_header(last_contained_log_timestamp_ms: int) -> KeyAndValue:
    """The first record of a snapshot; the time is that of the last record it covers, 0 in a bootstrap checkpoint."""
    return encode_control_record(SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp_ms))


def snapshot_footer() -> KeyAndValue:
    """The last record of a snapshot."""
    return encode_control_record(SnapshotFooterRecord())


def kraft_version(level: int) -> KeyAndValue:
    """The kraft.version that holds from this record on."""
    return encode_control_record(KRaftVersionRecord(kraft_version=level))


def kraft_voters(voters: Iterable[VotersRecord.Voter]) -> KeyAndValue:
    """The voter set that holds from this record on."""
    return encode_control_record(VotersRecord(voters=list(voters)))


def voter(
    voter_id: int,
    directory_id: Uuid = ZERO_UUID,
    endpoints: Iterable[tuple[str, str, int]] = (),
    *,
    min_kraft_version: int = 0,
    max_kraft_version: int = 1,
) -> VotersRecord.Voter:
    """One entry of a voter set.

    Args:
        voter_id: node id.
        directory_id: of its metadata log directory; the zero uuid when it is not known.
        endpoints: (listener name, host, port) of each controller listener; Kafka writes names in upper case.
        min_kraft_version: lowest kraft.version the voter supports.
        max_kraft_version: highest one.
    """
    entry = VotersRecord.Voter
    return entry(
        voter_id=voter_id,
        voter_directory_id=directory_id,
        endpoints=[entry.Endpoint(name=name, host=host, port=port) for name, host, port in endpoints],
        kraft_version_feature=entry.KRaftVersionFeature(
            min_supported_version=min_kraft_version, max_supported_version=max_kraft_version
        ),
    )
