"""Which log directory holds which replica: told to the controller where it knows another one (KIP-858).

Source: Kafka 4.3.1, AssignmentsManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.controller_channel import ControllerChannel
from kraftcore.ports.complaints import Complaints
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

MAX_PER_REQUEST = 2250
"""Kafka's AssignmentsManager.MAX_ASSIGNMENTS_PER_REQUEST."""
_AGAIN_S = 0.5
_logger = logging.getLogger("kraftcore.broker")
_Directory = AssignReplicasToDirsRequest.DirectoryData


class ReplicaKey(NamedTuple):
    """Names a replica of ours."""

    topic_id: Uuid
    partition: int


class DirectoryAssignments:
    """See the module text.

    Args:
        broker_id: ours.
        broker_epoch: ours at the moment.
        controllers: the way to the controller.
        is_supported: whether the metadata can hold it: metadata.version 3.7-IV2 or later.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controllers: ControllerChannel,
        is_supported: Callable[[], bool],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controllers = controllers
        self._is_supported = is_supported
        self._wanted: dict[ReplicaKey, Uuid] = {}
        self._wake = trio.Event()
        self._complain = Complaints(_logger.warning, trio.current_time)

    def note(self, key: ReplicaKey, actual: Uuid | None, assigned: Uuid) -> None:
        """A replica lies in a directory, and the controller says in which it does."""
        if actual is None or actual == assigned:
            self._wanted.pop(key, None)
        else:
            self._wanted[key] = actual
            self._wake.set()

    def forget(self, key: ReplicaKey) -> None:
        """A replica is gone."""
        self._wanted.pop(key, None)

    @property
    def can_be_told(self) -> bool:
        """Whether the metadata can hold it."""
        return self._is_supported()

    def retry(self) -> None:
        """The metadata changed: it may hold by now what it could not before."""
        if self._wanted:
            self._wake.set()

    async def run(self) -> None:
        """Tell the controller, until cancelled. What it refuses or does not answer is told again."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._wanted and self._is_supported():
                told = dict(list(self._wanted.items())[:MAX_PER_REQUEST])
                self._take(told, await self._controllers.send_to_controller(self._request(told)))
                if self._wanted:
                    await trio.sleep(_AGAIN_S)

    def _request(self, told: dict[ReplicaKey, Uuid]) -> AssignReplicasToDirsRequest:
        request = AssignReplicasToDirsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        by_directory: dict[Uuid, dict[Uuid, list[int]]] = {}
        for key, directory_id in told.items():
            by_directory.setdefault(directory_id, {}).setdefault(key.topic_id, []).append(key.partition)
        kind = _Directory.TopicData
        request.directories = [
            _Directory(
                id=directory_id,
                topics=[
                    kind(
                        topic_id=topic_id,
                        partitions=[kind.PartitionData(partition_index=number) for number in numbers],
                    )
                    for topic_id, numbers in topics.items()
                ],
            )
            for directory_id, topics in by_directory.items()
        ]
        return request

    def _take(self, told: dict[ReplicaKey, Uuid], answer: object) -> None:
        if not isinstance(answer, AssignReplicasToDirsResponse) or answer.error_code != ErrorCode.NONE:
            what = answer.name if isinstance(answer, Failure) else "it refuses"
            if isinstance(answer, AssignReplicasToDirsResponse):
                what = ErrorCode.of(answer.error_code).name
            self._complain("directories", f"the controller did not take which directories hold replicas: {what}")
            return
        for directory in answer.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    key = ReplicaKey(topic.topic_id, each.partition_index)
                    if each.error_code == ErrorCode.NONE and self._wanted.get(key) == told.get(key):
                        self._wanted.pop(key, None)
