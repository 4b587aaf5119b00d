"""ListConfigResources: the resources with a configuration (KIP-1142); version 0: client metrics alone (KIP-714).

Source: Kafka 4.3.1, KafkaApis.handleListConfigResources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_Resource = ListConfigResourcesResponse.ConfigResource
_TYPES: Final = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


class ListConfigResources:
    """Answers ListConfigResources requests.

    Args:
        image: gives the committed metadata image.
        cache: the live brokers, and the topics.
    """

    def __init__(self, image: Callable[[], Image], cache: MetadataCache) -> None:
        self._image = image
        self._cache = cache

    def respond(self, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
        """All topics and live brokers, and the groups and client metrics that have settings.

        A resource type that has no configurations is UNSUPPORTED_VERSION.
        """
        supported = _TYPES if context.version >= 1 else (CLIENT_METRICS,)
        wanted = set(request.resource_types) or set(supported)
        if not wanted <= set(supported):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return ListConfigResourcesResponse(
            config_resources=[
                _Resource(resource_name=name, resource_type=kind)
                for kind in supported
                if kind in wanted
                for name in self._names(kind, context)
            ]
        )

    def _names(self, kind: int, context: RequestContext) -> Iterable[str]:
        if kind == TOPIC:
            return iter(self._cache.topics)
        if kind in (BROKER, BROKER_LOGGER):
            return (str(broker.id) for broker, _ in self._cache.brokers_on(context.asker.listener))
        return (each.name for each in self._image().configs if each.type == kind)
