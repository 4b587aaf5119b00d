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
"""Requests at a time, as many as a node lets wait of a priority."""

_logger = logging.getLogger("kraftcore.broker")


class Background:
    """Runs tasks that answer requests later, a bounded number at a time.

    A task that raises is logged, and hurts nobody but its asker.

    Args:
        nursery: for the tasks.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._running = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many tasks as may be."""
        return self._running >= TASKS_MAX

    def answer(self, context: RequestContext, work: Callable[[], Awaitable[Any]]) -> None:
        """Have a task work out the answer to a request; None breaks the asker's connection, as too many tasks do."""
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
        """The same handler, whose coroutines are run here: control requests wait for a node's tasks, not for these.

        It sees to it that there are not too many of them.
        """

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
        if found is not None:  # else the handler answers by itself
            context.answer(found)
    except Exception:
        _logger.exception("%s cannot be answered", context.asker.peer)
        context.close()
