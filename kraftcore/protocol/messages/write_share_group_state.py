"""WriteShareGroupState, api key 85."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class WriteShareGroupStateRequest(Request, api_key=85, versions=(0, 1), flexible_from=0, listeners=("broker",)):
    """Write a share partition's state (KIP-932)."""

    class WriteStateData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            class StateBatch(Struct):
                """An element of ``state_batches``."""

                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()
                delivery_count: int = int16()

            partition: int = int32()
            state_epoch: int = int32()
            leader_epoch: int = int32()
            start_offset: int = int64()
            delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
            state_batches: list[StateBatch] = array(StateBatch)

        topic_id: Uuid = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class WriteShareGroupStateResponse(Response, api_key=85, versions=(0, 1), flexible_from=0):
    """Answer to WriteShareGroupStateRequest."""

    class WriteStateResult(Struct):
        """An element of ``results``."""

        class PartitionResult(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: Uuid = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[WriteStateResult] = array(WriteStateResult)
