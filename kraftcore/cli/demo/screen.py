"""The demo's output: a live view on a terminal, lines elsewhere, JSON objects for machines."""

from __future__ import annotations

import json
import shutil
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import click

from kraftcore.cli.demo.processes import Member
from kraftcore.cli.demo.stream import Figures
from kraftcore.cli.drawing import BOLD, DIM, PLAIN, Drawing, Line, can_draw, sparkline

_SAMPLES = 60
_COLORS = {"leader": "green", "follower": "cyan", "candidate": "yellow", "prospective": "yellow"}
_STATES = {"killed": "red", "starting": "yellow"}


class Source(Protocol):
    """The data that a view is drawn from."""

    @property
    def members(self) -> Sequence[Member]:
        """The replicas."""
        ...

    @property
    def records(self) -> int:
        """Number of records acknowledged so far."""
        ...

    def figures(self) -> Figures:
        """Figures of the last second."""
        ...


class Screen:
    """Base: keeps the timeline.

    Attributes:
        timeline: (seconds since the start, text, fields) of each event.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.timeline: list[tuple[float, str, dict[str, Any]]] = []

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def event(self, name: str, text: str, **fields: Any) -> None:
        """Show an event."""
        at = round(self.seconds, 3)
        self.timeline.append((at, text, {"event": name, **fields}))
        self._show_event(at, text, {"event": name, **fields})

    def tick(self, source: Source) -> None:
        """Show the present state; called ten times a second."""

    def result(self, lines: Sequence[str], fields: dict[str, Any]) -> None:
        """Show the result: lines for people, one object for machines."""
        for line in lines:
            click.echo(line)

    def close(self) -> None:
        """Leave the terminal in order."""

    def _show_event(self, at: float, text: str, fields: dict[str, Any]) -> None:
        raise NotImplementedError


class Lines(Screen):
    """One line an event, and the figures every two seconds."""

    _EVERY_S = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._next = self._EVERY_S

    def tick(self, source: Source) -> None:
        """Print the figures, every two seconds."""
        if self.seconds >= self._next:
            self._next = self.seconds + self._EVERY_S
            roles = ", ".join(
                f"{member.id} {_role(member) if _is_up(member) else member.state}" for member in source.members
            )
            click.echo(f"{self.seconds:7.2f} s    {roles}; {_rates(source)}")

    def _show_event(self, at: float, text: str, fields: dict[str, Any]) -> None:
        click.echo(f"{at:7.2f} s  {text}")


class Json(Screen):
    """One JSON object a line: events, a sample each second, the result."""

    _EVERY_S = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._next = self._EVERY_S

    def tick(self, source: Source) -> None:
        """Print a sample, once a second."""
        if self.seconds < self._next:
            return
        self._next = self.seconds + self._EVERY_S
        figures = source.figures()
        self._print(
            at_s=round(self.seconds, 3),
            event="sample",
            acknowledged=source.records,
            records_per_s=figures.records_per_s,
            commit_p50_ms=_rounded(figures.p50_ms),
            commit_p99_ms=_rounded(figures.p99_ms),
            nodes=[_fields(member) for member in source.members],
        )

    def result(self, lines: Sequence[str], fields: dict[str, Any]) -> None:
        """Print the result as the last line."""
        timeline = [{"at_s": at, "text": text, **found} for at, text, found in self.timeline]
        self._print(event="result", **fields, timeline=timeline)

    def _show_event(self, at: float, text: str, fields: dict[str, Any]) -> None:
        self._print(at_s=at, text=text, **fields)

    def _print(self, **fields: Any) -> None:
        click.echo(json.dumps(fields))


class Live(Screen):
    """A picture that is drawn over itself ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._drawing = Drawing()
        self._rates: deque[float] = deque(maxlen=_SAMPLES)
        self._source: Source | None = None

    def tick(self, source: Source) -> None:
        """Draw the picture again."""
        self._source = source
        self._rates.append(source.figures().records_per_s)
        self._draw()

    def close(self) -> None:
        """Leave the last picture on the screen."""
        self._source = None
        self._drawing.close()

    def result(self, lines: Sequence[str], fields: dict[str, Any]) -> None:
        """Print the result below the picture."""
        self.close()
        super().result(["", *lines], fields)

    def _show_event(self, at: float, text: str, fields: dict[str, Any]) -> None:
        if self._source is not None:
            self._draw()

    def _draw(self) -> None:
        self._drawing.draw(self._picture(shutil.get_terminal_size().lines))

    def _picture(self, height: int) -> list[Line]:
        source = self._source
        if source is None:
            return []
        head = f"{'node':>4}  {'pid':>7}  {'state':<9} {'role':<12} {'epoch':>5} {'log end':>9} {'committed':>9}"
        rows: list[Line] = [
            (
                f"kraftcore demo: a quorum over TCP, each voter a process with its own disk  {self.seconds:6.1f} s",
                BOLD,
            ),
            ("", PLAIN),
            (f"{head} {'applied':>9}  voters it knows", DIM),
        ]
        rows += [_row(member) for member in source.members]
        rows += [
            ("", PLAIN),
            (_rates(source), PLAIN),
            (sparkline(self._rates), {"fg": "green"}),
            ("", PLAIN),
        ]
        room = max(height - len(rows) - 1, 1)
        rows += [(f"{at:7.2f} s  {text}", PLAIN) for at, text, _ in self.timeline[-room:]]
        return rows


def make_screen(output: str, *, live: bool | None = None) -> Screen:
    """The screen for an ``--output``; ``live`` None: the live view if standard output is a terminal."""
    if output == "json":
        return Json()
    if live is None:
        live = can_draw()
    return Live() if live else Lines()


def _is_up(member: Member) -> bool:
    return member.runs and member.state == "running"


def _row(member: Member) -> Line:
    """The row of a replica; a replica that is down is shown with its last status."""
    pid = str(member.process.pid) if member.process is not None and member.state in ("starting", "running") else "-"
    status = member.status or {}
    cells = [str(status.get(name, "-")) for name in ("epoch", "log_end", "high_watermark", "applied")]
    epoch, end, committed, applied = ("-" if cell == "None" else cell for cell in cells)
    voters = ",".join(map(str, status.get("voters", ())))
    text = (
        f"{member.id:>4}  {pid:>7}  {member.state:<9} {_role(member):<12} {epoch:>5} {end:>9} {committed:>9} "
        f"{applied:>9}  {voters}"
    )
    color = _COLORS.get(_role(member)) or _STATES.get(member.state)
    return text, {"fg": color} if color else PLAIN if _is_up(member) else DIM


def _fields(member: Member) -> dict[str, Any]:
    pid = None if member.process is None else member.process.pid
    return {"id": member.id, "state": member.state, "pid": pid, **(member.status or {})}


def _role(member: Member) -> str:
    if not _is_up(member) or member.status is None:
        return "-"
    role = str(member.status["role"])
    return "observer" if role == "follower" and member.id not in member.status["voters"] else role


def _rates(source: Source) -> str:
    figures = source.figures()
    text = f"{source.records:,} records acknowledged, {figures.records_per_s:,.0f}/s"
    if figures.p50_ms is None or figures.p99_ms is None:
        return text
    return f"{text}, commit latency p50 {figures.p50_ms:.2f} ms, p99 {figures.p99_ms:.2f} ms"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
