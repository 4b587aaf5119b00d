"""ListTransactions: an empty list, since this broker coordinates no transactions (KIP-664).

Source: Kafka 4.3.1, TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

from typing import Final

from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.re2_syntax import is_re2
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kraftcore.protocol.topics import TRANSACTIONS_TOPIC

_STATES: Final = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)


class ListTransactions:
    """Answers ListTransactions requests.

    Args:
        replicas: the partitions of which this broker has a replica.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def respond(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        """Answer an empty list, or COORDINATOR_NOT_AVAILABLE if this broker leads a partition of __transaction_state.

        In that case there may be transactions that no broker coordinates at the moment.
        """
        led = (name for name, each in self._replicas.all.items() if each.partition.leading is not None)
        if any(name.topic == TRANSACTIONS_TOPIC for name in led):
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        pattern = request.transactional_id_pattern
        if pattern and not is_re2(pattern):
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return ListTransactionsResponse(
            unknown_state_filters=[each for each in request.state_filters if each not in _STATES]
        )
