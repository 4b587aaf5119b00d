"""AlterReplicaLogDirs: replicas move to other log directories of this broker (KIP-113).

Source: Kafka 4.3.1, KafkaApis.handleAlterReplicaLogDirsRequest, ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import logging
from collections import defaultdict

import trio

from kraftcore.errors import KraftError, RefusedError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.background import Background
from kraftcore.plugins.broker.moves import Moves
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.turns import Turn
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kraftcore.security.acl import Operation

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Answer = _Topic.AlterReplicaLogDirPartitionResult
_logger = logging.getLogger("kraftcore.broker")


class _Refusals:
    """What is said of the moves that a request does not get: of the first of them, and how many there are."""

    def __init__(self) -> None:
        self.first = ""
        self.count = 0

    def note(self, name: TopicPartition, path: str, error: KraftError) -> None:
        self.first = self.first or f"{name} does not move to {path}: {error}"
        self.count += 1


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
        refusals, turn = _Refusals(), Turn()
        for directory in request.dirs:
            for topic in directory.topics:
                for number in topic.partitions:
                    code: int = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    if may:
                        code = await self._begin(TopicPartition(topic.name, number), directory.path, refusals)
                    if turn.is_over():
                        await trio.lowlevel.checkpoint()
                    told[topic.name][number] = code
        if refusals.count:
            others = f" (and {refusals.count - 1} others)" if refusals.count > 1 else ""
            _logger.warning("%s%s", refusals.first, others)
        return AlterReplicaLogDirsResponse(
            results=[
                _Topic(
                    topic_name=topic,
                    partitions=[_Answer(partition_index=number, error_code=code) for number, code in found.items()],
                )
                for topic, found in told.items()
            ]
        )

    async def _begin(self, name: TopicPartition, path: str, refusals: _Refusals) -> int:
        try:
            await self._moves.begin(name, path)
        except RefusedError as error:
            refusals.note(name, path, error)
            return ErrorCode[error.error]
        except KraftError as error:  # a disk failed, or a log takes no changes or is damaged
            refusals.note(name, path, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE
