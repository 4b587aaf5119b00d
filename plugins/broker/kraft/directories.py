"""Sends AssignReplicasToDirs on trio: tells the controller which log directory holds which replica (KIP-858)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Image
from kraftcore.plugins.broker.controller_channel import ControllerChannel
from kraftcore.plugins.broker.kraft.directory_requests import AGAIN_MS, DirectoryRequests
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.ports.complaints import Complaints
from kraftcore.protocol.topics import PartitionKey

_logger = logging.getLogger("kraftcore.broker")


class DirectoryAssignments:
    """Sends AssignReplicasToDirs requests to the controller on trio.

    Args:
        broker_id: id of this broker.
        broker_epoch: of this broker's present registration.
        controllers: sends requests to the active controller.
        image: the metadata as far as it is committed.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controllers: ControllerChannel,
        image: Callable[[], Image],
    ) -> None:
        self._controllers = controllers
        complain = Complaints(_logger.warning, trio.current_time)
        self._requests = DirectoryRequests(broker_id, broker_epoch, complain, image)
        self._wake = trio.Event()
        self._answered = trio.Event()

    def note(self, key: PartitionKey, actual: Uuid | None, assigned: Uuid) -> None:
        """See `DirectoryRequests.note`."""
        if self._requests.note(key, actual, assigned):
            self._wake.set()

    def forget(self, key: PartitionKey) -> None:
        """A replica was deleted: its directory is told no more."""
        self._requests.forget(key)

    def tell(self, name: TopicPartition, topic_id: Uuid, directory_id: Uuid) -> bool:
        """See `TellDirectory`."""
        is_known = self._requests.tell(name, topic_id, directory_id)
        self.retry()
        return is_known

    def retry(self) -> None:
        """The metadata changed, perhaps to a metadata.version that holds directories: send waiting assignments."""
        if self._requests.has_more:
            self._wake.set()

    async def wait_answered(self) -> None:
        """Wait until the controller has answered about each replica whose directory it does not know."""
        while not self._requests.is_answered:
            await self._answered.wait()

    async def run(self) -> None:
        """Send requests, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while (request := self._requests.take()) is not None:
                self._requests.answered(request, await self._controllers.send_to_controller(request.message))
                self._answered.set()
                self._answered = trio.Event()
                if self._requests.has_more:
                    await trio.sleep(AGAIN_MS / 1000)
