"""AlterPartition, api key 56."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class AlterPartitionRequest(
    Request, api_key=56, versions=(2, 3), removed_versions=(0, 1), flexible_from=0, listeners=("controller",)
):
    """Broker to controller: propose a partition's in-sync replicas (KIP-497, KIP-841)."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            class BrokerState(Struct):
                """An element of ``new_isr_with_epochs``."""

                broker_id: int = int32("3+")
                broker_epoch: int = int64("3+", default=-1)

            partition_index: int = int32()
            leader_epoch: int = int32()
            new_isr: list[int] = array(int32, "0-2")
            new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
            leader_recovery_state: int = int8("1+")
            partition_epoch: int = int32()

        topic_name: str = string("0-1", ignorable=True)
        topic_id: Uuid = uuid("2+", ignorable=True)
        partitions: list[PartitionData] = array(PartitionData)

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class AlterPartitionResponse(Response, api_key=56, versions=(2, 3), removed_versions=(0, 1), flexible_from=0):
    """Answer to AlterPartitionRequest."""

    class TopicData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()
            leader_epoch: int = int32()
            isr: list[int] = array(int32)
            leader_recovery_state: int = int8("1+", ignorable=True)
            partition_epoch: int = int32()

        topic_name: str = string("0-1", ignorable=True)
        topic_id: Uuid = uuid("2+", ignorable=True)
        partitions: list[PartitionData] = array(PartitionData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)
