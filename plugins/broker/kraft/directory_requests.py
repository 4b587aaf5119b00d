"""AssignReplicasToDirs: which log directory holds which replica, where the controller knows another one (KIP-858).

What is asked of the controller and what is done with its answers; no sockets, tasks or clock. What it refuses or does
not answer is told again. Source: Kafka 4.3.1, AssignmentsManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from kraftcore.protocol.topics import PartitionKey

MAX_PER_REQUEST: Final = 2250
"""How many replicas one request names at most: Kafka's AssignmentsManager.MAX_ASSIGNMENTS_PER_REQUEST."""
AGAIN_MS: Final = 500
"""The pause between two requests, in milliseconds."""
_Directory = AssignReplicasToDirsRequest.DirectoryData


class DirectoryRequest(NamedTuple):
    """A request, and what it was made of.

    Attributes:
        message: the request.
        told: the directory of each replica in it.
    """

    message: AssignReplicasToDirsRequest
    told: Mapping[PartitionKey, Uuid]


class DirectoryRequests:
    """Makes AssignReplicasToDirs requests for replicas whose log directory the controller does not know yet.

    Args:
        broker_id: id of this broker.
        broker_epoch: of this broker's present registration.
        complain: called with a subject, of which few lines are logged, and a line.
        image: the metadata as far as it is committed.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        complain: Callable[[str, str], object],
        image: Callable[[], Image],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._complain = complain
        self._image = image
        self._wanted: dict[PartitionKey, Uuid] = {}
        self._untold: set[PartitionKey] = set()

    @property
    def is_supported(self) -> bool:
        """Whether the metadata can hold directories: metadata.version 3.7-IV2 or later."""
        return self._image().features.metadata_version_or_minimum >= MetadataVersion.V3_7_IV2

    @property
    def is_answered(self) -> bool:
        """Whether the controller has answered about each replica that was noted, or cannot hold directories."""
        return not self._untold or not self.is_supported

    def tell(self, name: TopicPartition, topic_id: Uuid, directory_id: Uuid) -> bool:
        """See `TellDirectory`."""
        row = self._image().partitions.get(topic_id, name.partition)
        if row is None:
            return False
        known = row.directory_of(self._broker_id)
        self.note(PartitionKey(topic_id, name.partition), directory_id, known)
        return known == directory_id or not self.is_supported

    @property
    def has_more(self) -> bool:
        """Whether the controller does not know the directory of a replica yet."""
        return bool(self._wanted)

    def note(self, key: PartitionKey, actual: Uuid | None, assigned: Uuid) -> bool:
        """Note in which directory a replica lies.

        Args:
            key: the replica.
            actual: id of its directory; None: there is no log, or its directory has no id; nothing is told then.
            assigned: id of the directory in which the controller has the replica.

        Returns:
            Whether the controller is to be told.
        """
        if actual is None or actual == assigned:
            self.forget(key)
            return False
        self._wanted[key] = actual
        self._untold.add(key)
        return True

    def forget(self, key: PartitionKey) -> None:
        """A replica was deleted: its directory is told no more."""
        self._wanted.pop(key, None)
        self._untold.discard(key)

    def take(self) -> DirectoryRequest | None:
        """The next request; None: the controller knows all, or cannot hold directories yet."""
        if not self._wanted or not self.is_supported:
            return None
        told = dict(list(self._wanted.items())[:MAX_PER_REQUEST])
        return DirectoryRequest(self._message(told), told)

    def _message(self, told: Mapping[PartitionKey, Uuid]) -> AssignReplicasToDirsRequest:
        request = AssignReplicasToDirsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        by_directory: dict[Uuid, dict[Uuid, list[int]]] = {}
        for key, directory_id in told.items():
            by_directory.setdefault(directory_id, {}).setdefault(key.topic_id, []).append(key.partition_id)
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

    def answered(self, request: DirectoryRequest, answer: object) -> None:
        """Read the answer to a request, or the `Failure` of it: refused assignments are sent again later."""
        if isinstance(answer, AssignReplicasToDirsResponse):
            self._untold.difference_update(request.told)
        if not isinstance(answer, AssignReplicasToDirsResponse) or answer.error_code != ErrorCode.NONE:
            what = answer.name if isinstance(answer, Failure) else "it refuses"
            if isinstance(answer, AssignReplicasToDirsResponse):
                what = ErrorCode.of(answer.error_code).name
            self._complain("directories", f"the controller did not take which directories hold replicas: {what}")
            return
        for directory in answer.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    key = PartitionKey(topic.topic_id, each.partition_index)
                    if each.error_code == ErrorCode.NONE and self._wanted.get(key) == request.told.get(key):
                        self._wanted.pop(key, None)
        for key in request.told:  # refused assignments wait behind those that were not sent yet
            refused = self._wanted.pop(key, None)
            if refused is not None:
                self._wanted[key] = refused
