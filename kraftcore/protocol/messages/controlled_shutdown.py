"""ControlledShutdown, api key 7."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Request, api_key=7, removed_versions=(0, 3), flexible_from=3, header_versions={0: 0}):
    """ZooKeeper-era broker to controller: move leadership away before it stops."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class ControlledShutdownResponse(Response, api_key=7, removed_versions=(0, 3), flexible_from=3):
    """Answer to ControlledShutdownRequest."""

    class RemainingPartition(Struct):
        """An element of ``remaining_partitions``."""

        topic_name: str = string()
        partition_index: int = int32()

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
