"""Waiting in asyncio for what must come to its end."""

from __future__ import annotations

import asyncio
from typing import Any


async def settled(future: asyncio.Future[Any]) -> bool:
    """Wait, whatever happens; returns whether the waiting task was cancelled meanwhile.

    An error of the future counts as seen.
    """
    interrupted = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            interrupted = True
    if not future.cancelled():
        future.exception()
    return interrupted
