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
    is offline                                  KAFKA_STORAGE_ERROR: the log may be there
    else                                        NONE: lead, or follow

All partitions are looked at before the first one changes: first come those that lead, then those that follow. One that
is named twice has one answer: the last that may be obeyed is, and if there is none, the last refusal stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.broker.control.authority import Authority
from kraftcore.plugins.broker.logdirs.names import is_legal
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import Assignment, TopicPartition
from kraftcore.plugins.broker.partition.state import NO_EPOCH
from kraftcore.plugins.broker.replicas import HostedPartition, Replicas
from kraftcore.plugins.broker.work.disk_steps import DiskSteps
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)

_logger = logging.getLogger("kraftcore.broker")
_Key: TypeAlias = tuple[TopicPartition, Uuid]
_BY_TOPIC = 2  # version from which partitions come by topic
_BY_ID = 5  # version from which the answer does, by id


class LeaderAndIsr:
    """Carries out LeaderAndIsr: this broker leads or follows the partitions named.

    Args:
        broker_id: the id of this broker.
        authority: which controller is obeyed.
        replicas: the partitions of which this broker has a replica.
        cache: says which leaders are alive.
        now_ms: the time, milliseconds since 1970.
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
        """Carry out a request, which may make logs. No other flush or removal may be under way in a log."""
        error = self._authority.check(request.controller_epoch, request.broker_epoch)
        if error is not ErrorCode.NONE:
            told = [((name, topic_id), error) for name, topic_id, _ in _states(request, version)]
            return _response(error, told, version)
        answers: dict[_Key, ErrorCode] = {}
        leads: dict[_Key, LeaderAndIsrPartitionState] = {}
        follows: dict[_Key, LeaderAndIsrPartitionState] = {}
        for name, topic_id, state in _states(request, version):
            key = name, topic_id
            found = yield from self._check(name, topic_id, state, request)
            yield None
            if found is not None:
                answers[key] = found
                continue
            answers.setdefault(key, ErrorCode.NONE)
            (leads if state.leader == self._broker_id else follows)[key] = state
        for accepted in (leads, follows):
            assignments = {key: _assignment(key[1], state) for key, state in accepted.items()}
            wanted = {key[0]: each for key, each in assignments.items() if not self._replicas.is_broken(key[0])}
            failures = yield from self._replicas.make(wanted, self._now_ms)
            for key, assignment in assignments.items():
                if key[0] in failures or self._replicas.is_broken(key[0]):  # since it was looked at
                    answers[key] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    answers[key] = yield from self._assign(key[0], assignment)
                yield None
        self._on_change()
        return _response(error, answers.items(), version)

    def _check(
        self, name: TopicPartition, told_id: Uuid, state: LeaderAndIsrPartitionState, request: LeaderAndIsrRequest
    ) -> DiskSteps[ErrorCode | None]:
        """The answer for a partition that becomes neither leader nor follower; None: the partition is to become one."""
        replicas = self._replicas
        if not is_legal(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if replicas.is_broken(name):
            return ErrorCode.KAFKA_STORAGE_ERROR
        topic_id = _id_of(told_id)
        log_id = replicas.topic_id(name)
        if None not in (topic_id, log_id) and topic_id != log_id:
            _logger.error("%s has topic id %s, the controller says %s", name, log_id, topic_id)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        known = replicas.all.get(name)
        epoch = NO_EPOCH if known is None else known.partition.leader_epoch
        if state.leader_epoch > epoch or (request.is_kraft_controller and state.leader_epoch == epoch):
            return None if self._broker_id in state.replicas else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.leader_epoch == epoch and known is not None and (topic_id is None) != (log_id is None):
            try:
                return (yield from self._change_id(known, topic_id, state))
            except (StorageError, CorruptDataError) as error:
                return replicas.failed(name, error)
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _change_id(
        self, known: HostedPartition, topic_id: Uuid | None, state: LeaderAndIsrPartitionState
    ) -> DiskSteps[ErrorCode]:
        if topic_id is None and state.leader == self._broker_id:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        known.has_id = topic_id is not None
        yield from self._replicas.assign_topic_id(known, topic_id)
        return ErrorCode.NONE

    def _assign(self, name: TopicPartition, assignment: Assignment) -> DiskSteps[ErrorCode]:
        leader = assignment.leader
        try:
            if leader == self._broker_id or self._cache.is_alive(leader):
                yield from self._replicas.assign(name, assignment, self._now_ms)
            else:
                # As Kafka: the log is there, so that its high watermark is stored; the role waits for another
                # assignment.
                yield from self._replicas.add(name, assignment.topic_id)
                _logger.error("%s cannot follow broker %d: it is not alive", name, leader)
        except (StorageError, CorruptDataError) as error:
            return self._replicas.failed(name, error)
        return ErrorCode.NONE


def _id_of(told_id: Uuid) -> Uuid | None:
    return None if told_id == ZERO_UUID else told_id


def _assignment(told_id: Uuid, state: LeaderAndIsrPartitionState) -> Assignment:
    return Assignment(
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        _id_of(told_id),
        is_recovering=state.leader_recovery_state != 0,
        is_new=state.is_new,
    )


def _response(error: ErrorCode, answers: Iterable[tuple[_Key, ErrorCode]], version: int) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse(error_code=error)
    topics: dict[Uuid, LeaderAndIsrResponse.LeaderAndIsrTopicError] = {}
    for (name, topic_id), found in answers:
        told = LeaderAndIsrPartitionError(partition_index=name.partition, error_code=found)
        if version < _BY_ID:
            told.topic_name = name.topic
            response.partition_errors.append(told)
            continue
        if topic_id not in topics:
            topics[topic_id] = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id)
            response.topics.append(topics[topic_id])
        topics[topic_id].partition_errors.append(told)
    return response


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
