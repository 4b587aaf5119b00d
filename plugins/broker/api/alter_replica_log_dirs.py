"""AlterReplicaLogDirs: replicas move to other log directories of this broker (KIP-113).

Source: Kafka 4.3.1, KafkaApis.handleAlterReplicaLogDirsRequest, ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from kraftcore.errors import KraftError, RefusedError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.moves import Moves
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kraftcore.security.acl import Operation

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Answer = _Topic.AlterReplicaLogDirPartitionResult
_logger = logging.getLogger("kraftcore.broker")


class AlterReplicaLogDirs:
    """Answers AlterReplicaLogDirs requests.

    Args:
        moves: begins and ends moves.
        permits: the asker must be allowed to alter the cluster.
        background: runs the tasks that answer, as beginning a move waits for the disk.
    """

    def __init__(self, moves: Moves, permits: Permits, background: Background) -> None:
        self._moves = moves
        self._permits = permits
        self._background = background

    def respond(self, request: AlterReplicaLogDirsRequest, context: RequestContext) -> None:
        """Begin the moves; a partition has no error if its move has begun, is under way, or is not needed."""
        self._background.answer(context, lambda: self._answer(request, context))

    async def _answer(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        may = self._permits.may_cluster(request, context, Operation.ALTER)
        wanted = {
            TopicPartition(topic.name, number): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for number in topic.partitions
        }
        failures = await self._moves.begin(wanted) if may else {}
        told: dict[str, dict[int, int]] = defaultdict(dict)
        for name in wanted:
            denied = ErrorCode.NONE if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            told[name.topic][name.partition] = _code_of(failures[name]) if name in failures else denied
        if failures:
            name, error = next(iter(failures.items()))
            others = f" (and {len(failures) - 1} others)" if len(failures) > 1 else ""
            _logger.warning("%s does not move to %s: %s%s", name, wanted[name], error, others)
        return AlterReplicaLogDirsResponse(
            results=[
                _Topic(
                    topic_name=topic,
                    partitions=[_Answer(partition_index=number, error_code=code) for number, code in found.items()],
                )
                for topic, found in told.items()
            ]
        )


def _code_of(error: KraftError) -> int:
    # Any other error says that a disk failed, or that a log takes no changes or is damaged.
    return ErrorCode[error.error] if isinstance(error, RefusedError) else ErrorCode.KAFKA_STORAGE_ERROR
