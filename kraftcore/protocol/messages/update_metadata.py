"""UpdateMetadata, api key 6."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, int64, string, uuid


class UpdateMetadataPartitionState(Struct):
    """Shared by several fields of UpdateMetadataRequest."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "4+", ignorable=True)


class UpdateMetadataRequest(Request, api_key=6, removed_versions=(0, 8), flexible_from=6):
    """ZooKeeper-era controller to broker: the cluster's metadata for the broker's cache."""

    class UpdateMetadataTopicState(Struct):
        """An element of ``topic_states``."""

        topic_name: str = string("5+")
        topic_id: Uuid = uuid("7+", ignorable=True)
        partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")

    class UpdateMetadataBroker(Struct):
        """An element of ``live_brokers``."""

        class UpdateMetadataEndpoint(Struct):
            """An element of ``endpoints``."""

            port: int = int32("1+")
            host: str = string("1+")
            listener: str = string("3+", ignorable=True)
            security_protocol: int = int16("1+")

        id: int = int32()
        v0_host: str = string("0", ignorable=True)
        v0_port: int = int32("0", ignorable=True)
        endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
        rack: str | None = string("2+", nullable="0+", ignorable=True)

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("8+", kafka="isKRaftController")
    type: int = int8("8+", tagged="8+", tag=0)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "0-4")
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Response, api_key=6, removed_versions=(0, 8), flexible_from=6):
    """Answer to UpdateMetadataRequest."""

    error_code: int = int16()
