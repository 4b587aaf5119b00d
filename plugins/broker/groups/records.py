"""Records of ``__consumer_offsets``: keys and values as bytes, and back.

Written as Kafka 4.3.1's GroupCoordinatorRecordHelpers does; read in all versions that its brokers read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kraftcore.core.batch.layout import HEADER_BYTES
from kraftcore.core.wire import decode, encode
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.groups.effects import NEVER, Committed, Entry
from kraftcore.plugins.broker.groups.group import Group, Member, State
from kraftcore.plugins.broker.groups.schemas import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftcore.plugins.broker.partition import TopicPartition

_OFFSET_TYPES = (0, 1)
_GROUP_TYPE = 2
# Types whose key names a group of another protocol: ConsumerGroupMetadata, ShareGroupMetadata, StreamsGroupMetadata.
_MODERN_TYPES = (3, 11, 17)
_GROUP_VALUE = 3
_OFFSET_VALUE, _OFFSET_VALUE_WITH_EXPIRY = 4, 1
_VERSION_BYTES = 2
_RECORD_BYTES = 30  # at most, of a record beside its key and value


class OffsetName(NamedTuple):
    """The key of a committed offset."""

    group: str
    part: TopicPartition


class GroupName(NamedTuple):
    """The key of a group.

    Attributes:
        group: id of the group.
        is_classic: whether it uses the classic protocol; the value of another protocol is not read.
    """

    group: str
    is_classic: bool = True


def _versioned(version: int, body: bytes) -> bytes:
    return version.to_bytes(_VERSION_BYTES) + body


# --- writing ----------------------------------------------------------------------------------------------------------


def _offset_key(group: str, part: TopicPartition) -> bytes:
    return _versioned(1, encode(OffsetCommitKey(group=group, topic=part.topic, partition=part.partition), 1))


def offset_entry(group: str, part: TopicPartition, committed: Committed) -> Entry:
    """A committed offset."""
    version = _OFFSET_VALUE if committed.expire_ms == NEVER else _OFFSET_VALUE_WITH_EXPIRY
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
        topic_id=committed.topic_id,
    )
    return _offset_key(group, part), _versioned(version, encode(value, version))


def offset_tombstone(group: str, part: TopicPartition) -> Entry:
    """A committed offset that is gone."""
    return _offset_key(group, part), None


def group_entry(group: Group, assignment: Mapping[str, bytes]) -> Entry:
    """A group, with what each member got."""
    protocol = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=protocol,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol),
                assignment=assignment.get(member.id, b""),
            )
            for member in group.members.values()
        ],
    )
    return _group_key(group.id), _versioned(_GROUP_VALUE, encode(value, _GROUP_VALUE))


def empty_group_entry(group: Group) -> Entry:
    """A group that was just made; it has no generation yet."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=group.state_since_ms
    )
    return _group_key(group.id), _versioned(_GROUP_VALUE, encode(value, _GROUP_VALUE))


def group_tombstone(group: str) -> Entry:
    """A group that is gone."""
    return _group_key(group), None


def _group_key(group: str) -> bytes:
    return _versioned(_GROUP_TYPE, encode(GroupMetadataKey(group=group), _GROUP_TYPE))


def entry_bytes(entry: Entry) -> int:
    """How long its record is at most."""
    key, value = entry
    return len(key) + len(value or b"") + _RECORD_BYTES


def chunks(entries: Iterable[Entry], bytes_max: int) -> Iterator[list[Entry]]:
    """Cut entries into batches of at most so many bytes; one that is longer by itself has one of its own."""
    chunk: list[Entry] = []
    size = HEADER_BYTES
    for entry in entries:
        added = entry_bytes(entry)
        if chunk and size + added > bytes_max:
            yield chunk
            chunk, size = [], HEADER_BYTES
        chunk.append(entry)
        size += added
    if chunk:
        yield chunk


# --- reading ----------------------------------------------------------------------------------------------------------


def read_key(key: bytes) -> OffsetName | GroupName | None:
    """What a key names; None: nothing that matters here.

    Raises:
        CorruptDataError, RemoteProtocolError: it cannot be read.
    """
    if len(key) < _VERSION_BYTES:
        raise CorruptDataError(f"a key of {len(key)} bytes in __consumer_offsets: it begins with a type of two")
    kind, body = int.from_bytes(key[:_VERSION_BYTES], signed=True), key[_VERSION_BYTES:]
    if kind in _OFFSET_TYPES:
        found = decode(OffsetCommitKey, body, kind)
        return OffsetName(found.group, TopicPartition(found.topic, found.partition))
    if kind == _GROUP_TYPE:
        return GroupName(decode(GroupMetadataKey, body, kind).group)
    if kind in _MODERN_TYPES:
        # Their keys are one string, not compact, as a classic group's.
        return GroupName(decode(GroupMetadataKey, body, _GROUP_TYPE).group, is_classic=False)
    return None


def read_committed(value: bytes) -> Committed:
    """A committed offset from a record's value."""
    version = int.from_bytes(value[:_VERSION_BYTES], signed=True)
    found = decode(OffsetCommitValue, value[_VERSION_BYTES:], version)
    return Committed(
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        found.expire_timestamp,
        found.topic_id,
    )


def read_group(name: str, value: bytes) -> Group:
    """A group from a record's value: stable, or empty."""
    version = int.from_bytes(value[:_VERSION_BYTES], signed=True)
    found = decode(GroupMetadataValue, value[_VERSION_BYTES:], version)
    group = Group(name, found.current_state_timestamp)
    group.generation = found.generation
    group.state = group.previous_state = State.STABLE if found.members else State.EMPTY
    group.protocol_type = found.protocol_type or None
    group.protocol_name = found.protocol
    for each in found.members:
        member = Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout if each.rebalance_timeout >= 0 else each.session_timeout,
            each.session_timeout,
            [(found.protocol or "", each.subscription)],
        )
        member.assignment = each.assignment
        group.put(member)
    # A leader that is no member would be waited for in vain.
    group.leader = found.leader if found.leader in group.members else next(iter(group.members), None)
    group.subscribed_topics = group.topics_of_members()
    return group
