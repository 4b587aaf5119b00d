"""ReadShareGroupState, api key 84."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class ReadShareGroupStateRequest(Request, api_key=84, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Read a share partition's state (KIP-932)."""

    class ReadStateData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            leader_epoch: int = int32()

        topic_id: Uuid = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class ReadShareGroupStateResponse(Response, api_key=84, versions=(0, 0), flexible_from=0):
    """Answer to ReadShareGroupStateRequest."""

    class ReadStateResult(Struct):
        """An element of ``results``."""

        class PartitionResult(Struct):
            """An element of ``partitions``."""

            class StateBatch(Struct):
                """An element of ``state_batches``."""

                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()
                delivery_count: int = int16()

            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32()
            start_offset: int = int64()
            state_batches: list[StateBatch] = array(StateBatch)

        topic_id: Uuid = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[ReadStateResult] = array(ReadStateResult)
