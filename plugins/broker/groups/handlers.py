"""The requests about groups that a broker offers, in which versions, and what each needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraftcore.node.registry import Access, ListenerType, RequestHandler
from kraftcore.plugins.broker.core import Core
from kraftcore.plugins.broker.groups.requests import GroupRequests
from kraftcore.plugins.broker.groups.shard import commit_error
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest
from kraftcore.protocol.messages.list_groups import ListGroupsRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kraftcore.protocol.messages.sync_group import SyncGroupRequest

_KEYS_SINCE = 4  # version of FindCoordinator
_GROUPS_SINCE = 8  # version of OffsetFetch
# OffsetCommit and OffsetFetch name topics by id from version 10 on (Kafka 4.1). A broker that obeys control requests
# offers what Kafka 3.9 did.
_BY_NAME, _BY_ID = 9, 10


def group_handlers(core: Core) -> Iterator[RequestHandler]:
    """What a broker answers about groups, on its listeners."""
    groups = GroupRequests(core.groups, core.cache, core.leaders, core.now_ms)
    newest = _BY_NAME if core.image is None else _BY_ID
    # (request, versions, who answers, operation on the groups, which, how all of it is refused)
    table: tuple[tuple[Any, tuple[int, int], Any, str, Any, Any], ...] = (
        (FindCoordinatorRequest, (0, 6), groups.find_coordinator, "DESCRIBE", _keys, _refuse_find),
        (JoinGroupRequest, (0, 9), groups.join, "READ", _group, None),
        (SyncGroupRequest, (0, 5), groups.sync, "READ", _group, None),
        (HeartbeatRequest, (0, 4), groups.heartbeat, "READ", _group, None),
        (LeaveGroupRequest, (0, 5), groups.leave, "READ", _group, None),
        (OffsetCommitRequest, (2, newest), groups.commit_offsets, "READ", _group, _refuse_commit),
        (OffsetFetchRequest, (1, newest), groups.fetch_offsets, "DESCRIBE", _fetched_groups, _refuse_fetch),
        (OffsetDeleteRequest, (0, 0), groups.delete_offsets, "DELETE", _group, None),
        (DescribeGroupsRequest, (0, 6), groups.describe_groups, "DESCRIBE", _described, _refuse_describe),
        (ListGroupsRequest, (0, 5), groups.list_groups, "", None, None),
        (DeleteGroupsRequest, (0, 2), groups.delete_groups, "DELETE", _deleted, _refuse_delete),
    )
    for kind, versions, respond, operation, names, refuse in table:
        access = Access(operation, "GROUP", names) if names is not None else Access("DESCRIBE")
        yield RequestHandler(
            kind,
            respond,
            access,
            versions=versions,
            owner="broker",
            is_vital=False,
            refuse=refuse,
            listener_type=ListenerType.BROKER,
        )


def _group(request: Any) -> tuple[str, ...]:
    return (request.group_id,)


def _keys(request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys or [request.key]


def _fetched_groups(request: OffsetFetchRequest) -> list[str]:
    return [each.group_id for each in request.groups] or [request.group_id]


def _described(request: DescribeGroupsRequest) -> list[str]:
    return request.groups


def _deleted(request: DeleteGroupsRequest) -> list[str]:
    return request.groups_names


def _refuse_find(
    request: FindCoordinatorRequest, version: int, error: ErrorCode, text: str | None
) -> FindCoordinatorResponse:
    if version < _KEYS_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=text, node_id=-1, port=-1)
    kind = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        coordinators=[
            kind(key=key, node_id=-1, port=-1, error_code=error, error_message=text) for key in request.coordinator_keys
        ]
    )


def _refuse_commit(
    request: OffsetCommitRequest, version: int, error: ErrorCode, text: str | None
) -> OffsetCommitResponse:
    return commit_error(request, error)


def _refuse_fetch(request: OffsetFetchRequest, version: int, error: ErrorCode, text: str | None) -> OffsetFetchResponse:
    if version < _GROUPS_SINCE:
        return OffsetFetchResponse(error_code=error)
    kind = OffsetFetchResponse.OffsetFetchResponseGroup
    return OffsetFetchResponse(groups=[kind(group_id=each.group_id, error_code=error) for each in request.groups])


def _refuse_describe(
    request: DescribeGroupsRequest, version: int, error: ErrorCode, text: str | None
) -> DescribeGroupsResponse:
    kind = DescribeGroupsResponse.DescribedGroup
    return DescribeGroupsResponse(groups=[kind(group_id=each, error_code=error) for each in request.groups])


def _refuse_delete(
    request: DeleteGroupsRequest, version: int, error: ErrorCode, text: str | None
) -> DeleteGroupsResponse:
    kind = DeleteGroupsResponse.DeletableGroupResult
    return DeleteGroupsResponse(results=[kind(group_id=each, error_code=error) for each in request.groups_names])
