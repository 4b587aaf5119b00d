"""What transaction coordinators are asked: this broker is none, which is not for good (KIP-98, KIP-890).

It may lead a part of ``__transaction_state`` after a broker of Kafka died. Whoever believes that it coordinates looks
for the coordinator again, and goes on when there is one; to brokers of Kafka that verify transactions a request that is
not offered would mean that they need not.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.work.turns import InTurns, Turn, in_turns
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kraftcore.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kraftcore.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_BY_TRANSACTION = 4  # version of AddPartitionsToTxn


def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """EndTxn: NOT_COORDINATOR."""
    return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)


def add_offsets(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """AddOffsetsToTxn: NOT_COORDINATOR."""
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)


class AddPartitionsToTxn:
    """Answers AddPartitionsToTxn requests, of producers and of other brokers."""

    @in_turns
    def respond(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> InTurns[AddPartitionsToTxnResponse]:
        """NOT_COORDINATOR of each partition."""
        response, turn = AddPartitionsToTxnResponse(), Turn()
        if context.version < _BY_TRANSACTION:
            response.results_by_topic_v3_and_below = yield from _refusals(request.v3_and_below_topics, turn)
            return response
        kind = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
        for each in request.transactions:
            results = yield from _refusals(each.topics, turn)
            response.results_by_transaction.append(kind(transactional_id=each.transactional_id, topic_results=results))
            if turn.is_over():
                yield
        return response


def _refusals(topics: Sequence[AddPartitionsToTxnTopic], turn: Turn) -> InTurns[list[AddPartitionsToTxnTopicResult]]:
    found = []
    for topic in topics:
        told = AddPartitionsToTxnTopicResult(name=topic.name)
        found.append(told)
        for number in topic.partitions:
            told.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=ErrorCode.NOT_COORDINATOR
                )
            )
            if turn.is_over():
                yield
        if turn.is_over():
            yield
    return found
