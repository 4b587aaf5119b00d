"""Errors for calling ``open_node`` and its like, of trio, asyncio or threads, where another of them runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from kraftcore.errors import LocalError
from kraftcore.ownership import OwnedAsyncBlock, OwnedBlock
from kraftcore.ports.async_library import async_library

P = ParamSpec("P")
T = TypeVar("T")
_OPENS = {
    "trio": "`async with kraftcore.{}(...)`",
    "asyncio": "`async with kraftcore.aio.{}(...)`",
    "threads": "`with kraftcore.blocking.{}(...)`",
}


_PLACES = {"trio": "another trio loop", "asyncio": "asyncio", "threads": "a thread without an event loop"}


def of_trio(make: Callable[P, AbstractAsyncContextManager[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Decorate what opens a node in trio: elsewhere it raises `LocalError`, which names the function to use."""
    return _asynchronous(make, "trio", f"kraftcore.{make.__name__}")


def of_asyncio(make: Callable[P, AbstractAsyncContextManager[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Decorate what opens a node in asyncio, as ``of_trio`` does."""
    return _asynchronous(make, "asyncio", f"kraftcore.aio.{make.__name__}")


def of_threads(make: Callable[P, AbstractContextManager[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Decorate what opens a node for threads, as ``of_trio`` does. In an event loop ``with`` is let, and blocks it."""

    @wraps(make)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _Synchronous(make(*args, **kwargs), f"kraftcore.blocking.{make.__name__}")

    return opened


def _asynchronous(
    make: Callable[P, AbstractAsyncContextManager[T]], library: str, name: str
) -> Callable[P, AbstractAsyncContextManager[T]]:
    @wraps(make)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Asynchronous(make(*args, **kwargs), library, name)

    return opened


def _wrong(name: str, library: str) -> NoReturn:
    instead = _OPENS[library].format(name.rpartition(".")[2])
    raise LocalError(f"{name} cannot be used like this here, where {library} runs: write {instead}")


class _Asynchronous(OwnedAsyncBlock[T]):
    def __init__(self, inner: AbstractAsyncContextManager[T], library: str, name: str) -> None:
        super().__init__(inner, name)
        self._library = library

    async def __aenter__(self) -> T:
        found = async_library()
        if found != self._library:
            _wrong(self._name, found)
        return await super().__aenter__()

    if not TYPE_CHECKING:  # type checkers find the plain `with` by themselves

        def __enter__(self) -> NoReturn:
            _wrong(self._name, async_library())

        def __exit__(self, *_: object) -> None: ...


class _Synchronous(OwnedBlock[T]):
    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            _wrong(self._name, async_library())

        async def __aexit__(self, *_: object) -> None: ...


def elsewhere(method: str) -> LocalError:
    """The error for a call of a method of trio's node from elsewhere."""
    where = _PLACES[async_library()]
    return LocalError(
        f"Node.{method} is called from {where}, and the node runs in a trio loop of its own: open it with "
        f"kraftcore.aio in asyncio, with kraftcore.blocking in threads; of such a node call {method} itself, or "
        f"node.call(node.trio_node.{method}, ...). In a function that trio.to_thread runs, trio.from_thread calls it"
    )
