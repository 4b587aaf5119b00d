"""The requests to transaction coordinators, which this broker answers with NOT_COORDINATOR (KIP-98, KIP-890).

This broker may lead a partition of ``__transaction_state`` after a broker of Kafka died. A client that takes it for the
coordinator then looks for the coordinator again. The requests are offered nevertheless: a broker of Kafka that finds
AddPartitionsToTxn not offered would append batches without verifying them.
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

_BY_TRANSACTION = 4  # version of AddPartitionsToTxn that names several transactions


def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Answer EndTxn with NOT_COORDINATOR."""
    return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)


def add_offsets(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Answer AddOffsetsToTxn with NOT_COORDINATOR."""
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)


class AddPartitionsToTxn:
    """Answers AddPartitionsToTxn requests, of producers and of other brokers."""

    @in_turns
    def respond(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> InTurns[AddPartitionsToTxnResponse]:
        """Answer NOT_COORDINATOR for each partition."""
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
