"""DeleteRecords, api key 21."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DeleteRecordsRequest(Request, api_key=21, versions=(0, 2), flexible_from=2, listeners=("broker",)):
    """Raise the log start offset of partitions."""

    class DeleteRecordsTopic(Struct):
        """An element of ``topics``."""

        class DeleteRecordsPartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            offset: int = int64()

        name: str = string()
        partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsResponse(Response, api_key=21, versions=(0, 2), flexible_from=2):
    """Answer to DeleteRecordsRequest."""

    class DeleteRecordsTopicResult(Struct):
        """An element of ``topics``."""

        class DeleteRecordsPartitionResult(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            low_watermark: int = int64()
            error_code: int = int16()

        name: str = string()
        partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
