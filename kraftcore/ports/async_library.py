"""Where a function is called from: trio, asyncio, or a thread without an event loop."""

from __future__ import annotations

import sys

import trio

from kraftcore.errors import LocalError


def async_library() -> str:
    """Which it is: "trio", "asyncio", or "threads" if there is no event loop."""
    if trio.lowlevel.in_trio_task():
        return "trio"
    return "threads" if running_loop() is None else "asyncio"


def running_loop() -> object | None:
    """asyncio's event loop that runs here; None: none does."""
    asyncio = sys.modules.get("asyncio")  # where nobody imported it no loop of its runs
    try:
        return None if asyncio is None else asyncio.get_running_loop()
    except RuntimeError:
        return None


def place() -> str:
    """Where this is called, for messages."""
    return {"trio": "this one of trio's", "asyncio": "this one"}.get(async_library(), "this thread's, which has none")


def check_trio(name: str, instead: str = "") -> None:
    """Refuse to run outside of a task of trio's.

    Args:
        name: what is to run, for the message.
        instead: what to do elsewhere.

    Raises:
        LocalError: it is called from asyncio, or from a thread without trio.
    """
    found = async_library()
    if found != "trio":
        where = "asyncio" if found == "asyncio" else "no event loop"
        raise LocalError(f"{name} is for trio, and here {where} runs: {instead or 'run it with trio.run(...)'}")
