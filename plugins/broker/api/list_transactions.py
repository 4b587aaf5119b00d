"""ListTransactions: this broker coordinates none, and says so (KIP-664).

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
        replicas: our partitions.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def respond(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        """Nothing.

        COORDINATOR_NOT_AVAILABLE where this broker leads a part of Kafka's log of transactions, and so hides some.
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
