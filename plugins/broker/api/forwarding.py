"""Requests that only the controller decides about are passed on to it, with the asker's principal (KIP-590).

The controller asks its authorizer about the asker. Source: Kafka 4.3.1, ForwardingManager.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

from kraftcore.core.wire.codec import encode
from kraftcore.errors import RemoteProtocolError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.background import Background
from kraftcore.plugins.controller.registry import APIS
from kraftcore.protocol.data.default_principal_data import DefaultPrincipalData
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request, Response

_PRINCIPAL_VERSION = 0


class Forwarding:
    """See the module text.

    Args:
        send: sends a request to the active controller, again if need be; gives the response, or a `Failure`.
        background: where requests wait.
    """

    def __init__(self, send: Callable[[Any], Awaitable[Any]], background: Background) -> None:
        self._send = send
        self._background = background

    def respond(self, request: Any, context: RequestContext) -> None:
        """What the controller answers; REQUEST_TIMED_OUT when it does not in time."""
        self._background.answer(context, lambda: self.ask(request, context))

    async def ask(self, request: Request, context: RequestContext) -> Response | None:
        """Have the controller answer a request of somebody; None: it does not know the request, or its version."""
        envelope = EnvelopeRequest(
            request_data=encode_request(request, context.version, 0, context.client_id),
            request_principal=_principal(context),
            client_host_address=_address(context.host),
        )
        answer = await self._send(envelope)
        if not isinstance(answer, EnvelopeResponse):
            if answer is Failure.UNSUPPORTED_VERSION:
                return None
            return _refusal(request, context.version, ErrorCode.REQUEST_TIMED_OUT)
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.UNSUPPORTED_VERSION:
            return None
        if error is not ErrorCode.NONE:
            # What went wrong between the controller and us is none of the asker's.
            return _refusal(request, context.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            key = api_of(type(request)).key
            response: Response = decode_response(answer.response_data or b"", key, context.version)[1]
        except RemoteProtocolError:
            return _refusal(request, context.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        return response


def _refusal(request: Request, version: int, error: ErrorCode) -> Response | None:
    api = APIS.get(type(request))
    return None if api is None else api.refuse(request, version, error, error.message)


def _principal(context: RequestContext) -> bytes:
    found = DefaultPrincipalData(
        type=context.principal.kind, name=context.principal.name, token_authenticated=context.is_by_token
    )
    return _PRINCIPAL_VERSION.to_bytes(2) + encode(found, _PRINCIPAL_VERSION)


def _address(host: str) -> bytes:
    """Of the asker; of this machine if it came in by something that has no address."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return ipaddress.ip_address("127.0.0.1").packed
