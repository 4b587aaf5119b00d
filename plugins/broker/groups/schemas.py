"""Keys and values of the records in ``__consumer_offsets`` that belong to classic groups.

A key begins with its record type, a value with its version, both int16. Source: Kafka 4.3.1, group-coordinator's record
definitions.
"""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Data, Struct, array, int32, int64, octets, string, uuid


class OffsetCommitKey(Data, versions=(0, 1)):
    """Names a committed offset; record types 0 (long ago) and 1."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Data, versions=(0, 4), flexible_from=4):
    """A committed offset. Kafka 4.3.1 writes version 4, and 1 where the client set how long it is kept."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tagged="4+", tag=0, ignorable=True)


class GroupMetadataKey(Data, versions=(2, 2)):
    """Names a classic group; record type 2."""

    group: str = string()


class GroupMetadataValue(Data, versions=(0, 4), flexible_from=4):
    """A classic group at the end of a rebalance. Kafka 4.3.1 writes version 3."""

    class MemberMetadata(Struct):
        """An element of ``members``."""

        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
        session_timeout: int = int32()
        subscription: bytes = octets()
        assignment: bytes = octets()

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
