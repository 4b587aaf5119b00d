"""Why a request got no answer: what transports report, and what the consensus draws conclusions from."""

from __future__ import annotations

from enum import Enum, auto


class Failure(Enum):
    """Why a request got no answer."""

    REFUSED = auto()  # nobody listens there: the process is dead
    RESET = auto()  # the other side broke the connection with the request on it
    TIMED_OUT = auto()
    UNSUPPORTED_VERSION = auto()  # the peer speaks no version that can carry the request
    UNAUTHENTICATED = auto()  # the peer did not accept who this side is, or did not prove who it is itself
    OTHER = auto()  # name resolution, TLS, or this side closed
