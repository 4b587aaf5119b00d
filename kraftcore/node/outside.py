"""A node for callers outside its trio loop: what `kraftcore.aio` and `kraftcore.blocking` have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from inspect import isawaitable, iscoroutine
from typing import Any, Final, Generic

import trio
from outcome import Error, Outcome, Value

from kraftcore.config import NodeConfig
from kraftcore.core.disk.files import Files
from kraftcore.errors import LocalError
from kraftcore.node.node import Node
from kraftcore.node.opening import open_node
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.ownership import Owned
from kraftcore.ports.nursery import cancelled_part, open_nursery
from kraftcore.ports.transport import Transport
from kraftcore.raft.quorum import Endpoint
from kraftcore.state_machine import Machine, Machine_co


class OutsideNode(Owned, Generic[Machine_co]):
    """The base class of these nodes: the attributes of a node that may be read from any thread.

    Attributes:
        trio_node: the `Node` itself; use it only in functions that ``call`` runs.
        config, key, cluster_id, endpoints, state_machine: the node's.
    """

    def __init__(self, node: Node[Machine_co], calls: trio.Nursery) -> None:
        self.trio_node = node
        self.config = node.config
        self.key = node.key
        self.cluster_id = node.cluster_id
        self.endpoints = node.endpoints
        self.state_machine: Final[Machine_co] = node.state_machine
        self._calls = calls

    @property
    def is_leader(self) -> bool:
        """Whether the node leads, as far as it knows."""
        return self.trio_node.is_leader

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, as far as known."""
        return self.trio_node.leader_endpoint

    @property
    def leader_id(self) -> int | None:
        """The leader's id; None if no leader is known, or it has not answered for a fetch timeout."""
        return self.trio_node.leader_id

    @property
    def leading_epoch(self) -> int | None:
        """The epoch in which this node takes decisions; None while it does not."""
        return self.trio_node.leading_epoch

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in force."""
        return self.trio_node.kraft_version

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that was committed when this node first heard of a leader is applied here."""
        return self.trio_node.is_caught_up

    @property
    def broker_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the listeners of its broker are, if it has one."""
        return self.trio_node.broker_endpoints

    def now_ms(self) -> int:
        """The node's time, milliseconds since 1970."""
        return self.trio_node.now_ms()

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed."""
        return self.trio_node.high_watermark

    @property
    def error(self) -> BaseException | None:
        """The error that stopped the node, or None."""
        return self.trio_node.error

    @property
    def is_stopped(self) -> bool:
        """Whether the node takes no more calls."""
        return self.trio_node.stopped.is_set()

    def __repr__(self) -> str:
        return repr(self.trio_node).replace("<kraftcore.Node", f"<{type(self).__module__}.Node", 1)


def check_function(function: object, method: str) -> None:
    """Refuse an object that is not a function, where a function is to be called in the node's loop.

    Raises:
        LocalError: a coroutine or iterator, of a function that was called already, or any other object.
    """
    if callable(function):
        return
    if iscoroutine(function):
        function.close()  # nobody will await it, and Python would warn of that
    if iscoroutine(function) or hasattr(function, "__anext__"):
        name = getattr(function, "__qualname__", type(function).__name__)
        raise LocalError(
            f"{method} calls a function itself, and was given what {name} returned: write "
            f"node.{method}(function, argument), not node.{method}(function(argument))"
        )
    raise LocalError(f"{method} wants a function, and was given {function!r}")


def is_iterator(iterated: object, *, has_arguments: bool) -> bool:
    """Whether ``iterate`` was given what iterates itself, not a function that makes it.

    Raises:
        LocalError: it is neither; or it iterates, and there are arguments, which only a function could take.
    """
    if not hasattr(iterated, "__anext__"):
        check_function(iterated, "iterate")
        return False
    if has_arguments:
        name = type(iterated).__name__
        raise LocalError(f"iterate was given a {name} and arguments for it: write node.iterate(function, argument)")
    return True


def label_of(function: object) -> str:
    """A function's name, for messages."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class Call:
    """A call of a function, asynchronous or not, in the node's loop, for a caller outside it.

    Args:
        node: the call ends when this node stops.
        function: takes no arguments.
        deliver: called once, in the node's loop, with the outcome; None: the call was cancelled. Must not raise.
    """

    def __init__(self, node: Node, function: Callable[[], Any], deliver: Callable[[Outcome[Any] | None], None]) -> None:
        self._node = node
        self._function = function
        self._deliver = deliver
        self._scope = trio.CancelScope()

    def start(self, calls: trio.Nursery) -> None:
        """Begin; called within the node's loop, or after its end."""
        if self._node.stopped.is_set():  # there may be no loop of trio's any more
            self._deliver(Error(plugin_node(self._node).stopped_error()))
            return
        try:
            calls.start_soon(self._run)
        except RuntimeError:  # the nursery is closed
            self._deliver(Error(plugin_node(self._node).stopped_error()))

    def cancel(self) -> None:
        """Cancel the function as a trio scope is cancelled; called within the node's loop."""
        self._scope.cancel()

    async def _run(self) -> None:
        found: Outcome[Any] | None = None
        try:
            with self._scope:
                result = self._function()
                found = Value(await result if isawaitable(result) else result)
        except BaseException as error:
            cancelled, raised = cancelled_part(error)
            self._deliver(Error(raised or plugin_node(self._node).stopped_error()))
            if cancelled is not None:
                raise cancelled from None
            return
        self._deliver(found)


async def run_node(
    opened: Callable[[], AbstractAsyncContextManager[Node[Machine]]],
    begun: Callable[[Node[Machine], trio.Nursery], None],
) -> None:
    """Run a node until it stops, by ``Node.stop`` or because it failed.

    Args:
        opened: opens the node, on trio.
        begun: gets the node, and a nursery that is cancelled when the node has stopped.
    """
    async with open_nursery() as calls:
        try:
            async with opened() as node:
                begun(node, calls)
                await trio.sleep_forever()
        finally:
            calls.cancel_scope.cancel()


@asynccontextmanager
async def open_with_transport(
    config: NodeConfig,
    state_machine: Machine,
    transport: AbstractAsyncContextManager[Transport] | None,
    plugins: Sequence[Plugin],
    files: Files | None,
) -> AsyncIterator[Node[Machine]]:
    """Do as ``open_node`` with a transport that is not entered yet, and is closed with the node."""
    async with AsyncExitStack() as stack:
        opened = None if transport is None else await stack.enter_async_context(transport)
        yield await stack.enter_async_context(
            open_node(config, state_machine, transport=opened, plugins=plugins, files=files)
        )
