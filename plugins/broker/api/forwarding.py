"""Requests that only the controller decides: the broker passes them on with the client's principal (KIP-590).

The controller asks its authorizer about the client. A change of topics reaches the broker through the metadata log, and
the broker then makes the logs of its replicas. Until it has done so, and for a second at most, the broker keeps the
answer back, since a client that made a topic uses it next. Source: Kafka 4.3.1, ForwardingManager, which does not wait.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftcore.core.uuid import ZERO_UUID
from kraftcore.core.wire.codec import encode
from kraftcore.errors import RemoteProtocolError
from kraftcore.node.registry import Asker, RequestContext
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.protocol.data.default_principal_data import DefaultPrincipalData
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request, Response

_PRINCIPAL_VERSION = 0
_KNOWN_WITHIN_S = 1.0
_POLL_S, _POLL_MAX_S = 0.002, 0.01


class Forwarding:
    """Passes requests that only the controller decides on to it, with the principal of the client.

    Args:
        send: sends a request to the active controller, again if need be; gives the response, or a `Failure`.
        background: runs the tasks that wait for the controller.
        cache: what this broker knows of the cluster.
        replicas: the replicas of this broker; None: an answer waits for none of them.
    """

    def __init__(
        self,
        send: Callable[[Any], Awaitable[Any]],
        background: Background,
        cache: MetadataCache,
        replicas: Replicas | None = None,
    ) -> None:
        self._send = send
        self._background = background
        self._cache = cache
        self._replicas = replicas

    def respond(self, request: Any, context: RequestContext) -> None:
        """Answer with the controller's answer; REQUEST_TIMED_OUT if the controller does not answer in time."""
        self._background.answer(context, lambda: self._ask(request, context))

    async def _ask(self, request: Request, context: RequestContext) -> Response | None:
        response = await self.ask(request, context, context.version)
        pause_s = _POLL_S
        with trio.move_on_after(_KNOWN_WITHIN_S):
            while not (_is_known(self._cache, request, response) and self._is_open(request, response)):
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, _POLL_MAX_S)
        return response

    def _is_open(self, request: Any, response: Any) -> bool:
        """Whether this broker serves its own replicas of the new partitions."""
        if self._replicas is None or response is None:
            return True
        if isinstance(request, CreateTopicsRequest):
            made = response.topics
        elif isinstance(request, CreatePartitionsRequest):
            made = response.results
        else:
            return True
        return request.validate_only or all(each.error_code or self._replicas.has_all_of(each.name) for each in made)

    async def ask(self, request: Request, context: RequestContext, version: int) -> Response | None:
        """Have the controller answer a request in this version; None: the controller does not know that version."""
        envelope = EnvelopeRequest(
            request_data=encode_request(request, version, 0, context.client_id),
            request_principal=_principal(context.asker),
            client_host_address=_address(context.asker.host),
        )
        answer = await self._send(envelope)
        if not isinstance(answer, EnvelopeResponse):
            if answer is Failure.UNSUPPORTED_VERSION:
                return None
            return _refusal(request, version, ErrorCode.REQUEST_TIMED_OUT)
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.UNSUPPORTED_VERSION:
            return None
        if error is not ErrorCode.NONE:
            # The error is between the controller and this broker: the client could not do anything about it.
            return _refusal(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            key = api_of(type(request)).key
            response: Response = decode_response(answer.response_data or b"", key, version)[1]
        except RemoteProtocolError:
            return _refusal(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        return response


def _is_known(cache: MetadataCache, request: Any, response: Any) -> bool:
    if response is None:
        return True
    if isinstance(request, CreateTopicsRequest):
        return request.validate_only or all(
            each.error_code or (each.name in cache.topics and each.topic_id in (ZERO_UUID, cache.ids.get(each.name)))
            for each in response.topics
        )
    if isinstance(request, CreatePartitionsRequest):
        counts = {each.name: each.count for each in request.topics}
        return request.validate_only or all(
            each.error_code or cache.knows(each.name, counts.get(each.name, 0) - 1) for each in response.results
        )
    if isinstance(request, DeleteTopicsRequest):
        return all(
            each.error_code
            or (each.name not in cache.topics if each.topic_id == ZERO_UUID else each.topic_id not in cache.names)
            for each in response.responses
        )
    return True


def _refusal(request: Request, version: int, error: ErrorCode) -> Response | None:
    from kraftcore.plugins.controller.registry import APIS  # late: it imports all of the controller

    api = APIS.get(type(request))
    return None if api is None else api.refuse(request, version, error, error.message)


def _principal(asker: Asker) -> bytes:
    found = DefaultPrincipalData(
        type=asker.principal.kind, name=asker.principal.name, token_authenticated=asker.is_by_token
    )
    return _PRINCIPAL_VERSION.to_bytes(2) + encode(found, _PRINCIPAL_VERSION)


def _address(host: str) -> bytes:
    """The client's address as bytes for an envelope; the loopback address if the transport has no addresses."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return ipaddress.ip_address("127.0.0.1").packed
