"""CreateTopics, api key 19."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string, uuid


class CreateTopicsRequest(Request, api_key=19, versions=(2, 7), flexible_from=5, listeners=("broker", "controller")):
    """Create topics."""

    class CreatableTopic(Struct):
        """An element of ``topics``."""

        class CreatableReplicaAssignment(Struct):
            """An element of ``assignments``."""

            partition_index: int = int32()
            broker_ids: list[int] = array(int32)

        class CreatableTopicConfig(Struct):
            """An element of ``configs``."""

            name: str = string()
            value: str | None = string(nullable="0+")

        name: str = string()
        num_partitions: int = int32()
        replication_factor: int = int16()
        assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
        configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000, kafka="timeoutMs")
    validate_only: bool = boolean("1+", kafka="validateOnly")


class CreateTopicsResponse(Response, api_key=19, versions=(2, 7), flexible_from=5):
    """Answer to CreateTopicsRequest."""

    class CreatableTopicResult(Struct):
        """An element of ``topics``."""

        class CreatableTopicConfigs(Struct):
            """An element of ``configs``."""

            name: str = string("5+")
            value: str | None = string("5+", nullable="5+")
            read_only: bool = boolean("5+")
            config_source: int = int8("5+", default=-1, ignorable=True)
            is_sensitive: bool = boolean("5+")

        name: str = string()
        topic_id: Uuid = uuid("7+", ignorable=True)
        error_code: int = int16()
        error_message: str | None = string("1+", nullable="0+", ignorable=True)
        topic_config_error_code: int = int16("5+", tagged="5+", tag=0, ignorable=True)
        num_partitions: int = int32("5+", default=-1, ignorable=True)
        replication_factor: int = int16("5+", default=-1, ignorable=True)
        configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+", ignorable=True)

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
