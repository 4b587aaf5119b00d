"""DescribeCluster: the brokers (KIP-700). Source: Kafka 4.3.1, AuthHelper.computeDescribeClusterResponse."""

from __future__ import annotations

from collections.abc import Callable

from kraftcore.metadata import Image
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.security.acl import CLUSTER_NAME, Operation, ResourceType

_BROKERS, _CONTROLLERS = 1, 2
_Broker = DescribeClusterResponse.DescribeClusterBroker


class DescribeCluster:
    """Answers DescribeCluster requests.

    Args:
        cache: the brokers that are alive.
        cluster_id: the id of the cluster.
        permits: knows which operations on the cluster the asker may do.
        image: gives the metadata image, which also has the fenced brokers; None: there is no metadata log.
    """

    def __init__(
        self, cache: MetadataCache, cluster_id: str, permits: Permits, image: Callable[[], Image] | None
    ) -> None:
        self._cache = cache
        self._cluster_id = cluster_id
        self._permits = permits
        self._image = image

    def respond(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        """The brokers that have the listener on which the request came in."""
        wanted = request.endpoint_type if context.version >= 1 else _BROKERS
        if wanted == _CONTROLLERS:
            text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=text)
        if wanted != _BROKERS:
            text = f"Unsupported endpoint type {wanted}"
            return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=text)
        cache, listener = self._cache, context.asker.listener
        controller_id = -1 if cache.controller_id is None else cache.controller_id
        response = DescribeClusterResponse(cluster_id=self._cluster_id, controller_id=controller_id)
        for broker, address in cache.brokers_on(listener):
            response.brokers.append(
                _Broker(broker_id=broker.id, host=address.host, port=address.port, rack=broker.rack)
            )
        if request.include_fenced_brokers and self._image is not None:
            for each in self._image().brokers.values():
                at = next((end for end in each.listeners if end.name == listener), None)
                if at is not None and each.id not in cache.brokers:
                    response.brokers.append(
                        _Broker(broker_id=each.id, host=at.host, port=at.port, rack=each.rack, is_fenced=True)
                    )
        if request.include_cluster_authorized_operations:
            may = self._permits.may_cluster(request, context, Operation.DESCRIBE)
            kind = ResourceType.CLUSTER
            allowed = self._permits.operations(request, context, kind, CLUSTER_NAME) if may else 0
            response.cluster_authorized_operations = allowed
        return response
