"""Metadata, api key 3."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequest(Request, api_key=3, versions=(0, 13), flexible_from=9, listeners=("broker",)):
    """Describe brokers, topics and partition leaders."""

    class MetadataRequestTopic(Struct):
        """An element of ``topics``."""

        topic_id: Uuid = uuid("10+", ignorable=True)
        name: str | None = string(nullable="10+")

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponse(Response, api_key=3, versions=(0, 13), flexible_from=9):
    """Answer to MetadataRequest."""

    class MetadataResponseBroker(Struct):
        """An element of ``brokers``."""

        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)

    class MetadataResponseTopic(Struct):
        """An element of ``topics``."""

        class MetadataResponsePartition(Struct):
            """An element of ``partitions``."""

            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32("7+", default=-1, ignorable=True)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            offline_replicas: list[int] = array(int32, "5+", ignorable=True)

        error_code: int = int16()
        name: str | None = string(nullable="12+")
        topic_id: Uuid = uuid("10+", ignorable=True)
        is_internal: bool = boolean("1+", ignorable=True)
        partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
        topic_authorized_operations: int = int32("8+", default=-2147483648)

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", ignorable=True)
