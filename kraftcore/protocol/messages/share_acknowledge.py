"""ShareAcknowledge, api key 79."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class ShareAcknowledgeRequest(Request, api_key=79, versions=(1, 2), flexible_from=0, listeners=("broker",)):
    """Acknowledge records as a member of a share group (KIP-932)."""

    class AcknowledgeTopic(Struct):
        """An element of ``topics``."""

        class AcknowledgePartition(Struct):
            """An element of ``partitions``."""

            class AcknowledgementBatch(Struct):
                """An element of ``acknowledgement_batches``."""

                first_offset: int = int64()
                last_offset: int = int64()
                acknowledge_types: list[int] = array(int8)

            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: Uuid = uuid()
        partitions: list[AcknowledgePartition] = array(AcknowledgePartition)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class ShareAcknowledgeResponse(Response, api_key=79, versions=(1, 2), flexible_from=0):
    """Answer to ShareAcknowledgeRequest."""

    class ShareAcknowledgeTopicResponse(Struct):
        """An element of ``responses``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            class LeaderIdAndEpoch(Struct):
                """The value of ``current_leader``."""

                leader_id: int = int32()
                leader_epoch: int = int32()

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)

        topic_id: Uuid = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        """An element of ``node_endpoints``."""

        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
