"""AddPartitionsToTxn, api key 24."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    """Shared by several fields of AddPartitionsToTxnRequest."""

    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnRequest(Request, api_key=24, versions=(0, 5), flexible_from=3, listeners=("broker",)):
    """Add partitions to a transaction."""

    class AddPartitionsToTxnTransaction(Struct):
        """An element of ``transactions``."""

        transactional_id: str = string("4+")
        producer_id: int = int64("4+")
        producer_epoch: int = int16("4+")
        verify_only: bool = boolean("4+")
        topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    """Shared by several fields of AddPartitionsToTxnResponse."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """Shared by several fields of AddPartitionsToTxnResponse."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResponse(Response, api_key=24, versions=(0, 5), flexible_from=3):
    """Answer to AddPartitionsToTxnRequest."""

    class AddPartitionsToTxnResult(Struct):
        """An element of ``results_by_transaction``."""

        transactional_id: str = string("4+")
        topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")

    throttle_time_ms: int = int32()
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")
