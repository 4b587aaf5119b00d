"""Envelope, api key 58."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, octets


class EnvelopeRequest(Request, api_key=58, versions=(0, 0), flexible_from=0, listeners=("controller",)):
    """Broker to controller: a client's request with the client's principal (KIP-590)."""

    request_data: bytes = octets()
    request_principal: bytes | None = octets(nullable="0+")
    client_host_address: bytes = octets()


class EnvelopeResponse(Response, api_key=58, versions=(0, 0), flexible_from=0):
    """Answer to EnvelopeRequest."""

    response_data: bytes | None = octets(nullable="0+", default=None)
    error_code: int = int16()
