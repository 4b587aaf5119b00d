"""Vote, api key 52."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class VoteRequest(Request, api_key=52, versions=(0, 2), flexible_from=0, listeners=("controller",)):
    """Ask a voter for its vote or, since v2, whether it would give it (KIP-595, KIP-853, KIP-996)."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            replica_epoch: int = int32()
            replica_id: int = int32()
            replica_directory_id: Uuid = uuid("1+", ignorable=True)
            voter_directory_id: Uuid = uuid("1+", ignorable=True)
            last_offset_epoch: int = int32()
            last_offset: int = int64()
            pre_vote: bool = boolean("2+")

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)


class VoteResponse(Response, api_key=52, versions=(0, 2), flexible_from=0):
    """Answer to VoteRequest."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()
            leader_epoch: int = int32()
            vote_granted: bool = boolean()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        """An element of ``node_endpoints``."""

        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tagged="1+", tag=0)
