"""DeleteTopics, api key 20."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteTopicsRequest(
    Request, api_key=20, versions=(1, 6), removed_versions=(0, 0), flexible_from=4, listeners=("broker", "controller")
):
    """Delete topics by name or id (KIP-516)."""

    class DeleteTopicState(Struct):
        """An element of ``topics``."""

        name: str | None = string("6+", nullable="6+", default=None)
        topic_id: Uuid = uuid("6+")

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeleteTopicsResponse(Response, api_key=20, versions=(1, 6), removed_versions=(0, 0), flexible_from=4):
    """Answer to DeleteTopicsRequest."""

    class DeletableTopicResult(Struct):
        """An element of ``responses``."""

        name: str | None = string(nullable="6+")
        topic_id: Uuid = uuid("6+", ignorable=True)
        error_code: int = int16()
        error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
