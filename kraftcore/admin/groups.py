"""Consumer groups: members, committed offsets. Source: KIP-222, 396, 496, 699, 709, 848; Kafka 4.3.1's client.

A group's coordinator is looked up before each call, and again while it moves or loads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from kraftcore.admin.calls import all_told, by_topic, settle
from kraftcore.admin.router import BACKOFF_MS, Tries, UnknownNodeError, raise_refusal, refusal
from kraftcore.admin.topics import TopicCalls
from kraftcore.core.wire.codec import decode
from kraftcore.errors import (
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
    UnsupportedVersionError,
)
from kraftcore.protocol.data.consumer_protocol_assignment import ConsumerProtocolAssignment
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kraftcore.protocol.schema import Request, Response
from kraftcore.protocol.topics import TopicPartition

R = TypeVar("R", bound=Response)
EARLIEST, LATEST = -2, -1
"""In place of a timestamp: a partition's first offset, and the offset behind its last record."""
_MOVED = {
    ErrorCode.NOT_COORDINATOR.name,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name,
}
_KEYS_SINCE = 4  # version of FindCoordinator (KIP-699)
_GROUPS_SINCE, _BY_NAME = 8, 9  # versions of OffsetFetch; topics are named up to version 9
_CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer in a group.

    Attributes:
        id: given by the coordinator.
        instance_id: of a static member (KIP-345); None: it is not static.
        client_id: given by the client.
        host: the client's address, ``/127.0.0.1``.
        partitions: assigned to the member.
        target: to be assigned to it; None: the group is of the classic protocol.
        epoch: of the member; None: the group is of the classic protocol.
        is_classic: whether, in a group of the new protocol, it uses the classic one; None: unknown.
    """

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    is_classic: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group.

    Attributes:
        id: its name.
        state: ``Empty``, ``Stable``, ``PreparingRebalance``, ``CompletingRebalance``, ``Assigning``, ``Reconciling``,
            ``Dead``.
        assignor: name of the assignor; empty if nothing was assigned.
        coordinator_id: node id of its coordinator.
        members: in the coordinator's order.
        epoch: of the group; None: it is of the classic protocol.
        assignment_epoch: of the target assignment; None: the group is of the classic protocol.
    """

    id: str
    state: str
    assignor: str
    coordinator_id: int
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in a partition.

    Attributes:
        offset: of the next record.
        leader_epoch: of the last record that was read; None: unknown.
        metadata: the consumer's own text.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class GroupCalls(TopicCalls):
    """Calls about consumer groups; see ``AdminClient`` for the errors that all of them raise. Only through brokers."""

    async def describe_group(self, group: str) -> GroupDescription:
        """A consumer group, of either protocol, and its members.

        Raises:
            RefusedError: GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID.
            RemoteProtocolError: a member's assignment cannot be read.
        """
        self._need_brokers()
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        try:
            coordinator_id, found = await self._at_coordinator(
                group, "describeConsumerGroups", request, ConsumerGroupDescribeResponse, _check_described
            )
        except UnsupportedVersionError:
            return await self._describe_classic(group)
        except RefusedError as error:
            if error.error not in (ErrorCode.GROUP_ID_NOT_FOUND.name, ErrorCode.UNSUPPORTED_VERSION.name):
                raise
            return await self._describe_classic(group)
        [told] = found.groups
        members = tuple(
            GroupMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                _partitions(each.assignment),
                _partitions(each.target_assignment),
                each.member_epoch,
                None if each.member_type < 0 else each.member_type == 0,
            )
            for each in told.members
        )
        return GroupDescription(
            group,
            told.group_state,
            told.assignor_name,
            coordinator_id,
            members,
            told.group_epoch,
            told.assignment_epoch,
        )

    async def _describe_classic(self, group: str) -> GroupDescription:
        request = DescribeGroupsRequest(groups=[group])
        coordinator_id, found = await self._at_coordinator(
            group, "describeConsumerGroups", request, DescribeGroupsResponse, _check_described
        )
        [told] = found.groups
        if told.protocol_type not in ("", _CONSUMER):
            raise RemoteProtocolError(f"GroupId {group} is not a consumer group ({told.protocol_type}).")
        members = tuple(
            GroupMember(
                each.member_id, each.group_instance_id, each.client_id, each.client_host, _read(each.member_assignment)
            )
            for each in told.members
        )
        return GroupDescription(group, told.group_state, told.protocol_data, coordinator_id, members)

    async def committed_offsets(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's committed offsets, by partition; empty for a missing group.

        Raises:
            RefusedError: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, or of a partition.
        """
        self._need_brokers()
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)

        def check(answer: OffsetFetchResponse) -> None:
            for told in answer.groups:
                raise_refusal(told.error_code, None)
                for topic in told.topics:
                    for each in topic.partitions:
                        raise_refusal(each.error_code, None)

        _, found = await self._at_coordinator(
            group,
            "listConsumerGroupOffsets",
            OffsetFetchRequest(groups=[asked]),
            OffsetFetchResponse,
            check,
            min_version=_GROUPS_SINCE,
            max_version=_BY_NAME,
        )
        return {
            TopicPartition(topic.name, each.partition_index): CommittedOffset(
                each.committed_offset,
                None if each.committed_leader_epoch < 0 else each.committed_leader_epoch,
                each.metadata or "",
            )
            for told in found.groups
            for topic in told.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members; a missing group is created.

        Raises:
            PartlyRefusedError: by partition. UNKNOWN_MEMBER_ID: the group has members. UNKNOWN_TOPIC_OR_PARTITION,
                TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED.
        """
        self._need_brokers()
        if not offsets:
            return
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                topic(
                    name=name,
                    partitions=[
                        part(
                            partition_index=number,
                            committed_offset=offsets[TopicPartition(name, number)],
                            committed_metadata="",
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in by_topic(offsets).items()
            ],
        )

        def check(answer: OffsetCommitResponse) -> None:
            _check_moved(each.error_code for told in answer.topics for each in told.partitions)

        _, found = await self._at_coordinator(
            group, "alterConsumerGroupOffsets", request, OffsetCommitResponse, check, max_version=_BY_NAME
        )
        told = {
            TopicPartition(result.name, each.partition_index): refusal(each.error_code, None) or True
            for result in found.topics
            for each in result.partitions
        }
        settle(all_told(offsets, told))

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets in partitions that none of its members reads (KIP-496).

        Raises:
            RefusedError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID.
            PartlyRefusedError: by partition. GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION,
                TOPIC_AUTHORIZATION_FAILED.
        """
        self._need_brokers()
        wanted = tuple(dict.fromkeys(partitions))
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                topic(
                    name=name,
                    partitions=[topic.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                )
                for name, numbers in by_topic(wanted).items()
            ],
        )
        _, found = await self._at_coordinator(
            group,
            "deleteConsumerGroupOffsets",
            request,
            OffsetDeleteResponse,
            lambda answer: raise_refusal(answer.error_code, None),
        )
        told = {
            TopicPartition(result.name, each.partition_index): refusal(each.error_code, None) or True
            for result in found.topics
            for each in result.partitions
        }
        settle(all_told(wanted, told))

    async def delete_group(self, group: str) -> None:
        """Delete a group that has no members, with its committed offsets.

        Raises:
            RefusedError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID.
        """
        self._need_brokers()

        def check(answer: DeleteGroupsResponse) -> None:
            for each in answer.results:
                raise_refusal(each.error_code, None)

        request = DeleteGroupsRequest(groups_names=[group])
        await self._at_coordinator(group, "deleteConsumerGroups", request, DeleteGroupsResponse, check)

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int = LATEST
    ) -> Mapping[TopicPartition, int]:
        """Offsets of partitions, from their leaders.

        Args:
            partitions: to look up.
            timestamp: milliseconds since 1970, for the first record that is not older; or ``EARLIEST``, ``LATEST``.

        Returns:
            Offsets by partition; -1: there is no such record.

        Raises:
            RefusedError: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED.
            UnreachableError: a partition has no leader, or its topic has no such partition.
        """
        self._need_brokers()
        left = dict.fromkeys(partitions)
        found: dict[TopicPartition, int] = {}
        tries = Tries(last_failure="no leader is known of a partition, or there is no such partition")
        with trio.move_on_after(self._router.call_timeout_ms / 1000):
            while left:
                by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
                for topic in (await self.describe_topics({each.topic for each in left})).values():
                    for part in topic.partitions:
                        name = TopicPartition(topic.name, part.number)
                        if name in left and part.leader_id is not None:
                            by_leader[part.leader_id].append(name)
                for leader_id, asked in by_leader.items():
                    found.update(await self._offsets_at(leader_id, asked, timestamp, tries))
                left = dict.fromkeys(each for each in left if each not in found)
                if left:
                    await trio.sleep(BACKOFF_MS / 1000)
        if left:
            raise tries.timed_out("listOffsets")
        return found

    async def _offsets_at(
        self, leader_id: int, partitions: list[TopicPartition], timestamp: int, tries: Tries
    ) -> dict[TopicPartition, int]:
        topic = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers
                    ],
                )
                for name, numbers in by_topic(partitions).items()
            ],
        )
        found: dict[TopicPartition, int] = {}
        try:
            response = await self._router.call(
                "listOffsets", request, ListOffsetsResponse, lambda _: None, node_id=leader_id, once=True
            )
        except (UnreachableError, UnknownNodeError) as failure:
            tries.last_failure = str(failure)
            return found
        for told in response.topics:
            for each in told.partitions:
                error = refusal(each.error_code, None)
                if error is None:
                    found[TopicPartition(told.name, each.partition_index)] = each.offset
                elif ErrorCode[error.error].retriable:  # the leader has moved, or does not know that it leads yet
                    tries.last_failure = f"{told.name}-{each.partition_index}: {error.message}"
                else:
                    raise error
        return found

    async def _coordinator(self, group: str, tries: Tries) -> int:
        def check(answer: FindCoordinatorResponse) -> None:
            for each in answer.coordinators:
                raise_refusal(each.error_code, each.error_message)

        response = await self._router.call(
            "findCoordinator",
            FindCoordinatorRequest(coordinator_keys=[group]),
            FindCoordinatorResponse,
            check,
            min_version=_KEYS_SINCE,
            retry_refusals=True,
            tries=tries,
        )
        if len(response.coordinators) != 1:
            raise RemoteProtocolError(f"the answer names {len(response.coordinators)} coordinators of {group}")
        return response.coordinators[0].node_id

    async def _at_coordinator(
        self,
        group: str,
        name: str,
        request: Request,
        response_type: type[R],
        check: Callable[[R], None],
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> tuple[int, R]:
        """Ask a group's coordinator, which may move meanwhile; returns its node id, and the answer."""
        tries, looking = Tries(), Tries()  # apart, for a lost look-up of the coordinator changes nothing
        with trio.move_on_after(self._router.call_timeout_ms / 1000):
            while True:
                coordinator_id = await self._coordinator(group, looking)
                try:
                    response = await self._router.call(
                        name,
                        request,
                        response_type,
                        check,
                        min_version=min_version,
                        max_version=max_version,
                        node_id=coordinator_id,
                        tries=tries,
                        once=True,
                    )
                except UnreachableError:
                    pass  # ``tries`` says why
                except UnknownNodeError as error:
                    tries.last_failure = str(error)
                except RefusedError as error:
                    if error.error not in _MOVED:
                        raise
                    tries.last_failure = str(error)
                else:
                    return coordinator_id, response
                await trio.sleep(BACKOFF_MS / 1000)
        tries.last_failure = tries.last_failure or looking.last_failure
        tries.survey = tries.survey or looking.survey
        raise tries.timed_out(name)


def _check_described(answer: Any) -> None:
    if len(answer.groups) != 1:
        raise RemoteProtocolError(f"the answer is about {len(answer.groups)} groups, not one")
    for each in answer.groups:
        raise_refusal(each.error_code, each.error_message)


def _check_moved(codes: Iterable[int]) -> None:
    """Have the coordinator looked up again if an error in an answer says that the node is not the coordinator."""
    for code in codes:
        error = refusal(code, None)
        if error is not None and error.error in _MOVED:
            raise error


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )


def _read(data: bytes) -> tuple[TopicPartition, ...]:
    """Read a member's assignment in the format of Kafka's consumers; fields of later versions are ignored."""
    if not data:
        return ()
    low, high = ConsumerProtocolAssignment.schema.versions or (0, 0)
    version = int.from_bytes(data[:2], signed=True)
    if len(data) < 2 or version < low:
        raise RemoteProtocolError(f"an assignment of version {version} cannot be read")
    found = decode(ConsumerProtocolAssignment, bytes(data[2:]), min(version, high))
    return tuple(
        TopicPartition(topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions
    )
