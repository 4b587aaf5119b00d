"""DescribeLogDirs, api key 35."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class DescribeLogDirsRequest(Request, api_key=35, versions=(1, 5), flexible_from=2, listeners=("broker",)):
    """Sizes of replicas by log directory."""

    class DescribableLogDirTopic(Struct):
        """An element of ``topics``."""

        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsResponse(Response, api_key=35, versions=(1, 5), flexible_from=2):
    """Answer to DescribeLogDirsRequest."""

    class DescribeLogDirsResult(Struct):
        """An element of ``results``."""

        class DescribeLogDirsTopic(Struct):
            """An element of ``topics``."""

            class DescribeLogDirsPartition(Struct):
                """An element of ``partitions``."""

                partition_index: int = int32()
                partition_size: int = int64()
                offset_lag: int = int64()
                is_future_key: bool = boolean()

            name: str = string()
            partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)

        error_code: int = int16()
        log_dir: str = string()
        topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
        total_bytes: int = int64("4+", default=-1, ignorable=True)
        usable_bytes: int = int64("4+", default=-1, ignorable=True)
        is_cordoned: bool = boolean("5+", ignorable=True)

    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
