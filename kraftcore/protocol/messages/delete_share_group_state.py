"""DeleteShareGroupState, api key 86."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteShareGroupStateRequest(Request, api_key=86, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Delete a share partition's state (KIP-932)."""

    class DeleteStateData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition: int = int32()

        topic_id: Uuid = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class DeleteShareGroupStateResponse(Response, api_key=86, versions=(0, 0), flexible_from=0):
    """Answer to DeleteShareGroupStateRequest."""

    class DeleteStateResult(Struct):
        """An element of ``results``."""

        class PartitionResult(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: Uuid = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[DeleteStateResult] = array(DeleteStateResult)
