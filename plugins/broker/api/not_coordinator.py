"""What transaction coordinators are asked: this broker is none, which is not for good (KIP-98, KIP-890).

It may lead a part of ``__transaction_state`` after a broker of Kafka died. Whoever believes that it coordinates looks
for the coordinator again, and goes on when there is one; to brokers of Kafka that verify transactions a request that is
not offered would mean that they need not.
"""

from __future__ import annotations

from kraftcore.node.registry import RequestContext
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


def add_partitions(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    """AddPartitionsToTxn, of producers and of other brokers: NOT_COORDINATOR of each partition."""
    if context.version < _BY_TRANSACTION:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[_refusal(topic) for topic in request.v3_and_below_topics]
        )
    kind = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            kind(transactional_id=each.transactional_id, topic_results=[_refusal(topic) for topic in each.topics])
            for each in request.transactions
        ]
    )


def _refusal(topic: AddPartitionsToTxnTopic) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=ErrorCode.NOT_COORDINATOR)
            for number in topic.partitions
        ],
    )
