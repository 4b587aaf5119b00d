"""Nodes for applications with threads.

    with kraftcore.blocking.open_node(config, machine) as node:
        found = node.append(b"+1")

The names are those of `kraftcore.Node`, and mean the same; any thread may call them. Each node has a thread of its own,
where its trio loop runs and where the state machine's methods are called: what the machine shares with other threads
needs a lock, or is read with ``node.call(function)``, which runs there.

A signal's exception that interrupts a waiting call (KeyboardInterrupt) cancels it in the node; of an append nobody then
knows whether it is committed. The same goes for ``with_timeout``.

After a fork the node goes on in the parent only; in the child everything of it raises `WrongProcessError`. Open nodes
after forking, each in one process: a directory has one owner.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

import trio
from outcome import Error, Outcome, capture

from kraftcore.config import NodeConfig
from kraftcore.core.disk.files import Files
from kraftcore.errors import LocalError, NodeStoppedError, OverloadedError
from kraftcore.executor.proposals import Appended, AppendedMany
from kraftcore.namespace import listing, loader
from kraftcore.node import attaching
from kraftcore.node.events import Missed, NodeEvent
from kraftcore.node.health import MAX_LAG, Health
from kraftcore.node.node import Node as TrioNode
from kraftcore.node.outside import (
    Call,
    OutsideNode,
    check_function,
    is_iterator,
    label_of,
    open_with_transport,
    run_node,
)
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.node.status import Status
from kraftcore.node.subscription import Event
from kraftcore.node.wrong_library import of_threads
from kraftcore.ownership import Owned, belongs_here
from kraftcore.ports.transport import Transport
from kraftcore.state_machine import Machine, Machine_co, Result, StateMachine

__all__ = ["Iteration", "Node", "attach", "open_node", "open_or_attach"]
__dir__ = listing(__all__)
if not TYPE_CHECKING:
    __getattr__ = loader(__name__, {__name__: ("recipes",)})  # which needs msgpack, so it waits until it is asked for

P = ParamSpec("P")
T = TypeVar("T")


def _through(method: Callable[Concatenate[TrioNode, P], Awaitable[T]]) -> Callable[Concatenate[Node, P], T]:
    """The same method, waited for by a thread."""

    @wraps(method)
    def call(self: Node, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(partial(method, self.trio_node, *args, **kwargs))

    return call


class Node(OutsideNode[Machine_co]):
    """Made by ``open_node``.

    Raises:
        LocalError: a call comes from the node's own thread, which would wait for itself.
    """

    def __init__(self, node: TrioNode[Machine_co], calls: trio.Nursery, token: trio.lowlevel.TrioToken) -> None:
        super().__init__(node, calls)
        self._token = token
        self._thread_id = threading.get_ident()
        self._timeout_s: float | None = None

    read_barrier = _through(TrioNode.read_barrier)
    wait_applied = _through(TrioNode.wait_applied)
    wait_leader = _through(TrioNode.wait_leader)
    transfer_leadership = _through(TrioNode.transfer_leadership)
    add_voter = _through(TrioNode.add_voter)
    remove_voter = _through(TrioNode.remove_voter)
    upgrade = _through(TrioNode.upgrade)
    snapshot_now = _through(TrioNode.snapshot_now)

    @overload
    def append(
        self: Node[StateMachine[Result]],
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: Literal[False] = False,
    ) -> Appended[Result]: ...
    @overload
    def append(
        self: Node[StateMachine[Result]],
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool,
    ) -> Appended[Result | None]: ...
    def append(
        self,
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool = False,
    ) -> Appended[Any]:
        """As ``Node.append``."""
        if client_id is None and sequence is None and not forward:
            with suppress(OverloadedError):
                found: Appended[Any] = self._wait(self.append_nowait(value))  # without a task of trio's
                return found
        append = partial(self.trio_node.append, value, client_id=client_id, sequence=sequence, forward=forward)
        waited: Appended[Any] = self.call(append)
        return waited

    def append_many(
        self: Node[StateMachine[Result]],
        values: Sequence[bytes],
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool = False,
    ) -> AppendedMany[Result]:
        """As ``Node.append_many``."""
        append = self.trio_node.append_many
        waited: AppendedMany[Result] = self.call(
            append, values, client_id=client_id, sequence=sequence, forward=forward
        )
        return waited

    def append_nowait(self: Node[StateMachine[Result]], value: bytes) -> Future[Appended[Result]]:
        """As ``Node.append_nowait``, but every error is the future's.

        One thread's records are appended in the order of its calls.
        """
        future: Future[Appended[Result]] = _Answer(self)

        def append() -> None:
            try:
                proposal = self.trio_node.append_nowait(value)
            except Exception as error:
                _give(future, Error(error))
            else:
                proposal.add_done_callback(lambda proposal: _give(future, capture(proposal.result)))

        self._soon(append)
        return future

    @overload
    def submit(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]: ...
    @overload
    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]: ...
    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As ``call``, without waiting; cancelling the future cancels the function."""
        check_function(function, "submit")
        future: Future[Any] = _Answer(self)
        self._submit(future, partial(function, *args, **kwargs))
        return future

    def _submit(self, future: Future[Any], function: Callable[[], Any]) -> None:
        def deliver(found: Outcome[Any] | None) -> None:
            if found is not None:
                _give(future, found)

        inner = Call(self.trio_node, function, deliver)

        def cancelled(_: Future[Any]) -> None:
            if future.cancelled():
                with suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(inner.cancel)

        future.add_done_callback(cancelled)
        self._soon(partial(inner.start, self._calls))

    @overload
    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a trio function, asynchronous or not, in the node's thread, and wait for it.

        For everything that was made for ``trio_node``, such as the recipes.

        Returns:
            What it returned. What it raised comes out as it is.

        Raises:
            NodeStoppedError: the node stopped meanwhile.
            TimeoutError: see ``with_timeout``.
        """
        check_function(function, "call")
        return self._call(partial(function, *args, **kwargs), function)

    def _call(self, function: Callable[[], Any], what: object) -> Any:
        """``what`` stands in messages: a text, or a function that has a name."""
        future: Future[Any] = _Answer(self)
        return self._wait(future, partial(self._submit, future, function), what)

    def with_timeout(self, timeout_s: float) -> Self:
        """The same node, whose waiting calls raise TimeoutError after so many seconds."""
        if not isinstance(timeout_s, int | float) or not timeout_s >= 0:  # a program may be mistaken
            raise LocalError(f"the timeout is {timeout_s!r}: it must be a number of seconds, 0 or more")
        limited = type(self).__new__(type(self))
        vars(limited).update(vars(self))
        limited._timeout_s = timeout_s
        return limited

    def read(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """As ``Node.read``."""
        return self.call(self.trio_node.read, offset, max_bytes)

    def status(self) -> Status:
        """As ``Node.status``."""
        return self.call(self.trio_node.status)

    def health(self, *, max_lag: int = MAX_LAG) -> Health:
        """As ``Node.health``."""
        try:
            return self.call(partial(self.trio_node.health, max_lag=max_lag))
        except NodeStoppedError:
            return self.trio_node.health(max_lag=max_lag)

    @overload
    def events(self, *, max_buffered: int = 1024) -> Iteration[NodeEvent]: ...
    @overload
    def events(self, kind: type[Event], /, *, max_buffered: int = 1024) -> Iteration[Event | Missed]: ...
    @overload
    def events(self, *kinds: type[NodeEvent], max_buffered: int = 1024) -> Iteration[NodeEvent]: ...
    def events(self, *kinds: type, max_buffered: int = 1024) -> Iteration[Any]:
        """As ``Node.events``, for a ``for`` loop."""
        return self.iterate(self.trio_node.events, *kinds, max_buffered=max_buffered)

    @overload
    def iterate(self, source: AsyncIterator[T], /) -> Iteration[T]: ...
    @overload
    def iterate(self, source: Callable[P, AsyncIterator[T]], /, *args: P.args, **kwargs: P.kwargs) -> Iteration[T]: ...
    def iterate(self, source: Any, /, *args: Any, **kwargs: Any) -> Iteration[Any]:
        """Iterate over what trio iterates over, for example a recipe's ``watch``.

        Args:
            source: an asynchronous iterator; or a function that returns one, which is called now, in the node's loop.
            args, kwargs: for the function.

        Raises:
            LocalError: it is neither, or an iterator with arguments.
        """
        if is_iterator(source, has_arguments=bool(args or kwargs)):
            return Iteration(self, source)
        made = self.call(lambda: [source(*args, **kwargs)])  # in a list: `call` would await what can be awaited
        return Iteration(self, made[0])

    def resign(self) -> None:
        """As ``Node.resign``; begun when it returns."""
        self.call(self.trio_node.resign)

    def stop(self) -> None:
        """Begin to stop; waiting calls end with `NodeStoppedError`, and the block goes on."""
        with suppress(NodeStoppedError):
            self._soon(self.trio_node.stop)

    def _check_process(self) -> None:
        """Raises in a forked child, as everything does there: nobody would ever set a future."""

    def _wait(self, future: Future[T], begin: Callable[[], None] | None = None, what: object = "append") -> T:
        """``begin`` is inside: an interrupt right after it finds a call to cancel."""
        try:
            if begin is not None:
                begin()
            return future.result(self._timeout_s)
        except BaseException as error:
            was_waiting = future.cancel()
            if isinstance(error, TimeoutError) and was_waiting and self._timeout_s is not None:
                name = what if isinstance(what, str) else label_of(what)
                raise TimeoutError(f"{name} did not end within {self._timeout_s:g} s: {self!r}") from None
            raise

    def _soon(self, function: Callable[[], object]) -> None:
        if threading.get_ident() == self._thread_id:
            raise LocalError("this is the node's own thread: use trio_node here, or its results in another thread")
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function)
            return
        raise plugin_node(self.trio_node).stopped_error()


class _Answer(Future[T]):
    """What a call waits for."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node

    def result(self, timeout: float | None = None) -> T:
        """See the base class."""
        self._node._check_process()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See the base class."""
        self._node._check_process()
        return super().exception(timeout)


class Iteration(Owned, Generic[T]):
    """An iterator over an asynchronous one of trio's; closed by ``close``, ``with`` or its node's end."""

    def __init__(self, node: Node, inner: AsyncIterator[T]) -> None:
        self._node = node
        self._inner = inner
        self._taken: deque[T] = deque()  # by calls whose time was up before they could return it

    def close(self) -> None:
        """Take nothing more. Idempotent."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            with suppress(NodeStoppedError):
                self._node.call(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if belongs_here(self):
            self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            while True:
                with suppress(IndexError):
                    return self._taken.popleft()
                self._node._call(self._take, f"the wait for the next of {type(self._inner).__qualname__}")
        except (StopAsyncIteration, NodeStoppedError):
            raise StopIteration from None

    async def _take(self) -> None:
        self._taken.append(await self._inner.__anext__())


@of_threads
def open_node(
    config: NodeConfig,
    state_machine: Machine,
    *,
    transport: AbstractAsyncContextManager[Transport] | None = None,
    plugins: Sequence[Plugin] = (),
    files: Files | None = None,
) -> AbstractContextManager[Node[Machine]]:
    """Run a node for as long as the block runs; arguments and errors are those of `kraftcore.open_node`.

    If the node stops before the block ends, the block's calls raise `NodeStoppedError`, and so does its end if the node
    failed.

    Args:
        config, state_machine, plugins, files: as for ``kraftcore.open_node``.
        transport: as for ``kraftcore.open_node``, but not entered yet: the node opens and closes the transport.
    """
    return _Life(partial(open_with_transport, config, state_machine, transport, plugins, files))


@of_threads
def attach(directory: str | os.PathLike[str], state_machine: Machine) -> AbstractContextManager[Node[Machine]]:
    """As `kraftcore.attach`."""
    return _Life(partial(attaching.attach, directory, state_machine))


@of_threads
def open_or_attach(
    config: NodeConfig, make_machine: Callable[[], Machine], *, plugins: Callable[[], Sequence[Plugin]] = tuple
) -> AbstractContextManager[Node[Machine]]:
    """As `kraftcore.open_or_attach`."""
    return _Life(partial(attaching.open_or_attach, config, make_machine, plugins=plugins))


class _Life(AbstractContextManager[Node]):
    """The thread of a node."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[TrioNode[Any]]]) -> None:
        self.node: Future[Node] = Future()
        self._opened = opened
        self._ended: Future[None] = Future()
        self._scope = trio.CancelScope()
        self._token: Future[trio.lowlevel.TrioToken] = Future()
        # A daemon: a program that ends without leaving the block ends, as if it was killed.
        self._thread = threading.Thread(target=self._main, name="kraftcore node", daemon=True)

    def __enter__(self) -> Node:
        """Start it; returns when it takes part."""
        self._thread.start()
        try:
            return self.node.result()
        except BaseException:
            begun: list[Future[Any]] = [self._token, self.node]
            wait(begun, return_when=FIRST_COMPLETED)
            if self._token.done():  # else trio's run did not even begin
                with suppress(trio.RunFinishedError):
                    self._token.result().run_sync_soon(self._scope.cancel)
            self._thread.join()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._end()
        else:
            with suppress(NodeStoppedError):  # the block's error tells more
                self._end()

    def _end(self) -> None:
        """Stop it, and raise why it failed."""
        if sys.is_finalizing():  # the thread is frozen already
            return
        node = self.node.result()
        node.stop()
        try:
            self._ended.result()
        finally:
            if not self._ended.done():  # interrupted, and not to wait for its good order any longer
                with suppress(trio.RunFinishedError):
                    node._token.run_sync_soon(plugin_node(node.trio_node).abort)
            self._thread.join()

    def _main(self) -> None:
        try:
            trio.run(self._scoped)
        except BaseException as error:
            if not self.node.done():
                self.node.set_exception(error)
            self._ended.set_exception(error)
        else:
            if not self.node.done():
                self.node.set_exception(NodeStoppedError("the node stopped while it was opened"))
            self._ended.set_result(None)

    async def _scoped(self) -> None:
        self._token.set_result(trio.lowlevel.current_trio_token())
        with self._scope:
            await run_node(self._opened, self._is_open)

    def _is_open(self, node: TrioNode, calls: trio.Nursery) -> None:
        self.node.set_result(Node(node, calls, trio.lowlevel.current_trio_token()))


def _give(future: Future[Any], found: Outcome[Any]) -> None:
    with suppress(InvalidStateError):  # cancelled: nobody wants it any more
        if isinstance(found, Error):
            future.set_exception(found.error)
        else:
            future.set_result(found.unwrap())
