"""Produce, api key 0."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Records,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uuid,
)


class ProduceRequest(Request, api_key=0, versions=(3, 13), flexible_from=9, listeners=("broker",)):
    """Append record batches to partitions."""

    class TopicProduceData(Struct):
        """An element of ``topic_data``."""

        class PartitionProduceData(Struct):
            """An element of ``partition_data``."""

            index: int = int32()
            records: Records | None = record_batches(nullable="0+")

        name: str = string("0-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class ProduceResponse(Response, api_key=0, versions=(3, 13), flexible_from=9):
    """Answer to ProduceRequest."""

    class TopicProduceResponse(Struct):
        """An element of ``responses``."""

        class PartitionProduceResponse(Struct):
            """An element of ``partition_responses``."""

            class BatchIndexAndErrorMessage(Struct):
                """An element of ``record_errors``."""

                batch_index: int = int32("8+")
                batch_index_error_message: str | None = string("8+", nullable="8+", default=None)

            class LeaderIdAndEpoch(Struct):
                """The value of ``current_leader``."""

                leader_id: int = int32("10+", default=-1)
                leader_epoch: int = int32("10+", default=-1)

            index: int = int32()
            error_code: int = int16()
            base_offset: int = int64()
            log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
            error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tagged="10+", tag=0)

        name: str = string("0-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)

    class NodeEndpoint(Struct):
        """An element of ``node_endpoints``."""

        node_id: int = int32("10+")
        host: str = string("10+")
        port: int = int32("10+")
        rack: str | None = string("10+", nullable="10+", default=None)

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tagged="10+", tag=0)
