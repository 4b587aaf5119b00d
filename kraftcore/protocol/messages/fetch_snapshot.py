"""FetchSnapshot, api key 59."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Records,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uint16,
    uuid,
)


class FetchSnapshotRequest(Request, api_key=59, versions=(0, 1), flexible_from=0, listeners=("controller",)):
    """Read a slice of a metadata snapshot (KIP-630)."""

    class TopicSnapshot(Struct):
        """An element of ``topics``."""

        class PartitionSnapshot(Struct):
            """An element of ``partitions``."""

            class SnapshotId(Struct):
                """The value of ``snapshot_id``."""

                end_offset: int = int64()
                epoch: int = int32()

            partition: int = int32()
            current_leader_epoch: int = int32()
            snapshot_id: SnapshotId = struct(SnapshotId)
            position: int = int64()
            replica_directory_id: Uuid = uuid("1+", tagged="1+", tag=0, ignorable=True)

        name: str = string()
        partitions: list[PartitionSnapshot] = array(PartitionSnapshot)

    cluster_id: str | None = string(nullable="0+", default=None, tagged="0+", tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class FetchSnapshotResponse(Response, api_key=59, versions=(0, 1), flexible_from=0):
    """Answer to FetchSnapshotRequest."""

    class TopicSnapshot(Struct):
        """An element of ``topics``."""

        class PartitionSnapshot(Struct):
            """An element of ``partitions``."""

            class SnapshotId(Struct):
                """The value of ``snapshot_id``."""

                end_offset: int = int64()
                epoch: int = int32()

            class LeaderIdAndEpoch(Struct):
                """The value of ``current_leader``."""

                leader_id: int = int32()
                leader_epoch: int = int32()

            index: int = int32()
            error_code: int = int16()
            snapshot_id: SnapshotId = struct(SnapshotId)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tagged="0+", tag=0)
            size: int = int64()
            position: int = int64()
            unaligned_records: Records = record_batches()

        name: str = string()
        partitions: list[PartitionSnapshot] = array(PartitionSnapshot)

    class NodeEndpoint(Struct):
        """An element of ``node_endpoints``."""

        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[TopicSnapshot] = array(TopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tagged="1+", tag=0)
