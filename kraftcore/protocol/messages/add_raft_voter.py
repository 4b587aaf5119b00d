"""AddRaftVoter, api key 80."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, uint16, uuid


class AddRaftVoterRequest(Request, api_key=80, versions=(0, 1), flexible_from=0, listeners=("broker", "controller")):
    """Add a voter to the quorum (KIP-853)."""

    class Listener(Struct):
        """An element of ``listeners``."""

        name: str = string()
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Response, api_key=80, versions=(0, 1), flexible_from=0):
    """Answer to AddRaftVoterRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
