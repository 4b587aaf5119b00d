"""Nodes for asyncio applications.

    async with kraftcore.aio.open_node(config, machine) as node:
        found = await node.append(b"+1")

The names are those of `kraftcore.Node`, and mean the same. The node runs in trio's guest mode, on the application's own
event loop and thread: a state machine's methods are called there, and what they share with the application needs no
locks. All nodes of a loop share one guest run, which ends with the last of them.

After a fork the node goes on in the parent only; in the child everything of it raises `WrongProcessError`.

Cancelling a call, by a timeout too, cancels it in trio and waits until it ended there; of an append that was cancelled
nobody knows whether it is committed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

import trio
from outcome import Error, Outcome, capture

from kraftcore.aio.waiting import settled
from kraftcore.config import NodeConfig
from kraftcore.core.disk.files import Files
from kraftcore.errors import LocalError, NodeStoppedError, OverloadedError
from kraftcore.executor.proposals import Appended, AppendedMany, Proposal
from kraftcore.namespace import listing, loader
from kraftcore.node import attaching
from kraftcore.node.events import Missed, NodeEvent
from kraftcore.node.health import MAX_LAG, Health
from kraftcore.node.node import Node as TrioNode
from kraftcore.node.outside import Call, OutsideNode, check_function, is_iterator, open_with_transport, run_node
from kraftcore.node.plugin import Plugin
from kraftcore.node.status import Status
from kraftcore.node.subscription import Event
from kraftcore.node.wrong_library import of_asyncio
from kraftcore.ownership import Owned, belongs_here
from kraftcore.ports.async_library import place, running_loop
from kraftcore.ports.nursery import alone
from kraftcore.ports.transport import Transport
from kraftcore.state_machine import Machine, Machine_co, Result, StateMachine

__all__ = ["Iteration", "Node", "attach", "open_node", "open_or_attach"]
__dir__ = listing(__all__)
if not TYPE_CHECKING:
    __getattr__ = loader(__name__, {__name__: ("recipes",)})  # which needs msgpack, so it waits until it is asked for

P = ParamSpec("P")
T = TypeVar("T")


def _through(
    method: Callable[Concatenate[TrioNode, P], Awaitable[T]],
) -> Callable[Concatenate[Node, P], Coroutine[Any, Any, T]]:
    """The same method, awaited from asyncio."""

    @wraps(method)
    async def call(self: Node, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(partial(method, self.trio_node, *args, **kwargs))

    return call


class Node(OutsideNode[Machine_co]):
    """Made by ``open_node``; to be used on the event loop that opened it.

    Raises:
        LocalError: a call comes from another event loop.
    """

    def __init__(self, node: TrioNode[Machine_co], calls: trio.Nursery, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(node, calls)
        self._loop = loop

    read_barrier = _through(TrioNode.read_barrier)
    wait_applied = _through(TrioNode.wait_applied)
    wait_leader = _through(TrioNode.wait_leader)
    transfer_leadership = _through(TrioNode.transfer_leadership)
    add_voter = _through(TrioNode.add_voter)
    remove_voter = _through(TrioNode.remove_voter)
    upgrade = _through(TrioNode.upgrade)
    snapshot_now = _through(TrioNode.snapshot_now)

    @overload
    async def append(
        self: Node[StateMachine[Result]],
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: Literal[False] = False,
    ) -> Appended[Result]: ...
    @overload
    async def append(
        self: Node[StateMachine[Result]],
        value: bytes,
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool,
    ) -> Appended[Result | None]: ...
    async def append(
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
                return await self.append_nowait(value)  # without a task of trio's it is five times as fast
        append = partial(self.trio_node.append, value, client_id=client_id, sequence=sequence, forward=forward)
        appended: Appended[Any] = await self.call(append)
        return appended

    async def append_many(
        self: Node[StateMachine[Result]],
        values: Sequence[bytes],
        *,
        client_id: str | int | None = None,
        sequence: int | None = None,
        forward: bool = False,
    ) -> AppendedMany[Result]:
        """As ``Node.append_many``."""
        append = self.trio_node.append_many
        return await self.call(append, values, client_id=client_id, sequence=sequence, forward=forward)

    @overload
    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Await a trio function; for everything that was made for ``trio_node``, such as the recipes.

        Returns:
            What it returned. What it raised comes out as it is.

        Raises:
            NodeStoppedError: the node stopped meanwhile.
        """
        check_function(function, "call")
        self._check_loop()
        outcome: Outcome[Any] | None = None
        ended = self._loop.create_future()

        def deliver(found: Outcome[Any] | None) -> None:
            nonlocal outcome
            outcome = found
            if not ended.done():
                ended.set_result(None)

        inner = Call(self.trio_node, partial(function, *args, **kwargs), deliver)
        inner.start(self._calls)
        try:
            await ended
        except asyncio.CancelledError:
            if outcome is None:
                ended = self._loop.create_future()
                inner.cancel()
                await settled(ended)
            if isinstance(outcome, Error) and isinstance(outcome.error, Exception):
                raise outcome.error  # noqa: B904  # the cancellation is its context, not its cause
            raise
        if outcome is None:
            raise trio.TrioInternalError("a call was cancelled by nobody")
        return outcome.unwrap()

    def append_nowait(self: Node[StateMachine[Result]], value: bytes) -> asyncio.Future[Appended[Result]]:
        """As ``Node.append_nowait``, with an asyncio future; cancelling that does not undo the proposal."""
        self._check_loop()
        future: asyncio.Future[Appended[Result]] = self._loop.create_future()
        self.trio_node.append_nowait(value).add_done_callback(partial(_give, future))
        return future

    def read(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """As ``Node.read``."""
        return self.trio_node.read(offset, max_bytes)

    def status(self) -> Status:
        """As ``Node.status``."""
        return self.trio_node.status()

    def health(self, *, max_lag: int = MAX_LAG) -> Health:
        """As ``Node.health``."""
        return self.trio_node.health(max_lag=max_lag)

    @overload
    def events(self, *, max_buffered: int = 1024) -> Iteration[NodeEvent]: ...
    @overload
    def events(self, kind: type[Event], /, *, max_buffered: int = 1024) -> Iteration[Event | Missed]: ...
    @overload
    def events(self, *kinds: type[NodeEvent], max_buffered: int = 1024) -> Iteration[NodeEvent]: ...
    def events(self, *kinds: type, max_buffered: int = 1024) -> Iteration[Any]:
        """As ``Node.events``."""
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
        made = is_iterator(source, has_arguments=bool(args or kwargs))
        self._check_loop()
        return Iteration(self, source if made else source(*args, **kwargs))

    def resign(self) -> None:
        """As ``Node.resign``."""
        self._check_loop()
        self.trio_node.resign()

    def stop(self) -> None:
        """Begin to stop; the block of ``open_node`` is cancelled, and ends without an error."""
        self._check_loop()
        self.trio_node.stop()

    def _check_loop(self) -> None:
        if running_loop() is not self._loop:
            raise LocalError(
                f"this node belongs to another event loop than {place()}: call it where it was opened, or see "
                "kraftcore.blocking for threads, kraftcore.open_node for trio"
            )


class Iteration(Owned, Generic[T]):
    """An asynchronous iterator of trio's, for asyncio; closed by ``close``, ``with`` or its node's end."""

    def __init__(self, node: Node, inner: AsyncIterator[T]) -> None:
        self._node = node
        self._inner = inner
        self._taken: deque[T] = deque()  # by calls that were cancelled before they could return it

    def close(self) -> None:
        """Take nothing more. Idempotent."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if belongs_here(self):
            self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            while not self._taken:
                await self._node.call(self._take)
        except NodeStoppedError:
            raise StopAsyncIteration from None
        return self._taken.popleft()

    async def _take(self) -> None:
        self._taken.append(await self._inner.__anext__())


@of_asyncio
@asynccontextmanager
async def open_node(
    config: NodeConfig,
    state_machine: Machine,
    *,
    transport: AbstractAsyncContextManager[Transport] | None = None,
    plugins: Sequence[Plugin] = (),
    files: Files | None = None,
) -> AsyncIterator[Node[Machine]]:
    """Run a node for as long as the block runs; arguments and errors are those of `kraftcore.open_node`.

    If the node stops before the block ends, the block is cancelled, and `NodeStoppedError` comes out of it if the node
    failed.

    Args:
        config, state_machine, plugins, files: as for ``kraftcore.open_node``.
        transport: as for ``kraftcore.open_node``, but not entered yet: the node opens and closes the transport.
    """
    opened = partial(open_with_transport, config, state_machine, transport, plugins, files)
    async with _running(opened) as node:
        yield node


@of_asyncio
@asynccontextmanager
async def attach(directory: str | os.PathLike[str], state_machine: Machine) -> AsyncIterator[Node[Machine]]:
    """As `kraftcore.attach`."""
    async with _running(partial(attaching.attach, directory, state_machine)) as node:
        yield node


@of_asyncio
@asynccontextmanager
async def open_or_attach(
    config: NodeConfig, make_machine: Callable[[], Machine], *, plugins: Callable[[], Sequence[Plugin]] = tuple
) -> AsyncIterator[Node[Machine]]:
    """As `kraftcore.open_or_attach`."""
    async with _running(partial(attaching.open_or_attach, config, make_machine, plugins=plugins)) as node:
        yield node


@asynccontextmanager
async def _running(
    opened: Callable[[], AbstractAsyncContextManager[TrioNode[Machine]]],
) -> AsyncIterator[Node[Machine]]:
    loop = asyncio.get_running_loop()
    guest = await _Guest.enter(loop)
    try:
        life = _Life(guest, loop)
        node: Node[Machine] = await life.begin(partial(run_node, opened))
        raised: BaseException | None = None
        try:
            yield node
        except BaseException as error:
            raised = error
        if not belongs_here(life):  # asyncio closes this generator when a child that was forked leaves its loop
            return
        await life.end(raised)
    finally:
        if belongs_here(guest):
            await guest.leave()


class _Guest(Owned):
    """The trio run of an event loop, while there are nodes on it. A thread can have one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._users = 0
        self._ended: asyncio.Future[None] = loop.create_future()
        self.outcome: Outcome[None] | None = None
        self._scope = trio.CancelScope()
        self.nursery: asyncio.Future[trio.Nursery] = loop.create_future()

    @classmethod
    async def enter(cls, loop: asyncio.AbstractEventLoop) -> _Guest:
        """The loop's run; begun, if there is none."""
        if _here.guest is not None and not belongs_here(_here.guest):
            raise LocalError(
                "this thread was forked from one whose event loop had nodes on it, and trio cannot begin anew in it: "
                "open the node with kraftcore.blocking, or in another thread, or start the process with 'spawn'"
            )
        while (found := _here.guest) is not None and found._loop is loop and found._scope.cancel_called:
            await asyncio.wait([found._ended])
        if found is not None and found._loop is not loop:
            raise LocalError("another event loop of this thread was left, or closed, with nodes still open on it")
        if found is None:
            found = cls(loop)
            trio.lowlevel.start_guest_run(
                found._main,
                run_sync_soon_threadsafe=found._soon,
                run_sync_soon_not_threadsafe=loop.call_soon,
                done_callback=found._done,
                host_uses_signal_set_wakeup_fd=True,
            )
            _here.guest = found
        found._users += 1
        return found

    def _soon(self, function: Callable[[], object]) -> None:
        # A loop that was closed with nodes on it leaves them as a killed process would.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    async def _main(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self.nursery.set_result(nursery)
                await trio.sleep_forever()

    def _done(self, outcome: Outcome[None]) -> None:
        self.outcome = outcome
        _here.guest = None
        self._ended.set_result(None)

    async def failure(self) -> BaseException:
        """Why it ended while there were nodes: an interrupt from the keyboard, or a fault of trio's."""
        await settled(self._ended)
        error: BaseException | None = getattr(self.outcome, "error", None)
        return NodeStoppedError("trio's run ended") if error is None else alone(error)

    async def leave(self) -> None:
        """Give it up; the last one ends it."""
        self._users -= 1
        if not self._users and not self._ended.done():
            self._scope.cancel()
            if await settled(self._ended):
                raise asyncio.CancelledError


class _Here(threading.local):
    guest: _Guest | None = None


_here = _Here()


class _Life(Owned):
    """A node from its opening to its end; the block around it is cancelled when it ends early, as in trio."""

    def __init__(self, guest: _Guest, loop: asyncio.AbstractEventLoop) -> None:
        self._guest = guest
        self._loop = loop
        self._block = asyncio.current_task()
        self._scope = trio.CancelScope()
        self._begun: asyncio.Future[Node] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._error: BaseException | None = None
        self._block_cancelled = False
        self._block_left = False
        self._cancelling = 0 if self._block is None else self._block.cancelling()

    async def begin(self, run: Callable[..., Awaitable[None]]) -> Node:
        """Start it; returns when it takes part."""
        await asyncio.wait([self._guest.nursery])  # not the future itself: cancelling us would cancel it for all
        self._guest.nursery.result().start_soon(self._run, run)
        try:
            waiting: list[asyncio.Future[Any]] = [self._begun, self._ended]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._scope.cancel()
            await settled(self._ended)
            raise
        if not self._begun.done():
            raise self._error or NodeStoppedError("the node stopped while it was opened")
        return self._begun.result()

    async def _run(self, run: Callable[..., Awaitable[None]]) -> None:
        try:
            with self._scope:
                await run(self._is_open)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):  # the guest run's own end
                raise
        finally:
            self._ended.set_result(None)
            if self._begun.done() and not self._block_left and self._block is not None:
                self._block_cancelled = self._block.cancel()

    def _is_open(self, node: TrioNode, calls: trio.Nursery) -> None:
        self._begun.set_result(Node(node, calls, self._loop))

    async def end(self, raised: BaseException | None) -> None:
        """Stop it, and raise what is to be raised."""
        self._block_left = True
        self._begun.result().trio_node.stop()
        interrupted = await settled(self._ended)
        if self._block_cancelled and self._block is not None:
            interrupted = self._block.uncancel() > self._cancelling
            if not isinstance(raised, asyncio.CancelledError):
                # The block ended before it learned of its cancellation, which waits for the next await.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            elif not interrupted:
                raised = None
        if interrupted and not isinstance(raised, asyncio.CancelledError):
            raise asyncio.CancelledError from raised
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise await self._guest.failure() from raised
        if raised is not None:
            raise raised


def _give(future: asyncio.Future[T], proposal: Proposal[T]) -> None:
    if future.done():  # cancelled: nobody wants it any more
        return
    found = capture(proposal.result)
    if isinstance(found, Error):
        future.set_exception(found.error)
    else:
        future.set_result(found.unwrap())
