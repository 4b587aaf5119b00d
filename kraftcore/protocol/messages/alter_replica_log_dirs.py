"""AlterReplicaLogDirs, api key 34."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string


class AlterReplicaLogDirsRequest(Request, api_key=34, versions=(1, 2), flexible_from=2, listeners=("broker",)):
    """Move replicas between a broker's log directories."""

    class AlterReplicaLogDir(Struct):
        """An element of ``dirs``."""

        class AlterReplicaLogDirTopic(Struct):
            """An element of ``topics``."""

            name: str = string()
            partitions: list[int] = array(int32)

        path: str = string()
        topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirsResponse(Response, api_key=34, versions=(1, 2), flexible_from=2):
    """Answer to AlterReplicaLogDirsRequest."""

    class AlterReplicaLogDirTopicResult(Struct):
        """An element of ``results``."""

        class AlterReplicaLogDirPartitionResult(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()

        topic_name: str = string()
        partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
