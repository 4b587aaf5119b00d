"""Requests that are answered later by a task of their own: a bounded number of them at a time."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import trio

from kraftcore.errors import NodeStoppedError
from kraftcore.node.registry import RequestContext, Respond

TASKS_MAX = 500
"""The most tasks at a time."""

_logger = logging.getLogger("kraftcore.broker")


class Background:
    """Runs tasks that answer requests later, a bounded number at a time.

    An error in a task is logged, and breaks the connection of its request alone.

    Args:
        nursery: runs the tasks.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._running = 0

    @property
    def is_full(self) -> bool:
        """Whether there are ``TASKS_MAX`` tasks."""
        return self._running >= TASKS_MAX

    def answer(self, context: RequestContext, work: Callable[[], Awaitable[Any]]) -> None:
        """Have a task work out a request's answer; None, or too many tasks, breaks the client's connection."""
        if self.is_full:
            context.close()
            return

        async def task() -> None:
            found = None
            try:
                found = await work()
            finally:
                if found is None:
                    context.close()
                else:
                    context.answer(found)

        self.start(task)

    def running(self, respond: Respond) -> Respond:
        """Wrap a handler so that its coroutines run here, not among the node's tasks, which control requests need."""

        @wraps(respond)
        def run(request: Any, context: RequestContext) -> Any:
            response = respond(request, context)
            if not inspect.iscoroutine(response):
                return response
            self._nursery.start_soon(_finish, response, context)
            return None

        return run

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have a task do something of its own."""
        self._running += 1

        async def task() -> None:
            try:
                await work()
            except NodeStoppedError:
                pass
            except Exception:
                _logger.exception("a task of the broker failed")
            finally:
                self._running -= 1

        self._nursery.start_soon(task)


async def _finish(response: Awaitable[Any], context: RequestContext) -> None:
    try:
        found = await response
        if found is not None:  # None: the handler answers by itself
            context.answer(found)
    except Exception:
        _logger.exception("%s cannot be answered", context.asker.peer)
        context.close()
