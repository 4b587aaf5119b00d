"""ShareGroupDescribe, api key 77."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, struct, uuid


class ShareGroupDescribeRequest(Request, api_key=77, versions=(1, 1), flexible_from=0, listeners=("broker",)):
    """Describe share groups (KIP-932)."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Shared by several fields of ShareGroupDescribeResponse."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    """Shared by several fields of ShareGroupDescribeResponse."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupDescribeResponse(Response, api_key=77, versions=(1, 1), flexible_from=0):
    """Answer to ShareGroupDescribeRequest."""

    class DescribedGroup(Struct):
        """An element of ``groups``."""

        class Member(Struct):
            """An element of ``members``."""

            member_id: str = string()
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            assignment: Assignment = struct(Assignment)

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
