"""Tasks beside a block that belongs to somebody else: what is raised comes out as it was raised, never in a group.

A nursery of trio's wraps everything in an ExceptionGroup: what the block raised, cancellation and Ctrl-C included. An
application that awaits one of our calls, or runs a block of ours, did not ask for a nursery and could not catch what it
raised itself.

Ctrl-C: trio raises KeyboardInterrupt wherever Python code runs at that moment, in a task of ours too. Such tasks begin
in functions marked ``uninterrupted``: the interrupt then waits until the application's own task awaits something.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FunctionType
from typing import TypeVar

import trio

uninterrupted = trio.lowlevel.enable_ki_protection
"""Marks a function: while it runs, or what it calls, Ctrl-C waits for the main task's next ``await``."""
_Class = TypeVar("_Class", bound=type)


def uninterrupted_methods(owner: _Class) -> _Class:
    """Mark all methods of a class: none of them is left half done."""
    for method in vars(owner).values():
        if isinstance(method, FunctionType):
            uninterrupted(method)
        elif isinstance(method, property) and isinstance(method.fget, FunctionType):
            uninterrupted(method.fget)
    return owner


@asynccontextmanager
@uninterrupted
async def open_nursery() -> AsyncIterator[trio.Nursery]:
    """As ``trio.open_nursery``, for a block that is not ours.

    What the block raises comes out as it is, a group of its own too, and cancels the tasks. What a task raised comes
    before it: alone if it is one exception, an interrupt before all others, else as a group without cancellations.
    """
    raised: BaseException | None = None
    found: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:
                cancelled, raised = cancelled_part(error)
                nursery.cancel_scope.cancel()
                if cancelled is not None:  # the scope that it belongs to may be the nursery's
                    raise cancelled from None
    except BaseException as error:
        found = alone(error)
    if found is not None and (raised is None or not isinstance(found, trio.Cancelled)):
        raise found
    if raised is not None:
        raise raised


def alone(error: BaseException) -> BaseException:
    """What of an error, perhaps a group, is to be raised outside of a nursery.

    Returns:
        An interrupt (what is no ``Exception``), if there is one; else its only exception; else a group of them. A
        cancellation if there is nothing else.
    """
    cancelled, rest = cancelled_part(error)
    if rest is None:
        return error if cancelled is None else first_of(cancelled)
    if not isinstance(rest, BaseExceptionGroup):
        return rest
    interrupts = rest.split(Exception)[1]
    if interrupts is not None:
        return first_of(interrupts)
    return first_of(rest) if _count(rest) == 1 else rest


def cancelled_part(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Split an error, perhaps a group, into trio's cancellations and the rest; None for a part that is empty."""
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return (cancelled, rest) if cancelled is not None else (None, error)  # `split` makes a copy
    return (error, None) if isinstance(error, trio.Cancelled) else (None, error)


def first_of(error: BaseException) -> BaseException:
    """The first exception of a group, however deep; any other error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _count(error: BaseException) -> int:
    return sum(map(_count, error.exceptions)) if isinstance(error, BaseExceptionGroup) else 1
