"""The node that plugins get: `Node` with more methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.errors import NodeStoppedError
from kraftcore.executor.applier import READ_BYTES
from kraftcore.executor.decisions import Decision
from kraftcore.node.authorization import Authorization
from kraftcore.node.node import Node
from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.node.registry import RequestContext, RequestHandler
from kraftcore.ports.nursery import uninterrupted_methods
from kraftcore.ports.transport import Transport
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Outcome, Upgrade
from kraftcore.state_machine import Machine, Machine_co


@uninterrupted_methods
class PluginNode(Node[Machine_co]):
    """The node that ``Plugin.run`` gets: has methods beyond `Node` that an application must not call."""

    def decide(self, decision: Decision) -> None:
        """Append records that depend on the offset they get; see `kraftcore.executor.decisions`.

        The decision is asked for its records at once, or when earlier decisions are committed, and is told their
        outcome.

        Raises:
            NotLeaderError: this node does not lead, or has not applied all records of earlier epochs: wait for
                `LeadershipReady`. The decision is not told anything.
            NodeStoppedError: the node stopped. The decision is not told anything.
        """
        self._engine.decide(decision)

    async def ask(
        self, host: str, port: int, request: Request, timeout_ms: int, min_version: int = 0, lane: int = OTHERS
    ) -> Any:
        """Send any request to any node; returns the response, or a `Failure`.

        Args:
            host: of the other node.
            port: of the other node.
            request: its body.
            timeout_ms: how long to wait for the answer, milliseconds.
            min_version: in lower versions the request would lose its meaning.
            lane: the connection to use, see ``kraftcore.node.outbox``: answers on one connection keep the order of
                their requests.

        Raises:
            NodeStoppedError: the node stopped.
        """
        return await self._engine.ask(host, port, request, timeout_ms, lane, min_version)

    def make_outbox(self, client_id: str) -> Outbox:
        """Make an outbox that sends a plugin's requests over the node's transport, on connections of their own.

        Args:
            client_id: goes into every request's header.
        """
        return self._engine.make_outbox(client_id)

    @property
    def transport(self) -> Transport:
        """The node's transport, which stays the node's: a plugin neither listens on it nor closes it.

        Requests to one address on one lane need correlation ids of their own; lanes below 1,048,576 are the node's.
        """
        return self._engine.transport

    def read_bootstrap(self) -> tuple[bytes, ...]:
        """The records that formatting left for the first leader of an empty log, framed; none without such a file.

        Raises:
            CorruptDataError, StorageError: the file cannot be read.
        """
        return self._engine.home.read_bootstrap()

    def local_batches(self, offset: int) -> Iterator[RecordBatch]:
        """The batches of this node's log from ``offset`` on, committed or not, as far as the log holds them.

        Raises:
            CorruptDataError, StorageError: the log cannot be read.
        """
        log = self._engine.home.log
        offset = max(offset, log.log_start_offset)
        while offset < log.log_end_offset:
            for batch in iter_batches(log.read(offset, READ_BYTES)):
                yield batch
                offset = batch.next_offset

    @property
    def authorization(self) -> Authorization | None:
        """The authorization of requests, with its counts; None: every request is allowed."""
        return self._engine.registry.authorization

    def describe_features_by(self, describe: Callable[[ApiVersionsResponse], None]) -> None:
        """Have the feature fields of ApiVersions answers filled in by a plugin that keeps features in the log."""
        self._engine.administration.features_in_log = describe

    def answer(self, handler: RequestHandler) -> None:
        """Answer a kind of request from now on, for a plugin that has its handler only when it runs.

        Raises:
            LocalError: another plugin answers it already.
        """
        self._engine.registry.register(handler)

    def fail(self, error: BaseException) -> None:
        """Stop the node because of an error: a part that the node promises cannot go on."""
        self._engine.fail(error)

    def serve(self, request: Request, context: RequestContext) -> None:
        """Answer a request that came inside another one (KIP-590), as if it had come alone.

        Args:
            request: its body.
            context: names the asker, and takes the response.

        Raises:
            RefusedError: UNSUPPORTED_VERSION: this node does not answer such requests on that listener.
        """
        self._engine.inbox.dispatch(request, context)

    def raise_kraft_version(self, level: int, validate_only: bool, done: Callable[[Outcome], None]) -> None:
        """Raise kraft.version as ``upgrade`` does, for callers that are not tasks.

        Args:
            level: the new level.
            validate_only: only find out whether the change would be refused.
            done: gets the outcome, now or later.
        """
        self._engine.shell.feed(Upgrade(done, level, validate_only))

    def abort(self) -> None:
        """Stop at once and tell nobody, as if the process had died; used by ``kraftcore.testing``."""
        self._engine.abort()

    def stopped_error(self) -> NodeStoppedError:
        """The error for calls that still wait for a stopped node."""
        return self._engine.stopped_error()


def plugin_node(node: Node[Machine]) -> PluginNode[Machine]:
    """Return the same node with the methods for plugins."""
    return PluginNode(node._engine, node.state_machine)
