"""WriteTxnMarkers, api key 27."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, int64, string


class WriteTxnMarkersRequest(Request, api_key=27, versions=(1, 2), flexible_from=1, listeners=("broker",)):
    """Write commit or abort markers to partitions."""

    class WritableTxnMarker(Struct):
        """An element of ``markers``."""

        class WritableTxnMarkerTopic(Struct):
            """An element of ``topics``."""

            name: str = string()
            partition_indexes: list[int] = array(int32)

        producer_id: int = int64()
        producer_epoch: int = int16()
        transaction_result: bool = boolean()
        topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
        coordinator_epoch: int = int32()
        transaction_version: int = int8("2+", ignorable=True)

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WriteTxnMarkersResponse(Response, api_key=27, versions=(1, 2), flexible_from=1):
    """Answer to WriteTxnMarkersRequest."""

    class WritableTxnMarkerResult(Struct):
        """An element of ``markers``."""

        class WritableTxnMarkerTopicResult(Struct):
            """An element of ``topics``."""

            class WritableTxnMarkerPartitionResult(Struct):
                """An element of ``partitions``."""

                partition_index: int = int32()
                error_code: int = int16()

            name: str = string()
            partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)

        producer_id: int = int64()
        topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
