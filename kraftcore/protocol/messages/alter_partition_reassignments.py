"""AlterPartitionReassignments, api key 45."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string


class AlterPartitionReassignmentsRequest(
    Request, api_key=45, versions=(0, 1), flexible_from=0, listeners=("broker", "controller")
):
    """Start or cancel moving replicas between brokers (KIP-455)."""

    class ReassignableTopic(Struct):
        """An element of ``topics``."""

        class ReassignablePartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            replicas: list[int] | None = array(int32, nullable="0+", default=None)

        name: str = string()
        partitions: list[ReassignablePartition] = array(ReassignablePartition)

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions=(0, 1), flexible_from=0):
    """Answer to AlterPartitionReassignmentsRequest."""

    class ReassignableTopicResponse(Struct):
        """An element of ``responses``."""

        class ReassignablePartitionResponse(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")

        name: str = string()
        partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
