"""CreatePartitions, api key 37."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string


class CreatePartitionsRequest(
    Request, api_key=37, versions=(0, 3), flexible_from=2, listeners=("broker", "controller")
):
    """Add partitions to topics."""

    class CreatePartitionsTopic(Struct):
        """An element of ``topics``."""

        class CreatePartitionsAssignment(Struct):
            """An element of ``assignments``."""

            broker_ids: list[int] = array(int32)

        name: str = string()
        count: int = int32()
        assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsResponse(Response, api_key=37, versions=(0, 3), flexible_from=2):
    """Answer to CreatePartitionsRequest."""

    class CreatePartitionsTopicResult(Struct):
        """An element of ``results``."""

        name: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
