"""Received requests: decoded, and handed to the consensus or to the handler in the registry."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import trio

from kraftcore.config.security import SecurityProtocol
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import LocalError, RefusedError, RemoteProtocolError
from kraftcore.node.refusals import refusal_of
from kraftcore.node.registry import (
    Asker,
    Priority,
    Registry,
    RequestContext,
    RequestHandler,
    Waiting,
    WaitingRequests,
)
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Origin, Reply
from kraftcore.protocol.data.headers import RequestHeader
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request, encode_response_parts
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.registry import ApiKey
from kraftcore.protocol.schema import Request, Response
from kraftcore.raft.events import Event, Received

_logger = logging.getLogger("kraftcore.node")

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)  # of names and versions: KIP-511
_SOFTWARE_SINCE = 3  # version of ApiVersions in which clients name their software
_FEATURES_AT_0_SINCE = 4  # KIP-1022: older clients cannot read a feature whose minimum is 0


class ReceivedRequest(RequestContext):
    """A request that a transport delivered.

    Args:
        asker: the client behind the connection.
        header: of the request.
        origin: the connection that it came in on.
        reply: takes the encoded answer.
        size: of the frame, bytes.
    """

    __slots__ = ("_correlation_id", "_origin", "_reply")

    def __init__(self, asker: Asker, header: RequestHeader, origin: Origin, reply: Reply, size: int) -> None:
        super().__init__(asker, header.request_api_version, header.client_id, size)
        self._correlation_id = header.correlation_id
        self._origin = origin
        self._reply = reply

    def answer(self, response: Struct) -> None:
        """Encode and send the response."""
        try:
            self._reply(encode_response_parts(response, self.version, self._correlation_id))  # type: ignore[arg-type]
        except Exception:
            _logger.exception("%s cannot be told %s", self.asker.peer, type(response).__name__)
            self.close()

    def close(self) -> None:
        """Break the connection."""
        with suppress(LocalError):  # raised when an answer was given
            self._reply(None)

    def answer_nothing(self) -> None:
        """End the request without an answer."""
        with suppress(LocalError):
            self._reply(())

    def wait(self) -> None:
        """Have the requests behind this one wait until it is answered."""
        self._origin.wait()

    def mute(self) -> Callable[[], None]:
        """Have the requests behind this one wait until the returned function is called."""
        return self._origin.mute()


class Inbox:
    """Decodes requests and hands them on.

    Args:
        feed: hands events to the consensus.
        registry: the handlers of requests.
        nursery: for the tasks of handlers that are coroutines.
        features: fills the feature fields of ApiVersions answers.
        note: gets a line for people when a request cannot be read, unless there were many just before.
        fail: gets the error that a vital handler raised.
        now_ms: returns milliseconds since 1970.
        protocols: security protocols by name of the listener; PLAINTEXT for a listener that is not in it. A client that
            need not log in, and shows no certificate, is anonymous.
    """

    def __init__(
        self,
        feed: Callable[[Event], None],
        registry: Registry,
        nursery: trio.Nursery,
        features: Callable[[ApiVersionsResponse], None],
        note: Callable[[str], None],
        fail: Callable[[BaseException], None],
        now_ms: Callable[[], int],
        protocols: Mapping[str, SecurityProtocol] | None = None,
    ) -> None:
        self._protocols = protocols or {}
        self._feed = feed
        self._registry = registry
        self._nursery = nursery
        self._features = features
        self._complain = Complaints(note, trio.current_time)
        self._fail = fail
        self._now_ms = now_ms
        self._waiting = WaitingRequests()

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Decode the frame of a request, and hand the request on; see `Serve`."""
        try:
            header, message = decode_request(frame)
        except RemoteProtocolError as error:
            self._complain("unreadable", f"{origin.peer} sent a request that cannot be read: {error}")
            reply(None)
            return
        asker: Asker = origin.session or self._meet(origin)
        context = ReceivedRequest(asker, header, origin, reply, len(frame))
        if message is None or isinstance(message, ApiVersionsRequest):
            self.answer_api_versions(message, context)
            return
        handler = self._registry.find(type(message), origin.listener)
        if handler is None or not handler.serves(origin.listener, context.version):
            name = type(message).__name__
            self._complain(
                "not served", f"{origin.peer} sent a {name} v{context.version}, which this node does not serve"
            )
            reply(None)
        elif handler.priority is not Priority.CONSENSUS:
            if handler.is_awaited:
                origin.wait()
            self._respond(handler, message, context)
        elif self._registry.authorization is None or self._may(handler, message, context):
            self._feed(Received(context, message, context.version, origin.listener))

    def _meet(self, origin: Origin) -> Asker:
        """Make the asker of a new connection to a listener without authentication."""
        protocol = self._protocols.get(origin.listener, SecurityProtocol.PLAINTEXT)
        asker = origin.session = Asker(origin.listener, origin.peer, security_protocol=protocol)
        return asker

    def dispatch(self, message: Request, context: RequestContext) -> None:
        """Hand on a request that came inside another one; see ``PluginNode.serve``."""
        handler = self._registry.find(type(message), context.asker.listener)
        if handler is None or not handler.serves(context.asker.listener, context.version):
            name = type(message).__name__
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION.name, f"{name} v{context.version} is not served here")
        if handler.priority is not Priority.CONSENSUS:
            self._respond(handler, message, context)
        elif self._may(handler, message, context):
            self._feed(Received(context, message, context.version, context.asker.listener))

    def _may(self, handler: RequestHandler, message: Request, context: RequestContext) -> bool:
        error = self._registry.refuses(handler, message, context)
        if error is ErrorCode.NONE:
            return True
        name = type(message).__name__
        self._complain("not allowed", f"{context.asker.principal} at {context.asker.peer} sent a {name}: {error.name}")
        answer = refusal_of(handler, message, context.version, error)
        if answer is None:
            context.close()
        else:
            context.answer(answer)
        return False

    def answer_api_versions(self, request: ApiVersionsRequest | None, context: ReceivedRequest) -> bool:
        """Answer which requests are served; None stands for a request of an unknown version.

        Returns:
            Whether the request was good, and the answer no error.
        """
        offers = self._registry.offers(context.asker.listener)
        if request is None:  # the answer to an unknown version is version 0, and says which there are (KIP-511)
            context.version = 0
            known = [each for each in offers if each.api_key == ApiKey.API_VERSIONS]
            context.answer(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known))
            return False
        software = (request.client_software_name, request.client_software_version)
        if context.version >= _SOFTWARE_SINCE and not all(map(_SOFTWARE_NAME.fullmatch, software)):
            context.answer(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
            return False
        response = ApiVersionsResponse(api_keys=offers)
        self._features(response)
        if context.version < _FEATURES_AT_0_SINCE:
            response.supported_features = [each for each in response.supported_features if each.min_version > 0]
        context.answer(response)
        return True

    # --- handlers -----------------------------------------------------------------------------------------------------

    def _respond(self, handler: RequestHandler, message: Request, context: RequestContext) -> None:
        if not self._may(handler, message, context):
            return
        try:
            response = handler.respond(message, context)
            if response is None:
                return  # the handler answers through the context
            if not inspect.isawaitable(response):
                context.answer(response)
                return
        except Exception as error:
            self._raised(handler, context, error)
            return
        if self._waiting.add(Waiting(handler, context, response)):
            self._run_waiting()
        else:
            _discard(response)
            text = f"{handler.priority.name.lower()} requests wait already: {context.asker.peer}'s is refused"
            self._complain("full", f"{self._waiting.waiting_max} {text}")
            context.close()

    def close(self) -> None:
        """Drop the requests that wait, as the node ends."""
        for waiting in self._waiting.drain():
            _discard(waiting.response)

    def _run_waiting(self) -> None:
        while (waiting := self._waiting.next()) is not None:
            self._nursery.start_soon(self._run, waiting)

    @uninterrupted
    async def _run(self, waiting: Waiting) -> None:
        try:
            response = await waiting.response
            if response is not None:
                waiting.context.answer(response)
        except Exception as error:
            self._raised(waiting.handler, waiting.context, error)
        finally:
            self._waiting.done()
            self._run_waiting()

    def _raised(self, handler: RequestHandler, context: RequestContext, error: Exception) -> None:
        context.close()
        if handler.is_vital:
            self._fail(error)
        else:  # the request may be the cause: the next one is answered
            _logger.error("%s raised on a %s", handler.owner, handler.kind.__name__, exc_info=error)


def _discard(response: Awaitable[Response | None]) -> None:
    if inspect.iscoroutine(response):
        response.close()
