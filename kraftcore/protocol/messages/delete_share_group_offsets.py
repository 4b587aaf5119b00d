"""DeleteShareGroupOffsets, api key 92."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequest(Request, api_key=92, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Delete the start offsets of a share group (KIP-932)."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        """An element of ``topics``."""

        topic_name: str = string()

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponse(Response, api_key=92, versions=(0, 0), flexible_from=0):
    """Answer to DeleteShareGroupOffsetsRequest."""

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        """An element of ``responses``."""

        topic_name: str = string()
        topic_id: Uuid = uuid()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
