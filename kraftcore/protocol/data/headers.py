"""Headers of requests and responses."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, int16, int32, string


class RequestHeader(Data, versions=(1, 2), removed_versions=(0, 0), flexible_from=2):
    """In front of every request. Version 0, without client id, is for ControlledShutdown v0 alone."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string("1+", nullable="1+", flexible="none")


class ResponseHeader(Data, versions=(0, 1), flexible_from=1):
    """In front of every response. ApiVersions responses always have version 0, so that any client can read them."""

    correlation_id: int = int32()
