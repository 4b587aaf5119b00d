"""What ``kraftcore spark`` says on stderr while it works."""

from __future__ import annotations

import sys
import threading
import time

import click

from kraftcore.cli.output import is_terminal

_PERIOD_S = 1.0


class Screen:
    """Lines of progress on stderr. On a terminal the running stage is one line, which is redrawn and vanishes.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_drawn_on = is_terminal(sys.stderr) and not quiet
        self._lock = threading.Lock()
        self._ended: threading.Event | None = None
        self._stage = ""

    def line(self, text: str) -> None:
        """Print a step that is done."""
        self.clear()
        self._print(text)

    def _print(self, text: str) -> None:
        if not self._quiet:
            click.echo(text, err=True)

    def progress(self, share: float, label: str) -> None:
        """Show the share of a step that is done, 0 to 1."""
        self.clear()
        done = int(share * 30)
        self._draw(f"{label} [{'#' * done}{'.' * (30 - done)}] {share:4.0%}")

    def stage(self, text: str) -> None:
        """Name the stage that begins, if another runs; that one ends. A terminal shows the seconds since then, too."""
        if text == self._stage:
            return
        self.clear()
        self._stage = text
        if not self._is_drawn_on:
            self._print(f"{text} ...")
            return
        self._ended = threading.Event()
        threading.Thread(target=self._tick, args=(text, self._ended), daemon=True).start()

    def clear(self) -> None:
        """End the stage; what was drawn on a terminal vanishes."""
        self._stage = ""
        if self._ended is not None:
            with self._lock:
                self._ended.set()
            self._ended = None
        self._draw("")

    def _tick(self, text: str, ended: threading.Event) -> None:
        begun = time.monotonic()
        while True:
            with self._lock:
                if ended.is_set():
                    return
                self._draw(f"{text} ... {time.monotonic() - begun:.0f} s")
            ended.wait(_PERIOD_S)

    def _draw(self, text: str) -> None:
        if self._is_drawn_on:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
