"""Voter sets and kraft.version as control records: written into batches, and read from batches.

Voter sets and kraft.version are replicated like all other records, so that every replica knows them from its log.

Source: KIP-853 "Log and snapshot control records"; Kafka 4.3.1 writes these records in version 0 only, and LeaderChange
without directory ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraftcore.core.batch import RecordBatch, build_records_batch
from kraftcore.errors import CorruptBatchError, LocalError
from kraftcore.protocol import control
from kraftcore.protocol.control import ControlRecordType, KeyAndValue, decode_control_record
from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord
from kraftcore.protocol.data.leader_change_message import LeaderChangeMessage
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.ports import LogPort, ReaderPort, SnapshotPort
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet

ControlEntry = KeyAndValue


def leader_change(leader_id: int, voters: VoterSet, granting: Sequence[int]) -> ControlEntry:
    """The first record of a leader's epoch."""
    return control.leader_change(leader_id, sorted(voters.ids), granting)


def kraft_version(level: int) -> ControlEntry:
    """The record that puts a kraft.version in force."""
    return control.kraft_version(level)


def kraft_voters(voters: VoterSet) -> ControlEntry:
    """The record that puts a voter set in force."""
    return control.kraft_voters(voter_entries(voters))


def voter_entries(voters: VoterSet) -> list[VotersRecord.Voter]:
    """The entries of a KRaftVoters record."""
    return [
        control.voter(
            voter.key.id,
            voter.key.directory_id,
            [(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints],
            min_kraft_version=voter.supported.min,
            max_kraft_version=voter.supported.max,
        )
        for voter in voters
    ]


def control_batch(entries: Sequence[ControlEntry], now_ms: int) -> bytearray:
    """One batch of control records; the log stamps offset and epoch."""
    return build_records_batch(entries, timestamp_ms=now_ms, control=True)


def control_batches(log: LogPort, start: int) -> Iterator[RecordBatch]:
    """The control batches of a log from ``start`` on; the log knows their offsets, so no other batch is read."""
    for offset in log.control_offsets():
        if offset >= start:
            yield RecordBatch(log.read(offset, 1))


def first_batch(snapshots: SnapshotPort, snapshot_id: tuple[int, int]) -> RecordBatch:
    """The batch with which a snapshot begins, which names kraft.version and voters.

    Raises:
        CorruptBatchError: the batch is damaged.
    """
    return first_batch_of(snapshots.open(snapshot_id))


def first_batch_of(reader: ReaderPort) -> RecordBatch:
    """As `first_batch`, of an open snapshot, which this function closes."""
    try:
        size = int.from_bytes(reader.read_at(8, 4), signed=True) + 12 if reader.size >= 12 else 0
        return RecordBatch(reader.read_at(0, max(size, 1)))
    finally:
        reader.close()


def voter_changes(batch: RecordBatch) -> Iterator[tuple[int, int | None, VoterSet | None]]:
    """The changes in a control batch: (offset, kraft.version or None, voter set or None) of each record with a change.

    Raises:
        CorruptBatchError, WireError: the batch or a record's body is damaged.
    """
    for record in batch:
        body = decode_control_record(record.key, record.value)
        if body.type == ControlRecordType.KRAFT_VERSION and isinstance(body.body, KRaftVersionRecord):
            yield record.offset, body.body.kraft_version, None
        elif body.type == ControlRecordType.KRAFT_VOTERS and isinstance(body.body, VotersRecord):
            yield record.offset, None, voter_set(body.body)


def leading_voters(batch: RecordBatch) -> frozenset[int] | None:
    """The ids of the voters that a LeaderChange record in a control batch names; None: the batch has no such record.

    Raises:
        CorruptBatchError, WireError: the batch or a record's body is damaged.
    """
    for record in batch:
        body = decode_control_record(record.key, record.value).body
        if isinstance(body, LeaderChangeMessage):
            return frozenset(voter.voter_id for voter in body.voters)
    return None


def voter_set(record: VotersRecord) -> VoterSet:
    """The voter set that a KRaftVoters record names.

    Raises:
        CorruptBatchError: two voters of one id.
    """
    voters = tuple(
        Voter(
            ReplicaKey(item.voter_id, item.voter_directory_id),
            tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in item.endpoints),
            VersionRange(
                item.kraft_version_feature.min_supported_version, item.kraft_version_feature.max_supported_version
            ),
        )
        for item in record.voters
    )
    try:
        return VoterSet(voters)
    except LocalError as error:
        raise CorruptBatchError(f"a KRaftVoters record: {error}") from error
