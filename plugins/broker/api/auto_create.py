"""Creation of topics that clients ask for and that do not exist (``auto.create.topics.enable``).

The controller is asked in the client's name (KIP-590), with ``num.partitions`` and ``default.replication.factor``
of this broker. Source: Kafka 4.3.1, DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import trio

from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.forwarding import Forwarding
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.ports.complaints import Complaints
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftcore.protocol.registry import api_of

_logger = logging.getLogger("kraftcore.broker")


class AutoCreate:
    """Asks the controller to make topics that clients name and that do not exist.

    Args:
        forwarding: passes the request on to the controller.
        background: runs the tasks that wait for the controller.
        partitions: how many partitions a new topic has.
        replication_factor: how many replicas each of these partitions has.
    """

    def __init__(
        self, forwarding: Forwarding, background: Background, partitions: int, replication_factor: int
    ) -> None:
        self._forwarding = forwarding
        self._background = background
        self._partitions = partitions
        self._replication_factor = replication_factor
        self._on_their_way: set[str] = set()
        self._complain = Complaints(_logger.warning, trio.current_time)

    def create(self, names: Collection[str], context: RequestContext) -> None:
        """Have the topics made, unless they are being made already; the client asks again."""
        wanted = [name for name in names if name not in self._on_their_way]
        if wanted and not self._background.is_full:
            self._on_their_way.update(wanted)
            self._background.start(lambda: self._ask(wanted, context))

    async def _ask(self, names: list[str], context: RequestContext) -> None:
        kind = CreateTopicsRequest.CreatableTopic
        topics = [
            kind(name=name, num_partitions=self._partitions, replication_factor=self._replication_factor)
            for name in names
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
        newest = api_of(CreateTopicsRequest).max_version
        try:
            answer = await self._forwarding.ask(request, context, newest)
        finally:
            self._on_their_way.difference_update(names)
        for told in answer.topics if isinstance(answer, CreateTopicsResponse) else ():
            code = ErrorCode.of(told.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._complain(f"create {code.name}", f"topic {told.name} is not made: {code.name}")
