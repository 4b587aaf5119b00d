"""ElectLeaders, api key 43."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class ElectLeadersRequest(Request, api_key=43, versions=(0, 2), flexible_from=2, listeners=("broker", "controller")):
    """Elect preferred or unclean leaders (KIP-460)."""

    class TopicPartitions(Struct):
        """An element of ``topic_partitions``."""

        topic: str = string()
        partitions: list[int] = array(int32)

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class ElectLeadersResponse(Response, api_key=43, versions=(0, 2), flexible_from=2):
    """Answer to ElectLeadersRequest."""

    class ReplicaElectionResult(Struct):
        """An element of ``replica_election_results``."""

        class PartitionResult(Struct):
            """An element of ``partition_result``."""

            partition_id: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")

        topic: str = string()
        partition_result: list[PartitionResult] = array(PartitionResult)

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
