"""InitProducerId: an id for an idempotent producer (KIP-98); transactional producers are refused.

Source: Kafka 4.3.1, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from kraftcore.errors import RefusedError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.producers.ids import ProducerIds
from kraftcore.plugins.broker.transactions_topic import TransactionsTopic
from kraftcore.plugins.broker.unsupported import Refusals, Unsupported
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action


class InitProducerId:
    """Answers InitProducerId requests.

    Args:
        ids: gives out producer ids.
        cache: knows the topics of the cluster.
        permits: the asker must be allowed to write idempotently, or to write to some topic, existing or not.
        background: runs the tasks that wait for other brokers.
        transactions: knows whether another broker coordinates transactions.
        refusals: logs that a client asked for a transaction where no broker coordinates any.
    """

    def __init__(
        self,
        ids: ProducerIds,
        cache: MetadataCache,
        permits: Permits,
        background: Background,
        transactions: TransactionsTopic,
        refusals: Refusals,
    ) -> None:
        self._refusals = refusals
        self._transactions = transactions
        self._ids = ids
        self._cache = cache
        self._permits = permits
        self._background = background

    def respond(self, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse | None:
        """A new id with epoch 0; COORDINATOR_LOAD_IN_PROGRESS, which clients retry, until the controller gives ids."""
        error = self._error(request, context)
        if error is not ErrorCode.NONE:
            return _refusal(error)
        self._background.answer(context, self._answer)
        return None

    def _error(self, request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
        if request.transactional_id == "" or (request.producer_id == -1) != (request.producer_epoch == -1):
            return ErrorCode.INVALID_REQUEST
        permits = self._permits
        if request.transactional_id is not None:
            write = Action(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            if not permits.asker(request, context)(write):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return self._of_a_transaction(request.transactional_id, context)
        if permits.may_cluster(request, context, Operation.IDEMPOTENT_WRITE, is_logged=False) or permits.may_some(
            request, context, Operation.WRITE, self._cache.topics
        ):
            return ErrorCode.NONE
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def _of_a_transaction(self, transactional_id: str, context: RequestContext) -> ErrorCode:
        try:
            if self._transactions.may_be_coordinated(transactional_id):
                return ErrorCode.NOT_COORDINATOR
        except RefusedError as error:
            return ErrorCode[error.error]
        self._refusals(Unsupported.TRANSACTIONS, context)
        return ErrorCode.UNSUPPORTED_VERSION  # no broker coordinates transactions; clients give up at this code

    async def _answer(self) -> InitProducerIdResponse:
        producer_id = await self._ids.next()
        if producer_id is None:
            return _refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
