"""ListTransactions, api key 66."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Request, api_key=66, versions=(0, 2), flexible_from=0, listeners=("broker",)):
    """List the transactions a broker coordinates (KIP-664)."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListTransactionsResponse(Response, api_key=66, versions=(0, 2), flexible_from=0):
    """Answer to ListTransactionsRequest."""

    class TransactionState(Struct):
        """An element of ``transaction_states``."""

        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
