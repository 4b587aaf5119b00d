"""AssignReplicasToDirs, api key 73."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, uuid


class AssignReplicasToDirsRequest(Request, api_key=73, versions=(0, 0), flexible_from=0, listeners=("controller",)):
    """Broker to controller: which log directory holds which replica (KIP-858)."""

    class DirectoryData(Struct):
        """An element of ``directories``."""

        class TopicData(Struct):
            """An element of ``topics``."""

            class PartitionData(Struct):
                """An element of ``partitions``."""

                partition_index: int = int32()

            topic_id: Uuid = uuid()
            partitions: list[PartitionData] = array(PartitionData)

        id: Uuid = uuid()
        topics: list[TopicData] = array(TopicData)

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class AssignReplicasToDirsResponse(Response, api_key=73, versions=(0, 0), flexible_from=0):
    """Answer to AssignReplicasToDirsRequest."""

    class DirectoryData(Struct):
        """An element of ``directories``."""

        class TopicData(Struct):
            """An element of ``topics``."""

            class PartitionData(Struct):
                """An element of ``partitions``."""

                partition_index: int = int32()
                error_code: int = int16()

            topic_id: Uuid = uuid()
            partitions: list[PartitionData] = array(PartitionData)

        id: Uuid = uuid()
        topics: list[TopicData] = array(TopicData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryData] = array(DirectoryData)
