"""ConsumerGroupDescribe, api key 69."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Request, api_key=69, versions=(0, 1), flexible_from=0, listeners=("broker",)):
    """Describe consumer groups of the new protocol (KIP-848)."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Shared by several fields of ConsumerGroupDescribeResponse."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    """Shared by several fields of ConsumerGroupDescribeResponse."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupDescribeResponse(Response, api_key=69, versions=(0, 1), flexible_from=0):
    """Answer to ConsumerGroupDescribeRequest."""

    class DescribedGroup(Struct):
        """An element of ``groups``."""

        class Member(Struct):
            """An element of ``members``."""

            member_id: str = string()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            subscribed_topic_regex: str | None = string(nullable="0+", default=None)
            assignment: Assignment = struct(Assignment)
            target_assignment: Assignment = struct(Assignment)
            member_type: int = int8("1+", default=-1, ignorable=True)

        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
