"""BeginQuorumEpoch, api key 53."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, uint16, uuid

LEASE_TAG = 0x4B52
"""The tag of a field of ours, far from Kafka's, whose nodes ignore tags that they do not know (KIP-482)."""


class BeginQuorumEpochRequest(Request, api_key=53, versions=(0, 1), flexible_from=1, listeners=("controller",)):
    """A new leader announces itself to the voters (KIP-595).

    ``lease_ms`` is not Kafka's: for so long the voter is asked to elect nobody else; see ``raft.leases``.
    """

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            voter_directory_id: Uuid = uuid("1+", ignorable=True)
            leader_id: int = int32()
            leader_epoch: int = int32()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class LeaderEndpoint(Struct):
        """An element of ``leader_endpoints``."""

        name: str = string("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)
    lease_ms: int = int32("1+", tagged="1+", tag=LEASE_TAG, ignorable=True)


class BeginQuorumEpochResponse(Response, api_key=53, versions=(0, 1), flexible_from=1):
    """Answer to BeginQuorumEpochRequest.

    ``lease_ms`` is not Kafka's: for so long the voter elects nobody else; see ``raft.leases``.
    """

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
    lease_ms: int = int32("1+", tagged="1+", tag=LEASE_TAG, ignorable=True)
