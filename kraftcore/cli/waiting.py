"""What a command waits for, said on stderr: nobody should look at a silent prompt for a minute."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from shutil import get_terminal_size

import click
import trio

from kraftcore.admin import Watch
from kraftcore.admin.router import Waiting
from kraftcore.cli.output import is_terminal, printable
from kraftcore.ports.nursery import open_nursery

PATIENCE_S = 2.0
AGAIN_S = 10.0  # between two lines about one call, if there is something new to say
_PERIOD_S = 0.25


@dataclass(slots=True, eq=False)
class _Call:
    name: str
    waiting: Waiting
    begun: float
    due: float


class Waits:
    """The calls under way, and what was said about them: lines, or on a terminal one line that goes when they end."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._told: set[str] = set()
        self._is_drawn = False

    @contextmanager
    def watch(self, name: str, waiting: Waiting) -> Iterator[None]:
        """Watch a call, while the block runs.

        Args:
            name: what is being waited for.
            waiting: knows what failed so far.
        """
        now = trio.current_time()
        call = _Call(name, waiting, now, now + PATIENCE_S)
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)
            self._clear()

    async def tell(self) -> None:
        """Say what takes long, until it is cancelled."""
        while True:
            await trio.sleep(_PERIOD_S)
            with suppress(OSError):  # what the command itself has to say decides how it ends
                self._look(trio.current_time())

    def _look(self, now: float) -> None:
        late = next((call for call in self._calls if now >= call.begun + PATIENCE_S), None)
        if late is None:
            return
        text = printable(f"still waiting for {late.name}: {late.waiting.last_failure}")
        if is_terminal(sys.stderr):
            self._is_drawn = True
            line = f"{now - late.begun:.0f} s, {text}"
            click.echo(f"\r\x1b[K{line[: get_terminal_size().columns - 1]}", nl=False, err=True)
        elif now >= late.due and text not in self._told:
            self._told.add(text)
            late.due = now + AGAIN_S
            click.echo(text, err=True)

    def _clear(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            with suppress(OSError):
                click.echo("\r\x1b[K", nl=False, err=True)


@asynccontextmanager
async def telling() -> AsyncIterator[Watch]:
    """Say on stderr what is being waited for, once it takes longer than two seconds, while the block runs.

    Yields:
        What an admin client, or an observer, is opened with.
    """
    waits = Waits()
    async with open_nursery() as nursery:
        nursery.start_soon(waits.tell)
        yield waits.watch
        nursery.cancel_scope.cancel()
