"""The requests about groups that a broker offers, in which versions, and what each needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kraftcore.node.registry import Access, ListenerType, RequestHandler
from kraftcore.plugins.broker.broker_parts import BrokerParts
from kraftcore.plugins.broker.groups.requests import GroupRequests
from kraftcore.plugins.broker.groups.shard import commit_error, txn_commit_error
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest
from kraftcore.protocol.messages.list_groups import ListGroupsRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kraftcore.protocol.messages.sync_group import SyncGroupRequest
from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kraftcore.protocol.schema import Response

# OffsetCommit and OffsetFetch name topics by id from version 10 on (Kafka 4.1). A broker that obeys control requests
# offers what Kafka 3.9 did.
_BY_NAME, _BY_ID = 9, 10


def group_handlers(parts: BrokerParts) -> Iterator[RequestHandler]:
    """What a broker answers about groups, on its listeners."""
    is_kraft = parts.image is not None
    groups = GroupRequests(
        parts.groups,
        parts.cache,
        parts.leaders,
        parts.permits,
        now_ms=parts.wall_ms,
        background=parts.background,
        transactions=parts.transactions_topic,
        gate=parts.gate,
        refusals=parts.refusals,
    )
    newest = _BY_ID if is_kraft else _BY_NAME
    # Those without an operation ask for each group, or for each topic, themselves.
    table: tuple[tuple[Any, tuple[int, int], Any, str], ...] = (
        (FindCoordinatorRequest, (0, 6), groups.find_coordinator, ""),
        (JoinGroupRequest, (0, 9), groups.join, "READ"),
        (SyncGroupRequest, (0, 5), groups.sync, "READ"),
        (HeartbeatRequest, (0, 4), groups.heartbeat, "READ"),
        (LeaveGroupRequest, (0, 5), groups.leave, "READ"),
        (OffsetCommitRequest, (2, newest), groups.commit_offsets, "READ"),
        (OffsetFetchRequest, (1, newest), groups.fetch_offsets, ""),
        (OffsetDeleteRequest, (0, 0), groups.delete_offsets, "DELETE"),
        (DescribeGroupsRequest, (0, 6), groups.describe_groups, ""),
        (ListGroupsRequest, (0, 5), groups.list_groups, ""),
        (DeleteGroupsRequest, (0, 2), groups.delete_groups, ""),
    )
    if is_kraft:
        table += ((ConsumerGroupHeartbeatRequest, (0, 1), groups.consumer_heartbeat, "READ"),)
    if parts.gate is not None:
        table += ((TxnOffsetCommitRequest, (0, 5), groups.commit_in_transaction, "READ"),)
    for kind, versions, respond, operation in table:
        yield RequestHandler(
            kind,
            respond,
            Access(operation, "GROUP", _group) if operation else None,
            versions=versions,
            owner="broker",
            is_vital=False,
            refuse=_REFUSE.get(kind),
            listener_type=ListenerType.BROKER,
        )


def _group(request: Any) -> tuple[str, ...]:
    return (request.group_id,)


def _refuse_commit(
    request: OffsetCommitRequest, version: int, error: ErrorCode, text: str | None
) -> OffsetCommitResponse:
    return commit_error(request, error)


def _refuse_in_transaction(
    request: TxnOffsetCommitRequest, version: int, error: ErrorCode, text: str | None
) -> TxnOffsetCommitResponse:
    return txn_commit_error(request, error)


_REFUSE: Final[Mapping[Any, Callable[[Any, int, ErrorCode, str | None], Response]]] = {
    OffsetCommitRequest: _refuse_commit,
    TxnOffsetCommitRequest: _refuse_in_transaction,
}
