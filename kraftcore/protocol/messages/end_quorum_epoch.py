"""EndQuorumEpoch, api key 54."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, uint16, uuid


class EndQuorumEpochRequest(Request, api_key=54, versions=(0, 1), flexible_from=1, listeners=("controller",)):
    """A leader resigns and names its preferred successors (KIP-595)."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            class ReplicaInfo(Struct):
                """An element of ``preferred_candidates``."""

                candidate_id: int = int32("1+")
                candidate_directory_id: Uuid = uuid("1+")

            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32()
            preferred_successors: list[int] = array(int32, "0", ignorable=True)
            preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class LeaderEndpoint(Struct):
        """An element of ``leader_endpoints``."""

        name: str = string("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class EndQuorumEpochResponse(Response, api_key=54, versions=(0, 1), flexible_from=1):
    """Answer to EndQuorumEpochRequest."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()
            leader_epoch: int = int32()

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
