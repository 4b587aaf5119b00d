"""Received requests: decoded, and handed to the consensus or to the handler in the registry."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from kraftcore.config.security import SecurityProtocol
from kraftcore.errors import RefusedError, RemoteProtocolError
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
from kraftcore.node.shell import Ticket
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Origin, Reply
from kraftcore.protocol.data.headers import RequestHeader
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.registry import ApiKey
from kraftcore.protocol.schema import Request, Response
from kraftcore.raft.events import Event, Received

_logger = logging.getLogger("kraftcore.node")

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)  # and version: KIP-511
_SOFTWARE_SINCE = 3  # version of ApiVersions in which clients say what they are
_FEATURES_AT_0_SINCE = 4  # KIP-1022: older clients cannot read a feature whose minimum is 0


_STRANGER = Asker()


class Inbox:
    """Decodes requests and hands them on.

    Args:
        feed: takes events for the consensus.
        registry: the handlers of requests.
        nursery: for the tasks of handlers that are coroutines.
        features: fills the feature fields of ApiVersions answers.
        note: gets a line for people when a request cannot be read, unless there were many just before.
        fail: told what a vital handler raised.
        now_ms: the time.
        protocols: what each listener speaks, PLAINTEXT where nothing is said. Those who come without a door are
            anonymous.
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
        self._strangers = {
            listener: Asker(security_protocol=protocol) for listener, protocol in (protocols or {}).items()
        }
        self._feed = feed
        self._registry = registry
        self._nursery = nursery
        self._features = features
        self._complain = Complaints(note, trio.current_time)
        self._fail = fail
        self._now_ms = now_ms
        self._waiting = WaitingRequests()

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Take a request's frame."""
        try:
            header, message = decode_request(frame)
        except RemoteProtocolError as error:
            self._complain("unreadable", f"{origin.peer} sent a request that cannot be read: {error}")
            reply(None)
            return
        version = header.request_api_version
        ticket = Ticket(reply, version, header.correlation_id, origin.listener, origin.peer)
        if message is None or isinstance(message, ApiVersionsRequest):
            self.answer_api_versions(message, ticket)
            return
        handler = self._registry.find(type(message), origin.listener)
        if handler is None or not handler.serves(origin.listener, version):
            name = type(message).__name__
            self._complain("not served", f"{origin.peer} sent a {name} v{version}, which this node does not serve")
            reply(None)
        elif handler.priority is not Priority.CONSENSUS:
            if handler.is_awaited:
                origin.wait()
            self._respond(handler, message, self._context(header, origin, ticket, len(frame)))
        elif self._registry.authorization is None or self._may(
            handler, message, self._context(header, origin, ticket, len(frame))
        ):
            self._feed(Received(ticket, message, version, origin.listener))

    def dispatch(self, message: Request, context: RequestContext) -> None:
        """Hand on a request that came inside another one; see ``Node.serve``."""
        handler = self._registry.find(type(message), context.listener)
        if handler is None or not handler.serves(context.listener, context.version):
            name = type(message).__name__
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION.name, f"{name} v{context.version} is not served here")
        if handler.priority is not Priority.CONSENSUS:
            self._respond(handler, message, context)
        elif self._may(handler, message, context):
            self._feed(Received(context, message, context.version, context.listener))

    def _may(self, handler: RequestHandler, message: Request, context: RequestContext) -> bool:
        error = self._registry.refuses(handler, message, context)
        if error is ErrorCode.NONE:
            return True
        name = type(message).__name__
        self._complain("not allowed", f"{context.principal} at {context.peer} sent a {name}: {error.name}")
        answer = refusal_of(handler, message, context.version, error)
        if answer is None:
            context.close()
        else:
            context.answer(answer)
        return False

    def _context(self, header: RequestHeader, origin: Origin, ticket: Ticket, size: int) -> RequestContext:
        asker: Asker = origin.session or self._strangers.get(origin.listener, _STRANGER)
        return RequestContext(
            header.request_api_version,
            origin.listener,
            origin.peer,
            header.client_id,
            asker.principal,
            self._now_ms(),
            ticket.answer,
            partial(ticket.end, None),
            False,
            asker.security_protocol,
            asker.is_by_token,
            partial(ticket.end, ()),
            origin.wait,
            origin.mute,
            size,
        )

    def answer_api_versions(self, request: ApiVersionsRequest | None, ticket: Ticket) -> bool:
        """Say which requests are served; None stands for a request of an unknown version.

        Returns:
            Whether it was a good request, which got what it asked for.
        """
        offers = self._registry.offers(ticket.listener)
        if request is None:  # the answer to an unknown version is version 0, and says which there are (KIP-511)
            ticket = ticket._replace(version=0)
            known = [each for each in offers if each.api_key == ApiKey.API_VERSIONS]
            ticket.answer(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known))
            return False
        software = (request.client_software_name, request.client_software_version)
        if ticket.version >= _SOFTWARE_SINCE and not all(map(_SOFTWARE_NAME.fullmatch, software)):
            ticket.answer(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
            return False
        response = ApiVersionsResponse(api_keys=offers)
        self._features(response)
        if ticket.version < _FEATURES_AT_0_SINCE:
            response.supported_features = [each for each in response.supported_features if each.min_version > 0]
        ticket.answer(response)
        return True

    # --- handlers -----------------------------------------------------------------------------------------------------

    def _respond(self, handler: RequestHandler, message: Request, context: RequestContext) -> None:
        if not self._may(handler, message, context):
            return
        try:
            response = handler.respond(message, context)
            if response is None:
                return  # it answers by itself
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
            text = f"{handler.priority.name.lower()} requests wait already: {context.peer}'s is refused"
            self._complain("full", f"{self._waiting.waiting_max} {text}")
            context.close()

    def close(self) -> None:
        """The node ends: what waits is not served any more."""
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
        else:  # the request may be to blame: the next one is answered
            _logger.error("%s raised on a %s", handler.owner, handler.kind.__name__, exc_info=error)


def _discard(response: Awaitable[Response | None]) -> None:
    if inspect.iscoroutine(response):
        response.close()
