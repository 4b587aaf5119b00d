"""StopReplica: this broker replicates partitions no more, and perhaps deletes them.

The known leader epoch, a newer one, -1 (no epoch: versions 0-2) and -2 (the topic is being deleted) are obeyed; any
other is FENCED_LEADER_EPOCH. Partitions that are not here are fine; those on disk alone are deleted, too, damaged
ones included; in a log directory that failed they are KAFKA_STORAGE_ERROR. Of a partition that is named twice the last
word counts. Source: KIP-570; Kafka 3.9.1, ReplicaManager.stopReplicas, StopReplicaRequest.partitionStates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kraftcore.plugins.broker.control.authority import Authority
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import NO_EPOCH
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_steps import DiskSteps
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

_DELETING = -2  # in place of a leader epoch
_BY_PARTITION = 3  # version from which epoch and deletion are told for each


class StopReplica:
    """Carries out StopReplica: this broker stops replicating the partitions named, and deletes them if it is told to.

    Args:
        authority: which controller is obeyed.
        replicas: the partitions of which this broker has a replica.
        now_ms: the time, milliseconds since 1970.
        on_change: told when fetchers may have other work.
    """

    def __init__(
        self, authority: Authority, replicas: Replicas, now_ms: Callable[[], int], on_change: Callable[[], None]
    ) -> None:
        self._authority = authority
        self._replicas = replicas
        self._now_ms = now_ms
        self._on_change = on_change

    def handle(self, request: StopReplicaRequest, version: int) -> DiskSteps[StopReplicaResponse]:
        """Carry out a request. No other flush or removal may be under way in a log."""
        error = self._authority.check(request.controller_epoch, request.broker_epoch)
        response = StopReplicaResponse(error_code=error)
        if error is not ErrorCode.NONE:
            return response
        kind = StopReplicaResponse.StopReplicaPartitionError
        last = {name: (leader_epoch, is_deleted) for name, leader_epoch, is_deleted in _stops(request, version)}
        codes = {name: self._stop(name, epoch, is_deleted=is_deleted) for name, (epoch, is_deleted) in last.items()}
        deleted = [name for name, (_, is_deleted) in last.items() if is_deleted and codes[name] is ErrorCode.NONE]
        failed = yield from self._replicas.delete(deleted, self._now_ms)
        codes.update(dict.fromkeys(failed, ErrorCode.KAFKA_STORAGE_ERROR))
        for name, code in codes.items():
            told = kind(topic_name=name.topic, partition_index=name.partition, error_code=code)
            response.partition_errors.append(told)
        yield from self._replicas.forget_gone()
        self._on_change()
        return response

    def _stop(self, name: TopicPartition, leader_epoch: int, *, is_deleted: bool) -> ErrorCode:
        """Stop replicating a partition if the leader epoch allows it; return the answer's code."""
        replicas = self._replicas
        if replicas.is_broken(name) and not (is_deleted and replicas.is_damaged(name)):
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = replicas.all.get(name)
        if known is not None:
            if leader_epoch < known.partition.leader_epoch and leader_epoch not in (NO_EPOCH, _DELETING):
                return ErrorCode.FENCED_LEADER_EPOCH
            known.partition.pause()
        return ErrorCode.NONE


def _stops(request: StopReplicaRequest, version: int) -> Iterator[tuple[TopicPartition, int, bool]]:
    if version == 0:
        for each in request.ungrouped_partitions:
            yield TopicPartition(each.topic_name, each.partition_index), NO_EPOCH, request.delete_partitions
    elif version < _BY_PARTITION:
        for topic in request.topics:
            for partition in topic.partition_indexes:
                yield TopicPartition(topic.name, partition), NO_EPOCH, request.delete_partitions
    else:
        for states in request.topic_states:
            for state in states.partition_states:
                name = TopicPartition(states.topic_name, state.partition_index)
                yield name, state.leader_epoch, state.delete_partition
