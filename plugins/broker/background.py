"""Requests that are answered later by a task of their own: a bounded number of them at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftcore.errors import NodeStoppedError
from kraftcore.node.registry import RequestContext

TASKS_MAX = 500
"""Requests at a time, as many as a node lets wait of a priority."""

_logger = logging.getLogger("kraftcore.broker")


class Background:
    """See the module text. A task that raises is logged, and hurts nobody but its asker.

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
