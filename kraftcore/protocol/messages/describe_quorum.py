"""DescribeQuorum, api key 55."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uint16, uuid


class DescribeQuorumRequest(Request, api_key=55, versions=(0, 2), flexible_from=0, listeners=("broker", "controller")):
    """The leader's view of voters and observers (KIP-595, KIP-836)."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    """Shared by several fields of DescribeQuorumResponse."""

    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class DescribeQuorumResponse(Response, api_key=55, versions=(0, 2), flexible_from=0):
    """Answer to DescribeQuorumRequest."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string("2+", nullable="2+", ignorable=True)
            leader_id: int = int32()
            leader_epoch: int = int32()
            high_watermark: int = int64()
            current_voters: list[ReplicaState] = array(ReplicaState)
            observers: list[ReplicaState] = array(ReplicaState)

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    class Node(Struct):
        """An element of ``nodes``."""

        class Listener(Struct):
            """An element of ``listeners``."""

            name: str = string("2+")
            host: str = string("2+")
            port: int = uint16("2+")

        node_id: int = int32("2+")
        listeners: list[Listener] = array(Listener, "2+")

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
