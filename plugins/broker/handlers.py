"""The requests of clients and of other brokers that every broker answers: one entry a request.

``core`` has what a handler may need: ``replicas``, ``cache``, ``controllers`` (the way to the controller),
``deadlines``, ``now_ms``, ``image`` under a KRaft controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kraftcore.node.registry import ListenerType, Priority, RequestHandler
from kraftcore.plugins.broker.api.list_offsets import ListOffsets
from kraftcore.plugins.broker.api.metadata import Metadata
from kraftcore.plugins.broker.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from kraftcore.plugins.broker.api.produce import BatchLimits, Produce
from kraftcore.plugins.broker.groups.handlers import group_handlers
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from kraftcore.plugins.broker.core import Core


def client_handlers(core: Core) -> Iterator[RequestHandler]:
    """What a broker answers on its listeners, whoever controls it."""
    config, replicas = core.config, core.replicas
    limits = BatchLimits(config.message_max_bytes, config.segment_bytes)
    produce = Produce(replicas, core.leaders, core.deadlines, limits, core.now_ms)
    # Brokers of Kafka 4.3.1 ask each other in the versions that metadata.version says, without looking (KIP-584). Under
    # control requests: the versions of Kafka 3.9.1, but for those that Kafka 4 dropped.
    is_kraft = core.image is not None
    handlers: tuple[tuple[Any, tuple[int, int], Any], ...] = (
        (ProduceRequest, (3, 11), produce),
        (FetchRequest, (4, 18 if is_kraft else 17), core.fetch),
        (ListOffsetsRequest, (1, 11 if is_kraft else 9), ListOffsets(replicas)),
        (MetadataRequest, (0, 12), Metadata(core.cache, core.cluster_id)),
        (OffsetForLeaderEpochRequest, (2, 4), OffsetForLeaderEpoch(replicas)),
    )
    for kind, versions, handler in handlers:
        yield broker_handler(kind, versions, handler.respond)
    yield from group_handlers(core)


def broker_handler(
    kind: Any, versions: tuple[int, int], respond: Any, priority: Priority = Priority.DATA
) -> RequestHandler:
    """A handler on a broker's listeners; an error in it breaks the asker's connection, and nothing else."""
    return RequestHandler(
        kind,
        respond,
        priority=priority,
        versions=versions,
        owner="broker",
        is_vital=False,
        listener_type=ListenerType.BROKER,
    )
