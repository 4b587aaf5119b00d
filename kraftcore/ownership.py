"""What belongs to one process, so that a child made by ``fork`` gets none of it.

``fork`` copies every descriptor. While the child lives, a lock that its parent held would stay taken, a port in use and
a connection open, though the parent is gone; and objects would answer from a state that stands still. So in a child,
before anything else runs there:

* every descriptor that is registered here is closed. Locks are not given back and connections not shut down: both
  belong to the open file, which is the parent's as well;
* every `Owned` object raises `WrongProcessError`, whatever is asked of it, and leaving its block does nothing.

All of this goes by ``os.register_at_fork``: the parent pays nothing, and asks for no process id. A child that runs
another program (``exec``: the module subprocess, multiprocessing's "spawn" and "forkserver") inherits no descriptor of
Python's anyway (PEP 446).
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from kraftcore.errors import LocalError, WrongProcessError

P = ParamSpec("P")
T = TypeVar("T")

no_forks = threading.RLock()
"""Held while a descriptor is opened and registered: a fork of another thread waits. Only for calls that are quick."""

_closers: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()
_owned: WeakSet[Owned] = WeakSet()
_inherited: list[object] = []
_here = _parent = os.getpid()


def close_in_children(thing: T, close: Callable[[T], object]) -> T:
    """Have descriptors closed in every child that is forked from now on. Hold `no_forks` since they were opened.

    Args:
        thing: what holds them; forgotten with it. It can be referenced weakly.
        close: gets it, in the child; there no other thread runs, and locks that others held are never let go of. It
            may as well make the thing forget what the child has no use for.

    Returns:
        ``thing``.
    """
    _closers[thing] = close
    return thing


def close_socket_in_children(sock: socket.socket) -> socket.socket:
    """As ``close_in_children``, for a socket."""
    return close_in_children(sock, _close_socket)


def _close_socket(sock: socket.socket) -> None:
    descriptor = sock.detach()  # `close` would wait for files that were made of it
    if descriptor >= 0:
        os.close(descriptor)


class _Foreign:
    """Marks the classes that objects of the parent get."""

    __slots__ = ()


class Owned:
    """Base class of what belongs to the process that made it, and is of no use in another one.

    An ``__exit__`` or ``__aexit__`` asks ``belongs_here`` before all else: ``with`` has looked it up when the block
    began, so that the class which the object has in a child comes too late.

    Raises:
        WrongProcessError: something is asked of it in a forked process, or it is pickled, or copied.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Whatever ``__init__`` takes."""
        made = super().__new__(cls)
        _owned.add(made)
        return made

    def __reduce__(self) -> NoReturn:
        raise WrongProcessError(
            f"a {type(self).__name__} cannot be pickled or copied: it belongs to process {_here}. Give another process "
            f"what it needs to make its own, such as a configuration or an address",
            _here,
        )


def belongs_here(thing: Owned) -> bool:
    """Whether this process made it; False: one that this was forked from."""
    return not isinstance(thing, _Foreign)


class OwnedBlock(Owned, AbstractContextManager[T]):
    """A ``with`` block whose end does nothing in a child that was forked inside.

    Args:
        inner: what it does.
        name: of the function that made it, for those who take what it returned for what the block opens.
    """

    __slots__ = ("_inner", "_name")

    def __init__(self, inner: AbstractContextManager[T], name: str) -> None:
        self._inner = inner
        self._name = name

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> NoReturn:
            _no_attribute("with", self, attribute)

    def __enter__(self) -> T:
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._inner.__exit__(kind, error, trace) if belongs_here(self) else None


class OwnedAsyncBlock(Owned, AbstractAsyncContextManager[T]):
    """The same for ``async with``."""

    __slots__ = ("_inner", "_name")

    def __init__(self, inner: AbstractAsyncContextManager[T], name: str) -> None:
        self._inner = inner
        self._name = name

    if not TYPE_CHECKING:  # type checkers find such mistakes by themselves

        def __getattr__(self, attribute: str) -> NoReturn:
            _no_attribute("async with", self, attribute)

        def __await__(self) -> NoReturn:
            raise LocalError(f"{self._name}(...) opens a block: write `async with {self._name}(...) as opened:`")

        def __enter__(self) -> NoReturn:
            raise LocalError(f"write `async with {self._name}(...)`, not `with`, in what trio.run(...) runs")

        def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> T:
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace) if belongs_here(self) else None


def _no_attribute(statement: str, block: Any, attribute: str) -> NoReturn:
    name = "" if attribute.startswith("_") else block._name
    if not name:  # what debuggers, copy and the like look for
        raise AttributeError(f"{type(block).__name__!r} object has no attribute {attribute!r}")
    raise LocalError(
        f"{name}(...) opens a block, and {attribute} is asked of what it opens: write `{statement} {name}(...) as "
        f"opened:`, and in the block `opened.{attribute}`"
    )


def owned_async_block(
    name: str,
) -> Callable[[Callable[P, AbstractAsyncContextManager[T]]], Callable[P, AbstractAsyncContextManager[T]]]:
    """Decorate a function of trio's that makes an asynchronous context manager.

    Args:
        name: by which programs call it.
    """

    def decorate(make: Callable[P, AbstractAsyncContextManager[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
        @wraps(make)
        def made(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
            return OwnedAsyncBlock(make(*args, **kwargs), name)

        return made

    return decorate


@contextmanager
def at_end(function: Callable[[], object]) -> Iterator[None]:
    """Have a function called when the block ends, or this process within it; never in a child.

    A child of multiprocessing ends by ``os._exit``, so that `atexit` knows nothing of it; multiprocessing does.
    """
    owner = os.getpid()

    def ended() -> None:
        if os.getpid() == owner:
            function()

    multiprocessing = sys.modules.get("multiprocessing.util")  # each child of multiprocessing has it
    finalizer = None if multiprocessing is None else multiprocessing.Finalize(None, ended, exitpriority=0)
    atexit.register(ended)
    try:
        yield
    finally:
        atexit.unregister(ended)
        if finalizer is not None:
            finalizer.cancel()
        ended()


def forked_from() -> int:
    """For what ``close_in_children`` calls: the process that things belong to which are closed now."""
    return _parent


def left_behind(what: str, owner: int) -> WrongProcessError:
    """The error of something inherited.

    Args:
        what: for people.
        owner: the process that it belongs to.
    """
    return WrongProcessError(
        f"{what} belongs to process {owner}, from which this one ({os.getpid()}) was forked: leave the call to process "
        f"{owner}, or have this one open its own",
        owner,
    )


# --- in the child -----------------------------------------------------------------------------------------------------


def _foreign_class(kind: type[Owned], owner: int) -> type[Owned]:
    name = kind.__name__

    def refusal() -> WrongProcessError:
        return left_behind(f"this {name}", owner)

    def get(self: Owned, attribute: str) -> Any:
        if attribute.startswith("__"):  # what debuggers, isinstance and the like look at
            return object.__getattribute__(self, attribute)
        raise refusal()

    def change(self: Owned, attribute: str, value: object = None) -> NoReturn:
        raise refusal()

    def show(self: Owned) -> str:
        return f"<{name} of process {owner}, which this one was forked from>"

    def reduce(self: Owned) -> NoReturn:
        raise refusal()

    body: dict[str, Any] = {
        "__slots__": (),
        "__getattribute__": get,
        "__setattr__": change,
        "__delattr__": change,
        "__repr__": show,
        "__reduce__": reduce,
    }
    return type(name, (kind, _Foreign), body)


def _disown() -> None:
    """Close what is registered, and have everything `Owned` refuse. In the child, before anything else."""
    global _here, _parent
    _parent, _here = _here, os.getpid()
    descriptors = list(_closers.items())
    _closers.clear()
    for thing, close in descriptors:
        with suppress(Exception):  # the others are to be closed all the same
            close(thing)
    things = list(_owned)
    _owned.clear()
    kinds = {kind: _foreign_class(kind, _parent) for kind in set(map(type, things))}
    for owned in things:
        object.__setattr__(owned, "__class__", kinds[type(owned)])
    # Kept: what becomes garbage ends, generators with all that follows in them.
    _inherited.extend(things)


def _in_child() -> None:
    no_forks.release()
    _disown()


os.register_at_fork(before=no_forks.acquire, after_in_parent=no_forks.release, after_in_child=_in_child)
