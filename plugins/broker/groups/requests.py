"""What clients ask of a group coordinator: finds the shard, and gathers what several shards answer.

Source: Kafka 4.3.1, KafkaApis and GroupCoordinatorService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import RefusedError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.repeats import Repeats
from kraftcore.plugins.broker.api.transaction_gate import Client, TransactionGate, Verified
from kraftcore.plugins.broker.groups.coordinator import GroupCoordinator
from kraftcore.plugins.broker.groups.effects import Caller, ShardEffects
from kraftcore.plugins.broker.groups.membership import write_error
from kraftcore.plugins.broker.groups.shard import Shard, commit_error, txn_commit_error
from kraftcore.plugins.broker.groups.topic import partition_of
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.transactions_topic import TransactionsTopic
from kraftcore.plugins.broker.unsupported import Refusals, Unsupported
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.plugins.broker.work.turns import InTurns, Turn, finish, in_turns
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftcore.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kraftcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kraftcore.protocol.topics import TRANSACTIONS_TOPIC
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

_logger = logging.getLogger("kraftcore.broker")
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_OF_KEY = {_GROUP_KEY: ResourceType.GROUP, _TRANSACTION_KEY: ResourceType.TRANSACTIONAL_ID}
_DENIED = {
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NO_NODE = -1
_PART_BYTES = 200  # of a partition of a request in memory, about
_KEYS_SINCE = 4  # version of FindCoordinator
_GROUP_ERROR_SINCE, _GROUPS_SINCE = 2, 8  # versions of OffsetFetch
_ABORTABLE_SINCE, _ADDS_NOTHING_SINCE = 4, 5  # versions of TxnOffsetCommit (KIP-890)
_BY_ID = 10  # version of OffsetCommit and OffsetFetch
_NULL_PROTOCOL_SINCE = 7  # version of JoinGroup
_PROTOCOL_SINCE = 5  # version of SyncGroup

_CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchTopic = _FetchGroup.OffsetFetchResponseTopics


class _Reply:
    """A ticket that changes the answer, and passes it on.

    What one client is told may come up in another's event: an error in it breaks the connection of the one alone.
    """

    __slots__ = ("_context", "_then")

    def __init__(self, context: RequestContext, then: Callable[[Any], None]) -> None:
        self._context = context
        self._then = then

    def answer(self, response: Any, /) -> None:
        try:
            self._then(response)
        except Exception:
            _logger.exception("%s cannot be told %s", self._context.asker.peer, type(response).__name__)
            self._context.close()


class _Gathering:
    """Answers of several shards that go out together."""

    __slots__ = ("_context", "_done", "_left", "parts")

    def __init__(self, context: RequestContext, count: int, done: Callable[[list[Any]], None]) -> None:
        self._context = context
        self.parts: list[Any] = [None] * count
        self._left = count
        self._done = done
        if count == 0:
            done([])

    def ticket(self, number: int) -> _Reply:
        return _Reply(self._context, partial(self.take, number))

    def take(self, number: int, response: Any) -> None:
        self.parts[number] = response
        self._left -= 1
        if self._left == 0:
            self._done(self.parts)


class GroupRequests:
    """Answers the requests about groups, and FindCoordinator.

    Args:
        coordinator: has the shards.
        cache: the partitions and brokers of the cluster.
        leaders: of partitions.
        permits: who may do what.
        now_ms: the time, by the clock on the wall.
        background: where those wait who ask for a coordinator while the topic of groups is made.
        transactions: has ``__transaction_state`` made and led; None: there is no metadata log, and InitProducerId is
            not answered.
        gate: asks coordinators of transactions; None: no offsets are taken in transactions.
        refusals: told who joins by a protocol that is not coordinated here.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        cache: MetadataCache,
        leaders: Leaders,
        permits: Permits,
        now_ms: Callable[[], int],
        background: Background,
        transactions: TransactionsTopic | None = None,
        gate: TransactionGate | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._refusals = refusals
        self._background = background
        self._gate = gate
        self._transactions = transactions
        self._coordinator = coordinator
        self._cache = cache
        self._leaders = leaders
        self._permits = permits
        self._now_ms = now_ms

    # --- where is it --------------------------------------------------------------------------------------------------

    @in_turns
    def find_coordinator(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> InTurns[FindCoordinatorResponse | None]:
        """FindCoordinator: ``__consumer_offsets`` is made when a client first asks, which waits a second at most.

        Kafka answers COORDINATOR_NOT_AVAILABLE at once, as this broker does when it cannot be made; librdkafka asks
        again after half a second.

        This broker coordinates no transactions: it says where ``__transaction_state`` is led, and has that made where
        there are brokers of Kafka to lead it. Where there are none it names itself: clients repeat for ever what is not
        available, and give up when it refuses their InitProducerId. A partition that this broker leads, while a broker
        of Kafka has a replica that may come to lead, is COORDINATOR_NOT_AVAILABLE, as each is without InitProducerId.
        Keys of other types are INVALID_REQUEST.
        """
        told = yield from self._coordinators(request, context)
        is_of_groups = request.key_type == _GROUP_KEY
        if is_of_groups and self._coordinator.is_topic_coming and not self._background.is_full:
            self._background.answer(context, lambda: self._await_coordinators(request, context, told))
            return None
        return told

    async def _await_coordinators(
        self, request: FindCoordinatorRequest, context: RequestContext, told: FindCoordinatorResponse
    ) -> FindCoordinatorResponse:
        keys = request.coordinator_keys if context.version >= _KEYS_SINCE else [request.key]
        is_known = await self._coordinator.wait_topic(keys)
        return await finish(self._coordinators(request, context)) if is_known else told

    def _coordinators(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> InTurns[FindCoordinatorResponse]:
        if context.version >= _KEYS_SINCE:
            response, turn = FindCoordinatorResponse(), Turn()
            for key in request.coordinator_keys:
                response.coordinators.append(self._found(key, request, context))
                if turn.is_over():
                    yield
            return response
        found = self._found(request.key, request, context)
        message = found.error_message if found.error_code else ErrorCode.NONE.name
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _found(
        self, key: str, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse.Coordinator:
        answer = FindCoordinatorResponse.Coordinator(key=key, node_id=_NO_NODE, port=_NO_NODE, error_message="")
        try:
            resource = _OF_KEY.get(request.key_type)
            if resource is not None:
                self._check(request, context, Operation.DESCRIBE, resource, key)
            if request.key_type == _TRANSACTION_KEY and not self._may_be_coordinated(key):
                refuses_as = _NO_NODE if self._transactions is None else self._transactions.broker_id
                node_id, address = refuses_as, self._cache.address(refuses_as, context.asker.listener)
            else:
                leader = self._leaders.of(self._partition_for(key, request.key_type), context.asker.listener)
                node_id, address = leader.id, leader.address
            if address is None:
                raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no broker coordinates {key} at the moment")
            answer.node_id, answer.host, answer.port = node_id, address.host, address.port
        except RefusedError as error:
            answer.error_code = ErrorCode[error.error]
            answer.error_message = ErrorCode[error.error].message
        return answer

    def _may_be_coordinated(self, transactional_id: str) -> bool:
        if self._transactions is None:
            return bool(self._cache.topics.get(TRANSACTIONS_TOPIC))
        return self._transactions.may_be_coordinated(transactional_id)

    def _partition_for(self, key: str, key_type: int) -> TopicPartition:
        if key_type == _GROUP_KEY:
            name = self._coordinator.partition_of(key)
            if name.topic not in self._cache.topics:
                self._coordinator.create_topic()
                raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name.topic} is being made")
            return name
        if key_type == _TRANSACTION_KEY:
            count = self._cache.partition_count(TRANSACTIONS_TOPIC)
            return TopicPartition(TRANSACTIONS_TOPIC, partition_of(key, count))
        raise refused(ErrorCode.INVALID_REQUEST, f"no coordinator has keys of type {key_type}")

    def _check(
        self, request: Any, context: RequestContext, operation: Operation, resource: ResourceType, name: str
    ) -> None:
        if not self._permits.asker(request, context)(Action(operation, resource, name)):
            raise refused(_DENIED[resource], f"{context.asker.principal} may not {operation.name} {name}")

    # --- members ------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, context: RequestContext) -> None:
        """JoinGroup."""

        def answer(response: JoinGroupResponse) -> None:
            if response.protocol_name is None and context.version < _NULL_PROTOCOL_SINCE:
                response.protocol_name = ""
            context.answer(response)

        settings = self._coordinator.settings
        shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms

        def check() -> None:
            if not shortest <= request.session_timeout_ms <= longest:
                raise refused(
                    ErrorCode.INVALID_SESSION_TIMEOUT,
                    f"a session of {request.session_timeout_ms} ms: {shortest} to {longest} are allowed",
                )

        def refuse(error: ErrorCode) -> JoinGroupResponse:
            return JoinGroupResponse(error_code=error, member_id=request.member_id, protocol_name=None)

        self._hand_over(Shard.join, request, context, refuse, check=check, answer=answer)

    def sync(self, request: SyncGroupRequest, context: RequestContext) -> None:
        """SyncGroup."""

        def check() -> None:
            if context.version >= _PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
                raise refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a SyncGroup without protocol (KIP-559)")
            _check_id(request.group_id)

        def refuse(error: ErrorCode) -> SyncGroupResponse:
            return SyncGroupResponse(error_code=error)

        self._hand_over(Shard.sync, request, context, refuse, check=check, needs_id=False)

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> None:
        """Heartbeat."""

        def refuse(error: ErrorCode) -> HeartbeatResponse:
            # Nothing is known of its session yet: it has no reason to worry.
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error)

        self._hand_over(Shard.heartbeat, request, context, refuse)

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
        """ConsumerGroupHeartbeat."""

        def refuse(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
            return ConsumerGroupHeartbeatResponse(error_code=error)

        def answer(response: ConsumerGroupHeartbeatResponse) -> None:
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION and self._refusals is not None:
                self._refusals(Unsupported.CONSUMER_PROTOCOL, context)
            context.answer(response)

        self._hand_over(Shard.consumer_heartbeat, request, context, refuse, answer=answer, needs_id=False)

    def leave(self, request: LeaveGroupRequest, context: RequestContext) -> None:
        """LeaveGroup."""
        self._hand_over(Shard.leave, request, context, lambda error: LeaveGroupResponse(error_code=error))

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(self, request: OffsetCommitRequest, context: RequestContext) -> None:
        """OffsetCommit; of partitions that exist."""
        kept: list[Any] = []
        refused_topics: list[_CommitTopic] = []
        for topic in request.topics:
            error = ErrorCode.NONE
            if context.version >= _BY_ID:
                topic.name = self._cache.names.get(topic.topic_id, "")
                error = ErrorCode.NONE if topic.name else ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic.topic_id = self._cache.ids.get(topic.name, ZERO_UUID)  # is kept with the offset
            if error is ErrorCode.NONE and not self._permits.may(request, context, Operation.READ, topic.name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif error is ErrorCode.NONE and topic.name not in self._cache.topics:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if error is not ErrorCode.NONE:
                refused_topics += commit_error(OffsetCommitRequest(topics=[topic]), error).topics
                continue
            topic.partitions, unknown = self._by_existence(topic)
            if unknown:
                one = OffsetCommitRequest(topics=[topic.replace(partitions=unknown)])
                refused_topics += commit_error(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).topics
            if topic.partitions:
                kept.append(topic)
        request.topics = kept

        def answer(response: OffsetCommitResponse) -> None:
            response.topics = _by_topic([*refused_topics, *response.topics])
            context.answer(response)

        if not kept:
            answer(OffsetCommitResponse())
            return
        refuse = partial(commit_error, request)
        self._hand_over(Shard.commit_offsets, request, context, refuse, answer=answer, needs_id=False)

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
        """TxnOffsetCommit, of partitions that exist; the coordinator of the transaction is asked about it first."""
        refuse = partial(txn_commit_error, request)
        try:
            self._check(request, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        except RefusedError as error:
            context.answer(refuse(ErrorCode[error.error]))
            return
        kept: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = []
        refused_topics: list[Any] = []
        for topic in request.topics:
            unknown, code = topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if self._permits.may(request, context, Operation.READ, topic.name):
                topic.partitions, unknown = self._by_existence(topic)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic.partitions:
                    kept.append(topic)
            if unknown:
                one = TxnOffsetCommitRequest(topics=[topic.replace(partitions=unknown)])
                refused_topics += txn_commit_error(one, code).topics
        request.topics = kept

        def answer(response: TxnOffsetCommitResponse) -> None:
            response.topics = _by_topic([*response.topics, *refused_topics])
            context.answer(response)

        if kept:
            self._verify(request, context, answer)
        else:
            answer(TxnOffsetCommitResponse())

    def _verify(
        self,
        request: TxnOffsetCommitRequest,
        context: RequestContext,
        answer: Callable[[TxnOffsetCommitResponse], None],
    ) -> None:
        """Go on with offsets in a transaction when the group's partition belongs to it."""
        refuse = partial(txn_commit_error, request)
        reply = _Reply(context, answer)
        try:
            _check_id(request.group_id)
            name, _ = self._coordinator.shard_of(request.group_id)
        except RefusedError as error:
            reply.answer(refuse(ErrorCode[error.error]))
            return

        batches, gate = {name: _Commit(request)}, self._gate
        if gate is None:
            context.close()
            return

        def go_on(refusals: Mapping[TopicPartition, ErrorCode], verified: Verified) -> None:
            gate.release(verified)
            error = refusals.get(name, ErrorCode.NONE)
            try:
                if error is ErrorCode.NONE:
                    self._hand_over(Shard.commit_in_transaction, request, context, refuse, answer=answer)
                else:
                    reply.answer(refuse(write_error(error)))
            except Exception:  # in the call of another part
                _logger.exception("%s cannot be answered", context.asker.peer)
                context.close()

        parts = [part for topic in request.topics for part in topic.partitions]
        size = sum(_PART_BYTES + len(part.committed_metadata or "") for part in parts)
        gate.admit(request.transactional_id, batches, _client(context.version), go_on, size)

    @in_turns
    def fetch_offsets(self, request: OffsetFetchRequest, context: RequestContext) -> InTurns[None]:
        """OffsetFetch: of one group, or of several from version 8 on; all offsets of one group a few times at most."""
        is_many = context.version >= _GROUPS_SINCE
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        groups = request.groups
        if not is_many:
            topics = None
            # Version 1 knew no null for all topics.
            if request.topics is not None:
                names = kind.OffsetFetchRequestTopics
                topics = [names(name=each.name, partition_indexes=each.partition_indexes) for each in request.topics]
            groups = [kind(group_id=request.group_id, topics=topics)]

        def answer(parts: list[_FetchGroup]) -> None:
            context.answer(OffsetFetchResponse(groups=parts) if is_many else _as_one(parts[0]))

        gathering, repeats, turn = _Gathering(context, len(groups), answer), Repeats(), Turn()
        for number, group in enumerate(groups):
            self._fetch_group(group, gathering.ticket(number), request, context, repeats)
            if turn.is_over():
                yield

    def _fetch_group(
        self, group: Any, ticket: _Reply, request: OffsetFetchRequest, context: RequestContext, repeats: Repeats
    ) -> None:
        version = context.version
        unknown: list[_FetchTopic] = []
        topics: list[tuple[str, Uuid, list[int]]] | None = None
        if group.topics is not None:
            topics = []
            for each in group.topics:
                name = self._cache.names.get(each.topic_id, "") if version >= _BY_ID else each.name
                if version >= _BY_ID and not name:
                    unknown.append(_refused_topic(each, ErrorCode.UNKNOWN_TOPIC_ID))
                elif not self._permits.may(request, context, Operation.DESCRIBE, name):
                    unknown.append(_refused_topic(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                else:
                    topics.append((name, each.topic_id, each.partition_indexes))

        def answer(told: _FetchGroup) -> None:
            if topics is None:
                told.topics = [topic for topic in told.topics if self._is_told(topic, request, context)]
            told.topics = [*unknown, *told.topics]
            ticket.answer(told)

        try:
            self._check(request, context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
            if topics is None:
                repeats.check(group.group_id)
            name, shard = self._coordinator.shard_of(group.group_id)
        except RefusedError as error:
            code, told = ErrorCode[error.error], _FetchGroup(group_id=group.group_id)
            if version >= _GROUP_ERROR_SINCE:
                told.error_code = code
            else:  # each partition that was asked for has it (Kafka 4.3.1, OffsetFetchResponse.groupError)
                told.topics = [_refused_topic(each, code) for each in group.topics or ()]
            ticket.answer(told)
            return
        reply = _Reply(context, answer)
        effects = shard.fetch_offsets(group.group_id, topics, reply, require_stable=request.require_stable)
        self._coordinator.carry_out(name, shard, effects)

    def _is_told(self, topic: _FetchTopic, request: OffsetFetchRequest, context: RequestContext) -> bool:
        """Whether an answer for all topics has this topic; an answer by id also gets the topic's id."""
        if context.version >= _BY_ID:
            topic.topic_id = self._cache.ids.get(topic.name, ZERO_UUID)
            if topic.topic_id == ZERO_UUID:
                return False  # it is gone
        return self._permits.may(request, context, Operation.DESCRIBE, topic.name, is_logged=False)

    def _by_existence(self, topic: Any) -> tuple[list[Any], list[Any]]:
        """Its partitions in a request: those that are there, and the others."""
        known: list[Any] = []
        unknown: list[Any] = []
        for each in topic.partitions:
            (known if self._cache.knows(topic.name, each.partition_index) else unknown).append(each)
        return known, unknown

    def delete_offsets(self, request: OffsetDeleteRequest, context: RequestContext) -> None:
        """OffsetDelete; of partitions that exist."""
        kind = OffsetDeleteResponse.OffsetDeleteResponseTopic
        kept, out = [], []
        for topic in request.topics:
            if not self._permits.may(request, context, Operation.READ, topic.name):
                out.append((topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif topic.name not in self._cache.topics:
                out.append((topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                topic.partitions, unknown = self._by_existence(topic)
                if unknown:
                    out.append((topic.replace(partitions=unknown), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                kept.append(topic)
        request.topics = kept

        def answer(response: OffsetDeleteResponse) -> None:
            if not response.error_code:
                refused_topics = [
                    kind(
                        name=topic.name,
                        partitions=[
                            kind.OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic, code in out
                ]
                response.topics = _by_topic([*filter(attrgetter("partitions"), response.topics), *refused_topics])
            context.answer(response)

        def refuse(error: ErrorCode) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(error_code=error)

        self._hand_over(Shard.delete_offsets, request, context, refuse, answer=answer)

    # --- groups -------------------------------------------------------------------------------------------------------

    @in_turns
    def delete_groups(self, request: DeleteGroupsRequest, context: RequestContext) -> InTurns[None]:
        """DeleteGroups: each by itself."""
        names = list(dict.fromkeys(request.groups_names))

        def answer(errors: list[ErrorCode]) -> None:
            kind = DeleteGroupsResponse.DeletableGroupResult
            results = [kind(group_id=name, error_code=error) for name, error in zip(names, errors, strict=True)]
            context.answer(DeleteGroupsResponse(results=results))

        gathering, turn = _Gathering(context, len(names), answer), Turn()
        for number, group_id in enumerate(names):
            if turn.is_over():
                yield
            ticket = gathering.ticket(number)
            try:
                self._check(request, context, Operation.DELETE, ResourceType.GROUP, group_id)
                name, shard = self._coordinator.shard_of(group_id)
            except RefusedError as error:
                ticket.answer(ErrorCode[error.error])
                continue
            self._coordinator.carry_out(name, shard, shard.delete_group(group_id, ticket))

    @in_turns
    def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> InTurns[DescribeGroupsResponse]:
        """DescribeGroups: each a few times at most."""
        response, repeats, turn = DescribeGroupsResponse(), Repeats(), Turn()
        for group_id in request.groups:
            try:
                self._check(request, context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
                repeats.check(group_id)
                _, shard = self._coordinator.shard_of(group_id)
            except RefusedError as error:
                told = DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=ErrorCode[error.error])
            else:
                told = shard.describe(group_id, context.version)
                if request.include_authorized_operations and told.error_code == ErrorCode.NONE:
                    told.authorized_operations = self._permits.operations(
                        request, context, ResourceType.GROUP, group_id
                    )
            response.groups.append(told)
            if turn.is_over():
                yield
        return response

    def list_groups(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        """ListGroups: those coordinated here, by state and type if that is asked for; capitals do not matter."""
        may_all = self._permits.may_cluster(request, context, Operation.DESCRIBE, is_logged=False)
        may = self._permits.asker(request, context)
        states = {each.lower() for each in request.states_filter}
        types = {each.lower() for each in request.types_filter}
        response = ListGroupsResponse()
        try:
            for _, shard in self._coordinator.shards():
                response.groups += [
                    each
                    for each in shard.list_groups()
                    if (not states or each.group_state.lower() in states)
                    and (not types or each.group_type.lower() in types)
                    and (may_all or may(Action(Operation.DESCRIBE, ResourceType.GROUP, each.group_id)))
                ]
        except RefusedError as error:
            return ListGroupsResponse(error_code=ErrorCode[error.error])
        return response

    # --- the way to a shard -------------------------------------------------------------------------------------------

    def _hand_over(
        self,
        event: Callable[[Shard, Any, Caller, int], ShardEffects],
        request: Any,
        context: RequestContext,
        refuse: Callable[[ErrorCode], Any],
        *,
        check: Callable[[], None] = lambda: None,
        answer: Callable[[Any], None] | None = None,
        needs_id: bool = True,
    ) -> None:
        """Pass a request about one group to its shard; refuse it if there is none."""
        reply = _Reply(context, context.answer if answer is None else answer)
        try:
            if needs_id:
                _check_id(request.group_id)
            check()
            name, shard = self._coordinator.shard_of(request.group_id)
        except RefusedError as error:
            reply.answer(refuse(ErrorCode[error.error]))
            return
        caller = Caller(reply, context.version, context.client_id or "", f"/{context.asker.host}")
        self._coordinator.carry_out(name, shard, event(shard, request, caller, self._now_ms()))


class _Commit:
    """Offsets in a transaction, as the gate sees them."""

    __slots__ = ("producer_epoch", "producer_id")
    base_sequence = -1

    def __init__(self, request: TxnOffsetCommitRequest) -> None:
        self.producer_id: int = request.producer_id
        self.producer_epoch: int = request.producer_epoch


def _client(version: int) -> Client:
    if version >= _ADDS_NOTHING_SINCE:
        return Client.ADDS_NOTHING
    return Client.KNOWS_ABORTABLE if version >= _ABORTABLE_SINCE else Client.OLD


def _check_id(group_id: str) -> None:
    if not group_id:
        raise refused(ErrorCode.INVALID_GROUP_ID, "a group's id may not be empty")


def _by_topic(told: Iterable[Any]) -> list[Any]:
    """The answers of topics, each topic once, though a request may name it several times."""
    found: dict[tuple[str, Uuid], Any] = {}
    for topic in told:
        first = found.setdefault((topic.name, getattr(topic, "topic_id", ZERO_UUID)), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(found.values())


def _refused_topic(asked: Any, error: ErrorCode) -> _FetchTopic:
    told = _FetchTopic(name=asked.name, topic_id=asked.topic_id)
    for number in asked.partition_indexes:
        part = _FetchTopic.OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=-1, metadata="", error_code=error
        )
        told.partitions.append(part)
    return told


def _as_one(group: _FetchGroup) -> OffsetFetchResponse:
    """The answer of versions that name one group."""
    response = OffsetFetchResponse(error_code=group.error_code)
    kind = OffsetFetchResponse.OffsetFetchResponseTopic
    for topic in group.topics:
        told = kind(name=topic.name)
        for each in topic.partitions:
            told.partitions.append(
                kind.OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
            )
        response.topics.append(told)
    return response
