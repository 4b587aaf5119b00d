"""ReadShareGroupStateSummary, api key 87."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class ReadShareGroupStateSummaryRequest(Request, api_key=87, versions=(0, 1), flexible_from=0, listeners=("broker",)):
    """Read where a share partition's state starts (KIP-932)."""

    class ReadStateSummaryData(Struct):
        """An element of ``topics``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            leader_epoch: int = int32()

        topic_id: Uuid = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class ReadShareGroupStateSummaryResponse(Response, api_key=87, versions=(0, 1), flexible_from=0):
    """Answer to ReadShareGroupStateSummaryRequest."""

    class ReadStateSummaryResult(Struct):
        """An element of ``results``."""

        class PartitionResult(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32()
            leader_epoch: int = int32()
            start_offset: int = int64()
            delivery_complete_count: int = int32("1+", default=-1, ignorable=True)

        topic_id: Uuid = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
