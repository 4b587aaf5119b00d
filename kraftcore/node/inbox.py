"""Requests on their way in: to the consensus, to the node itself, or to a plugin."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import trio

from kraftcore.errors import RemoteProtocolError
from kraftcore.node.driver import Driver, Ticket
from kraftcore.node.plugin import Handler, Plugin
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Received
from kraftcore.transports.base import Origin, Reply
from kraftcore.transports.complaints import Complaints

_logger = logging.getLogger("kraftcore.node")

CONSENSUS: frozenset[type[Request]] = frozenset(
    {
        AddRaftVoterRequest,
        BeginQuorumEpochRequest,
        DescribeQuorumRequest,
        EndQuorumEpochRequest,
        FetchRequest,
        FetchSnapshotRequest,
        RemoveRaftVoterRequest,
        UpdateRaftVoterRequest,
        VoteRequest,
    }
)

Respond: TypeAlias = Callable[[Any, int, Ticket], None]
"""A node's own handler: the request's body and version; it gives the ticket its answer now or later."""


class Inbox:
    """Decodes requests and hands them on.

    Args:
        driver: gets what is the consensus's.
        own: what the node itself answers.
        plugins: what they answer they answer instead of the node; each request runs in a task of its own.
        nursery: for those tasks.
        features: fills the feature fields of ApiVersions answers.
        note: gets a line for people when a request cannot be read, unless there were many just before.
    """

    def __init__(
        self,
        driver: Driver,
        own: Mapping[type[Request], Respond],
        plugins: Iterable[Plugin],
        nursery: trio.Nursery,
        features: Callable[[ApiVersionsResponse], None],
        note: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._plugins = {kind: (plugin, handler) for plugin in plugins for kind, handler in plugin.handlers.items()}
        self._own = {kind: respond for kind, respond in own.items() if kind not in self._plugins}
        self._nursery = nursery
        self._features = features
        self._complain = Complaints(note, trio.current_time)
        served = {*CONSENSUS, *own, *self._plugins, ApiVersionsRequest}
        self._versions = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
            for key, oldest, newest in sorted(map(api_of, served))
        ]

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Take a request's frame."""
        try:
            header, message = decode_request(frame)
        except RemoteProtocolError as error:
            self._complain("unreadable", f"{origin.peer} sent a request that cannot be read: {error}")
            reply(None)
            return
        version = header.request_api_version
        ticket = Ticket(reply, version, header.correlation_id, origin.listener)
        if message is None or isinstance(message, ApiVersionsRequest):
            self._answer_api_versions(message is not None, ticket)
            return
        kind = type(message)
        if kind in CONSENSUS:
            self._driver.feed(Received(ticket, message, version, origin.listener))
        elif kind in self._own:
            self._own[kind](message, version, ticket)
        elif kind in self._plugins:
            self._nursery.start_soon(self._ask_plugin, *self._plugins[kind], message, origin, ticket)
        else:
            self._complain("not served", f"{origin.peer} sent a {kind.__name__}, which this node does not serve")
            reply(None)

    def _answer_api_versions(self, is_known: bool, ticket: Ticket) -> None:
        if not is_known:  # the answer to an unknown version is version 0 (KIP-511)
            ticket = Ticket(ticket.reply, 0, ticket.correlation_id, ticket.listener)
            error = ErrorCode.UNSUPPORTED_VERSION
            ticket.answer(ApiVersionsResponse(error_code=error, api_keys=self._versions))
            return
        response = ApiVersionsResponse(api_keys=self._versions)
        self._features(response)
        ticket.answer(response)

    async def _ask_plugin(
        self, plugin: Plugin, handler: Handler, message: Request, origin: Origin, ticket: Ticket
    ) -> None:
        try:
            ticket.answer(await handler(message, ticket.version, origin))
        except Exception as error:
            ticket.reply(None)
            if plugin.participates:
                self._driver.fail(error)
            else:  # the request may be to blame: the next one is answered
                _logger.exception("plugin %s raised on a %s", plugin.name, type(message).__name__)
