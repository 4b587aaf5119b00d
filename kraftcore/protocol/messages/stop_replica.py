"""StopReplica, api key 5."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class StopReplicaRequest(Request, api_key=5, removed_versions=(0, 4), flexible_from=2):
    """ZooKeeper-era controller to broker: stop, and perhaps delete, replicas (KIP-570)."""

    class StopReplicaPartitionV0(Struct):
        """An element of ``ungrouped_partitions``."""

        topic_name: str = string("0")
        partition_index: int = int32("0")

    class StopReplicaTopicV1(Struct):
        """An element of ``topics``."""

        name: str = string("1-2")
        partition_indexes: list[int] = array(int32, "1-2")

    class StopReplicaTopicState(Struct):
        """An element of ``topic_states``."""

        class StopReplicaPartitionState(Struct):
            """An element of ``partition_states``."""

            partition_index: int = int32("3+")
            leader_epoch: int = int32("3+", default=-1)
            delete_partition: bool = boolean("3+")

        topic_name: str = string("3+")
        partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("4+", kafka="isKRaftController")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaResponse(Response, api_key=5, removed_versions=(0, 4), flexible_from=2):
    """Answer to StopReplicaRequest."""

    class StopReplicaPartitionError(Struct):
        """An element of ``partition_errors``."""

        topic_name: str = string()
        partition_index: int = int32()
        error_code: int = int16()

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
