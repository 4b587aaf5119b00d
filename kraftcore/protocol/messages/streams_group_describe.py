"""StreamsGroupDescribe, api key 89."""

from __future__ import annotations

from kraftcore.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupDescribeRequest(Request, api_key=89, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Describe streams groups (KIP-1071)."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class Endpoint(Struct):
    """Shared by several fields of StreamsGroupDescribeResponse."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """Shared by several fields of StreamsGroupDescribeResponse."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    """Shared by several fields of StreamsGroupDescribeResponse."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    """Shared by several fields of StreamsGroupDescribeResponse."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class KeyValue(Struct):
    """Shared by several fields of StreamsGroupDescribeResponse."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """Shared by several fields of StreamsGroupDescribeResponse."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class StreamsGroupDescribeResponse(Response, api_key=89, versions=(0, 0), flexible_from=0):
    """Answer to StreamsGroupDescribeRequest."""

    class DescribedGroup(Struct):
        """An element of ``groups``."""

        class Topology(Struct):
            """The value of ``topology``."""

            class Subtopology(Struct):
                """An element of ``subtopologies``."""

                subtopology_id: str = string()
                source_topics: list[str] = array(string)
                repartition_sink_topics: list[str] = array(string)
                state_changelog_topics: list[TopicInfo] = array(TopicInfo)
                repartition_source_topics: list[TopicInfo] = array(TopicInfo)

            epoch: int = int32()
            subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+", default=None)

        class Member(Struct):
            """An element of ``members``."""

            member_id: str = string()
            member_epoch: int = int32()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            client_id: str = string()
            client_host: str = string()
            topology_epoch: int = int32()
            process_id: str = string()
            user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
            client_tags: list[KeyValue] = array(KeyValue)
            task_offsets: list[TaskOffset] = array(TaskOffset)
            task_end_offsets: list[TaskOffset] = array(TaskOffset)
            assignment: Assignment = struct(Assignment)
            target_assignment: Assignment = struct(Assignment)
            is_classic: bool = boolean()

        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        topology: Topology | None = struct(Topology, nullable="0+", default=None)
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
