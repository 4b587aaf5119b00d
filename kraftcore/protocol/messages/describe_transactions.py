"""DescribeTransactions, api key 65."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Request, api_key=65, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Describe transactions (KIP-664)."""

    transactional_ids: list[str] = array(string)


class DescribeTransactionsResponse(Response, api_key=65, versions=(0, 0), flexible_from=0):
    """Answer to DescribeTransactionsRequest."""

    class TransactionState(Struct):
        """An element of ``transaction_states``."""

        class TopicData(Struct):
            """An element of ``topics``."""

            topic: str = string()
            partitions: list[int] = array(int32)

        error_code: int = int16()
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[TopicData] = array(TopicData)

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
