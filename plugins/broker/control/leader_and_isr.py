"""LeaderAndIsr: this broker leads or follows partitions from now on.

Per partition, in this order (Kafka 3.9.1, ReplicaManager.becomeLeaderOrFollower):

    a name that makes no folder                 INVALID_TOPIC_EXCEPTION
    the log cannot be used                      KAFKA_STORAGE_ERROR
    another topic id than the log's             INCONSISTENT_TOPIC_ID, whatever the epoch; the log stays
    an older leader epoch                       STALE_CONTROLLER_EPOCH
    the same one, with an id for a log without one  NONE: the id is taken over
    the same one, without the id, as a follower  NONE: the leader is asked by name from now on
    the same one                                STALE_CONTROLLER_EPOCH, but for KRaft controllers
    this broker is no replica                   UNKNOWN_TOPIC_OR_PARTITION
    it is not new, has no log, and a log directory
    cannot be looked into                       KAFKA_STORAGE_ERROR: the log may be there
    else                                        NONE: lead, or follow
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.broker.control.authority import Authority
from kraftcore.plugins.broker.disk_steps import DiskSteps
from kraftcore.plugins.broker.logdirs.names import is_legal
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import NO_EPOCH
from kraftcore.plugins.broker.replicas import Replica, Replicas
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)

_logger = logging.getLogger("kraftcore.broker")
_BY_TOPIC = 2  # version from which partitions come by topic
_BY_ID = 5  # version from which the answer does, by id


class LeaderAndIsr:
    """See the module text.

    Args:
        broker_id: ours.
        authority: which controller is obeyed.
        replicas: our partitions.
        cache: says which leaders are alive.
        now_ms: the time.
        on_change: told when fetchers may have other work.
    """

    def __init__(
        self,
        broker_id: int,
        authority: Authority,
        replicas: Replicas,
        cache: MetadataCache,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self._broker_id = broker_id
        self._authority = authority
        self._replicas = replicas
        self._cache = cache
        self._now_ms = now_ms
        self._on_change = on_change

    def handle(self, request: LeaderAndIsrRequest, version: int) -> DiskSteps[LeaderAndIsrResponse]:
        """Obey it. No other flush or removal may be under way in a log. Logs may have to be made."""
        error = self._authority.check(request.controller_epoch, request.broker_epoch)
        response = LeaderAndIsrResponse(error_code=error)
        topics: dict[Uuid, LeaderAndIsrResponse.LeaderAndIsrTopicError] = {}
        for name, topic_id, state in _states(request, version):
            found = error
            if error is ErrorCode.NONE:
                found = yield from self._apply(name, topic_id, state, request)
                yield None
            told = LeaderAndIsrPartitionError(partition_index=name.partition, error_code=found)
            if version < _BY_ID:
                told.topic_name = name.topic
                response.partition_errors.append(told)
                continue
            if topic_id not in topics:
                topics[topic_id] = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id)
                response.topics.append(topics[topic_id])
            topics[topic_id].partition_errors.append(told)
        self._on_change()
        return response

    def _apply(
        self, name: TopicPartition, told_id: Uuid, state: LeaderAndIsrPartitionState, request: LeaderAndIsrRequest
    ) -> DiskSteps[ErrorCode]:
        replicas = self._replicas
        if not is_legal(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if replicas.is_broken(name):
            return ErrorCode.KAFKA_STORAGE_ERROR
        topic_id = None if told_id == ZERO_UUID else told_id
        log_id = replicas.topic_id(name)
        if None not in (topic_id, log_id) and topic_id != log_id:
            _logger.error("%s has topic id %s, the controller says %s", name, log_id, topic_id)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        known = replicas.all.get(name)
        epoch = NO_EPOCH if known is None else known.partition.leader_epoch
        try:
            if state.leader_epoch > epoch or (request.is_kraft_controller and state.leader_epoch == epoch):
                if self._broker_id not in state.replicas:
                    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                yield from self._assign(name, topic_id, state)
                return ErrorCode.NONE
            if state.leader_epoch == epoch and known is not None and (topic_id is None) != (log_id is None):
                return (yield from self._change_id(known, topic_id, state))
        except (StorageError, CorruptDataError) as error:
            return replicas.failed(name, error)
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _change_id(
        self, known: Replica, topic_id: Uuid | None, state: LeaderAndIsrPartitionState
    ) -> DiskSteps[ErrorCode]:
        if topic_id is None and state.leader == self._broker_id:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        known.has_id = topic_id is not None
        yield from self._replicas.assign_topic_id(known, topic_id)
        return ErrorCode.NONE

    def _assign(
        self, name: TopicPartition, topic_id: Uuid | None, state: LeaderAndIsrPartitionState
    ) -> DiskSteps[None]:
        assignment = Assignment(
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            tuple(state.replicas),
            tuple(state.isr),
            topic_id,
            is_recovering=state.leader_recovery_state != 0,
            is_new=state.is_new,
        )
        if state.leader == self._broker_id or self._cache.is_alive(state.leader):
            yield from self._replicas.assign(name, assignment, self._now_ms)
        else:
            # As Kafka: the log is there, so that its high watermark is stored; the role waits for another assignment.
            yield from self._replicas.add(name, topic_id, self._now_ms, is_new=state.is_new)
            _logger.error("%s cannot follow broker %d: it is not alive", name, state.leader)


def _states(
    request: LeaderAndIsrRequest, version: int
) -> Iterator[tuple[TopicPartition, Uuid, LeaderAndIsrPartitionState]]:
    if version < _BY_TOPIC:
        for state in request.ungrouped_partition_states:
            yield TopicPartition(state.topic_name, state.partition_index), ZERO_UUID, state
        return
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
