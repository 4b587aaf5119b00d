"""SaslHandshake, api key 17."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, api_key=17, versions=(0, 1), listeners=("broker", "controller")):
    """Choose a SASL mechanism (KIP-43)."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, api_key=17, versions=(0, 1)):
    """Answer to SaslHandshakeRequest."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)
