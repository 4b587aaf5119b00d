"""ListPartitionReassignments, api key 46."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string


class ListPartitionReassignmentsRequest(
    Request, api_key=46, versions=(0, 0), flexible_from=0, listeners=("broker", "controller")
):
    """List the reassignments under way (KIP-455)."""

    class ListPartitionReassignmentsTopics(Struct):
        """An element of ``topics``."""

        name: str = string()
        partition_indexes: list[int] = array(int32)

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class ListPartitionReassignmentsResponse(Response, api_key=46, versions=(0, 0), flexible_from=0):
    """Answer to ListPartitionReassignmentsRequest."""

    class OngoingTopicReassignment(Struct):
        """An element of ``topics``."""

        class OngoingPartitionReassignment(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            replicas: list[int] = array(int32)
            adding_replicas: list[int] = array(int32)
            removing_replicas: list[int] = array(int32)

        name: str = string()
        partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
