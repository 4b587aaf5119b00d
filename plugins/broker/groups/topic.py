"""``__consumer_offsets``: which of its partitions a group belongs to, and how the topic comes to be."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from struct import iter_unpack
from typing import Any

import trio

from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS
from kraftcore.ports.complaints import Complaints
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.topics import GROUPS_TOPIC

_logger = logging.getLogger("kraftcore.broker")


def partition_of(name: str, partitions: int) -> int:
    """The partition for a group's or a transaction's id: Java's hash of it, as all brokers compute it."""
    found = 0
    for (unit,) in iter_unpack("<H", name.encode("utf-16-le", "surrogatepass")):
        found = (found * 31 + unit) & 0xFFFFFFFF
    return (found & 0x7FFFFFFF) % partitions


class GroupsTopic:
    """Makes the topic when a client first looks for a coordinator.

    Args:
        settings: its partitions, replicas, segments.
        ask_controller: sends a request to the active controller; None: there is none that could make it.
    """

    def __init__(self, settings: GroupSettings, ask_controller: Callable[[Any], Awaitable[Any]] | None) -> None:
        self._settings = settings
        self._ask_controller = ask_controller
        self._complain = Complaints(_logger.warning, trio.current_time)
        self.is_asked_for = False

    async def create(self) -> bool:
        """Ask for it once. Callers see that one of these runs at a time.

        Returns:
            Whether it will be seen in the metadata.
        """
        settings = self._settings
        kind = CreateTopicsRequest.CreatableTopic
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.topic_segment_bytes),
        }
        topic = kind(
            name=GROUPS_TOPIC,
            num_partitions=settings.topic_partitions,
            replication_factor=settings.topic_replication_factor,
            configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        if self._ask_controller is None:
            self._complain("no controller", f"{GROUPS_TOPIC} does not exist, and no controller can be asked to make it")
            return False
        answer = await self._ask_controller(CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS))
        if isinstance(answer, Failure):
            self._complain(answer.name, f"{GROUPS_TOPIC} could not be made: {answer}")
            return False
        is_made = bool(answer.topics)
        for told in answer.topics:
            if told.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                error = ErrorCode.of(told.error_code).name
                self._complain(error, f"{GROUPS_TOPIC} could not be made: {error}: {told.error_message}")
                is_made = False
        return is_made
