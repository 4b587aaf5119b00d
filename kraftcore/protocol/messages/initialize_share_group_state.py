"""InitializeShareGroupState, api key 83."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class InitializeShareGroupStateRequest(Request, api_key=83, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Create a share partition's state (KIP-932)."""

    class InitializeStateData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            state_epoch: int = int32()
            start_offset: int = int64()

        topic_id: Uuid = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class InitializeShareGroupStateResponse(Response, api_key=83, versions=(0, 0), flexible_from=0):
    """Answer to InitializeShareGroupStateRequest."""

    class InitializeStateResult(Struct):
        """An element of ``results``."""

        class PartitionResult(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: Uuid = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[InitializeStateResult] = array(InitializeStateResult)
