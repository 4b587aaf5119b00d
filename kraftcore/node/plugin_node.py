"""A node as plugins have it."""

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
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Outcome, Upgrade
from kraftcore.state_machine import Machine, Machine_co


@uninterrupted_methods
class PluginNode(Node[Machine_co]):
    """What ``Plugin.run`` gets: all that an application may call, and what would be wrong in an application's hands."""

    def decide(self, decision: Decision) -> None:
        """Append records that depend on where they will stand; see `kraftcore.executor.decisions`.

        The decision is asked for its records at once, or when what was decided before is committed, and is told what
        becomes of them.

        Raises:
            NotLeaderError: this node does not lead, or has not applied all records of earlier epochs: wait for
                `LeadershipReady`. The decision is not told anything.
            NodeStoppedError: the node stopped. Likewise.
        """
        self._engine.decide(decision)

    async def ask(
        self, host: str, port: int, request: Request, timeout_ms: int, min_version: int = 0, lane: int = OTHERS
    ) -> Any:
        """Send any request to any node; returns the response, or a `Failure`.

        Args:
            host: where to.
            port: where to.
            request: its body.
            timeout_ms: for the answer.
            min_version: below this the request would lose its meaning.
            lane: of the connection, see ``kraftcore.node.outbox``: answers of one come in the order of their requests.

        Raises:
            NodeStoppedError: the node stopped.
        """
        return await self._engine.ask(host, port, request, timeout_ms, lane, min_version)

    def make_outbox(self, client_id: str) -> Outbox:
        """What sends a plugin's requests over the node's transport, on connections of their own.

        Args:
            client_id: goes into every request's header.
        """
        return self._engine.make_outbox(client_id)

    def read_bootstrap(self) -> tuple[bytes, ...]:
        """The records that formatting left for the first leader of an empty log, framed; none without such a file.

        Raises:
            CorruptDataError, StorageError: the file cannot be read.
        """
        return self._engine.home.read_bootstrap()

    def local_batches(self, offset: int) -> Iterator[RecordBatch]:
        """The batches of this node's log from ``offset`` on, committed or not, as far as it holds them.

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
        """What is asked before requests are answered, and how often it said yes and no; None: everybody may do all."""
        return self._engine.registry.authorization

    def describe_features_by(self, describe: Callable[[ApiVersionsResponse], None]) -> None:
        """Have the feature fields of ApiVersions answers filled in by a plugin that keeps features in the log."""
        self._engine.administration.features_in_log = describe

    def answer(self, handler: RequestHandler) -> None:
        """Answer a kind of request from now on, for a plugin that knows how only when it runs.

        Raises:
            LocalError: another plugin does already.
        """
        self._engine.registry.register(handler)

    def fail(self, error: BaseException) -> None:
        """A part of the node that it promises cannot go on: the node stops for this reason."""
        self._engine.fail(error)

    def serve(self, request: Request, context: RequestContext) -> None:
        """Answer a request that came inside another one (KIP-590), as if it had come alone.

        Args:
            request: its body.
            context: whose it is, and where the response goes.

        Raises:
            RefusedError: UNSUPPORTED_VERSION: this node does not answer such requests on that listener.
        """
        self._engine.inbox.dispatch(request, context)

    def raise_kraft_version(self, level: int, validate_only: bool, done: Callable[[Outcome], None]) -> None:
        """As ``upgrade``, for whoever is not a task.

        Args:
            level: to go to.
            validate_only: only say whether it would be refused.
            done: gets the outcome, now or later.
        """
        self._engine.shell.feed(Upgrade(done, level, validate_only))

    def abort(self) -> None:
        """Stop at once and tell nobody, as if the process had died. ``kraftcore.testing`` kills nodes so."""
        self._engine.abort()

    def stopped_error(self) -> NodeStoppedError:
        """What whoever still waits for a stopped node is told."""
        return self._engine.stopped_error()


def plugin_node(node: Node[Machine]) -> PluginNode[Machine]:
    """The same node, with what plugins may call of it."""
    return PluginNode(node._engine, node.state_machine)
