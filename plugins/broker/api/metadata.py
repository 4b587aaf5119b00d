"""Metadata: the brokers and partitions of the cluster.

Source: Kafka 3.9.1, ZkMetadataCache, KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.work.turns import InTurns, Turn, in_turns
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState
from kraftcore.protocol.topics import INTERNAL_TOPICS
from kraftcore.security.acl import CLUSTER_NAME, Operation, ResourceType

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition
_LISTENER_NOT_FOUND_SINCE = 6
_MAY_FORBID_CREATION = 4  # version from which a client may forbid the creation of topics
_BY_ID = 12  # version from which topics may be named by id


class Metadata:
    """Answers Metadata requests.

    Args:
        cache: the partitions and brokers of the cluster.
        cluster_id: the id of the cluster.
        permits: the asker must be allowed to describe a topic.
        create: has topics made that a client asks for and that do not exist; None: no topics are made.
    """

    def __init__(
        self,
        cache: MetadataCache,
        cluster_id: str,
        permits: Permits,
        create: Callable[[Collection[str], RequestContext], None] | None = None,
    ) -> None:
        self._cache = cache
        self._cluster_id = cluster_id
        self._permits = permits
        self._create = create

    @in_turns
    def respond(self, request: MetadataRequest, context: RequestContext) -> InTurns[MetadataResponse]:
        """The brokers that have the listener on which the request came in, and the topics asked for."""
        cache = self._cache
        asked = request.topics or []
        code = _refusal(asked, context.version)
        if code is not ErrorCode.NONE:
            refusals = [_Topic(error_code=code, name=each.name or "", topic_id=each.topic_id) for each in asked]
            return MetadataResponse(topics=refusals)
        response = MetadataResponse(
            cluster_id=self._cluster_id, controller_id=-1 if cache.controller_id is None else cache.controller_id
        )
        turn = Turn()
        for broker, address in cache.brokers_on(context.asker.listener):
            response.brokers.append(
                MetadataResponse.MetadataResponseBroker(
                    node_id=broker.id, host=address.host, port=address.port, rack=broker.rack
                )
            )
        # An empty list meant all topics in version 0.
        if request.topics is None or (context.version == 0 and not request.topics):
            may = self._permits.may
            for name in list(cache.topics):
                count = 1
                if name in cache.topics and may(request, context, Operation.DESCRIBE, name, is_logged=False):
                    response.topics.append(self._topic(name, context))
                    count += len(response.topics[-1].partitions)
                if turn.is_over(count):
                    yield
        else:
            for wanted, topic_id in _wanted(asked):
                response.topics.append(self._asked(request, wanted, topic_id, context))
                if turn.is_over(1 + len(response.topics[-1].partitions)):
                    yield
            self._create_missing(request, response, context)
        yield from self._tell_operations(request, response, context, turn)
        return response

    def _create_missing(self, request: MetadataRequest, response: MetadataResponse, context: RequestContext) -> None:
        """Have topics made that do not exist and have a legal name, if the client allows it and has the permission."""
        if self._create is None or not (request.allow_auto_topic_creation or context.version < _MAY_FORBID_CREATION):
            return
        permits, names = self._permits, []
        may_all = permits.may_cluster(request, context, Operation.CREATE, is_logged=False)
        for told in response.topics:
            if told.is_internal:
                continue  # the part of the broker that uses an internal topic makes it, with its own settings
            if told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and told.name is not None:
                if may_all or permits.may(request, context, Operation.CREATE, told.name):
                    names.append(told.name)
                else:
                    told.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if names:
            self._create(names, context)

    def _tell_operations(
        self, request: MetadataRequest, response: MetadataResponse, context: RequestContext, turn: Turn
    ) -> InTurns[None]:
        permits = self._permits
        if request.include_cluster_authorized_operations:
            may = permits.may_cluster(request, context, Operation.DESCRIBE)
            kind = ResourceType.CLUSTER
            allowed = permits.operations(request, context, kind, CLUSTER_NAME) if may else 0
            response.cluster_authorized_operations = allowed
        if request.include_topic_authorized_operations:
            for told in response.topics:
                if told.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    told.topic_authorized_operations = permits.operations(
                        request, context, ResourceType.TOPIC, told.name or ""
                    )
                if turn.is_over():
                    yield

    def _asked(self, request: MetadataRequest, name: str | None, topic_id: Uuid, context: RequestContext) -> _Topic:
        if name is None or topic_id != ZERO_UUID:
            found = self._cache.names.get(topic_id)
            if found is None:
                return _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            if not self._permits.may(request, context, Operation.DESCRIBE, found):
                return _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            name = found
        elif not self._permits.may(request, context, Operation.DESCRIBE, name):
            return _Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        return self._topic(name, context)

    def _topic(self, name: str, context: RequestContext) -> _Topic:
        told = _Topic(name=name, topic_id=self._cache.ids.get(name, ZERO_UUID), is_internal=name in INTERNAL_TOPICS)
        partitions = self._cache.topics.get(name)
        if partitions is None:
            is_legal = what_is_wrong(name) is None
            told.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            return told
        told.partitions = [self._partition(state, context) for state in partitions.values()]
        return told

    def _partition(self, state: UpdateMetadataPartitionState, context: RequestContext) -> _Partition:
        cache = self._cache
        told = _Partition(
            partition_index=state.partition_index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            offline_replicas=state.offline_replicas,
        )
        if context.version == 0:  # version 0 left out brokers that cannot be reached
            told.replica_nodes = [each for each in state.replicas if cache.address(each, context.asker.listener)]
            told.isr_nodes = [each for each in state.isr if cache.address(each, context.asker.listener)]
            if len(told.replica_nodes) < len(state.replicas) or len(told.isr_nodes) < len(state.isr):
                told.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
        if cache.address(state.leader, context.asker.listener) is None:
            told.leader_id = -1
            has_no_listener = cache.is_alive(state.leader) and context.version >= _LISTENER_NOT_FOUND_SINCE
            told.error_code = ErrorCode.LISTENER_NOT_FOUND if has_no_listener else ErrorCode.LEADER_NOT_AVAILABLE
        return told


def _refusal(asked: Sequence[MetadataRequest.MetadataRequestTopic], version: int) -> ErrorCode:
    """The error of a whole request; Kafka 4.3.1 fails at a topic without a name if no topic has an id."""
    has_id = any(each.topic_id != ZERO_UUID for each in asked)
    has_unnamed = any(each.name is None for each in asked)
    if version < _BY_ID:
        return ErrorCode.INVALID_REQUEST if has_id or has_unnamed else ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if has_unnamed and not has_id else ErrorCode.NONE


def _wanted(asked: Sequence[MetadataRequest.MetadataRequestTopic]) -> list[tuple[str | None, Uuid]]:
    """The names and ids in a request, each once; if any topic has an id, topics without an id are ignored.

    Source: Kafka 4.3.1, KafkaApis.handleTopicMetadataRequest.
    """
    ids = dict.fromkeys(each.topic_id for each in asked if each.topic_id != ZERO_UUID)
    if ids:
        return [(None, topic_id) for topic_id in ids]
    return [(name, ZERO_UUID) for name in dict.fromkeys(each.name for each in asked)]
