"""DescribeProducers, api key 61."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DescribeProducersRequest(Request, api_key=61, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """List the producers that are active on partitions (KIP-664)."""

    class TopicRequest(Struct):
        """An element of ``topics``."""

        name: str = string()
        partition_indexes: list[int] = array(int32)

    topics: list[TopicRequest] = array(TopicRequest)


class DescribeProducersResponse(Response, api_key=61, versions=(0, 0), flexible_from=0):
    """Answer to DescribeProducersRequest."""

    class TopicResponse(Struct):
        """An element of ``topics``."""

        class PartitionResponse(Struct):
            """An element of ``partitions``."""

            class ProducerState(Struct):
                """An element of ``active_producers``."""

                producer_id: int = int64()
                producer_epoch: int = int32()
                last_sequence: int = int32(default=-1)
                last_timestamp: int = int64(default=-1)
                coordinator_epoch: int = int32()
                current_txn_start_offset: int = int64(default=-1)

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            active_producers: list[ProducerState] = array(ProducerState)

        name: str = string()
        partitions: list[PartitionResponse] = array(PartitionResponse)

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
