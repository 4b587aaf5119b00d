"""RemoveRaftVoter, api key 81."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, api_key=81, versions=(0, 0), flexible_from=0, listeners=("broker", "controller")):
    """Remove a voter from the quorum (KIP-853)."""

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


class RemoveRaftVoterResponse(Response, api_key=81, versions=(0, 0), flexible_from=0):
    """Answer to RemoveRaftVoterRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
