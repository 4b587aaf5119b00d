"""AlterReplicaLogDirs: replicas move to other log directories of this broker (KIP-113).

Source: Kafka 4.3.1, KafkaApis.handleAlterReplicaLogDirsRequest, ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from kraftcore.errors import KraftError, RefusedError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.background import Background
from kraftcore.plugins.broker.moves import Moves
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kraftcore.security.acl import Operation

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Answer = _Topic.AlterReplicaLogDirPartitionResult
_logger = logging.getLogger("kraftcore.broker")


class AlterReplicaLogDirs:
    """Answers AlterReplicaLogDirs requests.

    Args:
        moves: begins them.
        permits: the asker must be allowed to alter the cluster.
        background: where requests wait for disk work that is under way.
    """

    def __init__(self, moves: Moves, permits: Permits, background: Background) -> None:
        self._moves = moves
        self._permits = permits
        self._background = background

    def respond(self, request: AlterReplicaLogDirsRequest, context: RequestContext) -> None:
        """Each partition's answer: its move has begun, is under way, or was not needed."""
        self._background.answer(context, lambda: self._answer(request, context))

    async def _answer(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        may = self._permits.may_cluster(request, context, Operation.ALTER)
        told: dict[str, dict[int, int]] = defaultdict(dict)
        for directory in request.dirs:
            for topic in directory.topics:
                for number in topic.partitions:
                    code: int = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    if may:
                        code = await self._begin(TopicPartition(topic.name, number), directory.path)
                    told[topic.name][number] = code
        return AlterReplicaLogDirsResponse(
            results=[
                _Topic(
                    topic_name=topic,
                    partitions=[_Answer(partition_index=number, error_code=code) for number, code in found.items()],
                )
                for topic, found in told.items()
            ]
        )

    async def _begin(self, name: TopicPartition, path: str) -> int:
        try:
            await self._moves.begin(name, path)
        except RefusedError as error:
            _logger.warning("%s does not move to %s: %s", name, path, error)
            return ErrorCode[error.error]
        except KraftError as error:  # a disk failed, or a log takes no changes or is damaged
            _logger.warning("%s does not move to %s: %s", name, path, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE
