"""StreamsGroupHeartbeat, api key 88."""

from __future__ import annotations

from kraftcore.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class KeyValue(Struct):
    """Shared by several fields of StreamsGroupHeartbeatRequest."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """Shared by several fields of StreamsGroupHeartbeatRequest."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Endpoint(Struct):
    """Shared by several fields of StreamsGroupHeartbeatRequest."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """Shared by several fields of StreamsGroupHeartbeatRequest."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    """Shared by several fields of StreamsGroupHeartbeatRequest."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class StreamsGroupHeartbeatRequest(Request, api_key=88, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Join, stay in or leave a streams group (KIP-1071)."""

    class Topology(Struct):
        """The value of ``topology``."""

        class Subtopology(Struct):
            """An element of ``subtopologies``."""

            class CopartitionGroup(Struct):
                """An element of ``copartition_groups``."""

                source_topics: list[int] = array(int16)
                source_topic_regex: list[int] = array(int16)
                repartition_source_topics: list[int] = array(int16)

            subtopology_id: str = string()
            source_topics: list[str] = array(string)
            source_topic_regex: list[str] = array(string)
            state_changelog_topics: list[TopicInfo] = array(TopicInfo)
            repartition_sink_topics: list[str] = array(string)
            repartition_source_topics: list[TopicInfo] = array(TopicInfo)
            copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)

        epoch: int = int32()
        subtopologies: list[Subtopology] = array(Subtopology)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    shutdown_application: bool = boolean()


class Status(Struct):
    """Shared by several fields of StreamsGroupHeartbeatResponse."""

    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(Struct):
    """Shared by several fields of StreamsGroupHeartbeatResponse."""

    topic: str = string()
    partitions: list[int] = array(int32)


class StreamsGroupHeartbeatResponse(Response, api_key=88, versions=(0, 0), flexible_from=0):
    """Answer to StreamsGroupHeartbeatRequest."""

    class EndpointToPartitions(Struct):
        """An element of ``partitions_by_user_endpoint``."""

        user_endpoint: Endpoint = struct(Endpoint)
        active_partitions: list[TopicPartition] = array(TopicPartition)
        standby_partitions: list[TopicPartition] = array(TopicPartition)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable="0+", default=None
    )
