"""Draws on a terminal: lines that replace those drawn before, in colors unless NO_COLOR is set; bars; nothing else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import click

from kraftcore.cli.output import is_terminal

Style: TypeAlias = Mapping[str, Any]
"""Arguments of ``click.style``."""
Line: TypeAlias = tuple[str, Style]
"""A line without its end, and how it looks."""
BOLD: Style = {"bold": True}
DIM: Style = {"dim": True}
PLAIN: Style = {}
_BARS = " ▁▂▃▄▅▆▇█"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"


def can_draw() -> bool:
    """Whether standard output is a terminal on which lines can be replaced."""
    return is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"


def styled(line: Line, width: int) -> str:
    """A line cut to a width and styled, for styles take no columns; plain if NO_COLOR is set (no-color.org)."""
    text, style = line
    text = text[:width]
    return click.style(text, **style) if style and not os.environ.get("NO_COLOR") else text


def sparkline(values: Sequence[float]) -> str:
    """A bar of one character for each value, the greatest is full."""
    top = max(values, default=0) or 1
    return "".join(_BARS[round(max(value, 0) / top * (len(_BARS) - 1))] for value in values)


class Drawing:
    """A picture that is drawn over itself; ends with ``close``."""

    def __init__(self) -> None:
        self._drawn = 0
        self._is_closed = False
        click.echo(_HIDE, nl=False)

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw lines in place of those before; what is too wide is cut."""
        width = shutil.get_terminal_size().columns
        text = "".join(f"\x1b[2K{styled(line, width - 1)}\n" for line in lines)
        back = f"\x1b[{self._drawn}A" if self._drawn else ""
        click.echo(back + text + "\x1b[J", nl=False, color=True)
        self._drawn = len(lines)

    def close(self) -> None:
        """Leave the last picture on the screen."""
        if not self._is_closed:
            self._is_closed = True
            click.echo(_SHOW, nl=False)
