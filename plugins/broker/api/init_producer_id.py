"""InitProducerId: an id for an idempotent producer (KIP-98). Transactional ones are refused.

Source: Kafka 4.3.1, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.background import Background
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.producers.ids import ProducerIds
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kraftcore.security.acl import Operation


class InitProducerId:
    """Answers it.

    Args:
        ids: where ids come from.
        cache: the topics that there are.
        permits: the asker must be allowed to write, idempotently or to some topic.
        background: where requests wait.
    """

    def __init__(self, ids: ProducerIds, cache: MetadataCache, permits: Permits, background: Background) -> None:
        self._ids = ids
        self._cache = cache
        self._permits = permits
        self._background = background

    def respond(self, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse | None:
        """A new id each time, with epoch 0; COORDINATOR_LOAD_IN_PROGRESS, to be retried, while there is none."""
        error = self._error(request, context)
        if error is not ErrorCode.NONE:
            return _refusal(error)
        self._background.answer(context, self._answer)
        return None

    def _error(self, request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
        if request.transactional_id == "" or (request.producer_id == -1) != (request.producer_epoch == -1):
            return ErrorCode.INVALID_REQUEST
        if request.transactional_id is not None:
            return ErrorCode.UNSUPPORTED_VERSION  # there are no transactions; clients give up at this code
        permits = self._permits
        if permits.may_cluster(request, context, Operation.IDEMPOTENT_WRITE) or any(
            permits.may(request, context, Operation.WRITE, topic) for topic in self._cache.topics
        ):
            return ErrorCode.NONE
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    async def _answer(self) -> InitProducerIdResponse:
        producer_id = await self._ids.next()
        if producer_id is None:
            return _refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
