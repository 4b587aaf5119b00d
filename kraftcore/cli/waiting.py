"""Tells on stderr what a command waits for, so that nobody looks at a silent prompt for a minute."""

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
AGAIN_S = 10.0  # seconds between two lines about one call, if there is news
_PERIOD_S = 0.25


@dataclass(slots=True, eq=False)
class _Call:
    name: str
    waiting: Waiting
    begun: float
    due: float

    @property
    def findings(self) -> tuple[str, ...]:
        """Who answers, a line each; empty while that is not known."""
        survey = self.waiting.survey
        return () if survey is None else survey.lines


class Waits:
    """Reports calls under way that take long: by lines, or on a terminal by one line that vanishes when they end.

    Who answers is told in lines that stay, whenever there is news of it.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._told: set[str] = set()
        self._is_drawn = False

    @contextmanager
    def watch(self, name: str, waiting: Waiting) -> Iterator[None]:
        """Watch a call, while the block runs.

        Args:
            name: of what the command waits for.
            waiting: tells the last failure, and who answers.
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
        """Report calls that take long, until cancelled."""
        while True:
            await trio.sleep(_PERIOD_S)
            with suppress(OSError):  # only the command's own output decides its exit status
                self._look(trio.current_time())

    def _look(self, now: float) -> None:
        late = next((call for call in self._calls if now >= call.begun + PATIENCE_S), None)
        if late is None:
            return
        text = printable(f"still waiting for {late.name}: {late.waiting.last_failure}")
        findings = tuple(map(printable, late.findings))
        is_news = not self._told.issuperset(findings)
        self._told.update(findings)
        if is_terminal(sys.stderr):
            if is_news:
                self._clear()
                for finding in findings:
                    click.echo(finding, err=True)
            self._is_drawn = True
            line = f"{now - late.begun:.0f} s, {text}"
            click.echo(f"\r\x1b[K{line[: get_terminal_size().columns - 1]}", nl=False, err=True)
        elif is_news or (now >= late.due and text not in self._told):
            late.due = now + AGAIN_S
            for line in (*(() if text in self._told else (text,)), *(findings if is_news else ())):
                click.echo(line, err=True)
            self._told.add(text)

    def _clear(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            with suppress(OSError):
                click.echo("\r\x1b[K", nl=False, err=True)


@asynccontextmanager
async def telling() -> AsyncIterator[Watch]:
    """Report on stderr each call in the block that takes longer than two seconds.

    Yields:
        The ``watch`` argument for opening an admin client or an observer.
    """
    waits = Waits()
    async with open_nursery() as nursery:
        nursery.start_soon(waits.tell)
        yield waits.watch
        nursery.cancel_scope.cancel()
