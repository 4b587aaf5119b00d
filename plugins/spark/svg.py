"""Plots as SVG: bars over time, steps over time, columns over time. Nothing to load, nothing to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH, LEFT, RIGHT = 960, 150, 16
_TICKS = 6
Key = tuple[tuple[str, str], ...]
"""What colors stand for: (name, color)."""
COLORS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b", "#ff9da6", "#79706e")
GOOD, WARN, BAD = "#54a24b", "#eeca3b", "#e45756"
STYLE = """
svg { font: 12px system-ui, sans-serif; }
svg .grid { stroke: #e5e5e5; } svg .tick { fill: #777; font-size: 11px; } svg .in { fill: #111; font-size: 11px; }
svg .head { font-size: 15px; font-weight: 600; }
"""
_HEAD, _KEY, _FOOT = 36, 22, 20


@dataclass(frozen=True)
class Bar:
    """Something that lasted: ``start_ms`` to ``end_ms`` in a lane, with a color and a tooltip; a label if it fits."""

    lane: str
    start_ms: float
    end_ms: float
    color: str
    title: str
    label: str = ""


class Axis:
    """Milliseconds since 1970 to x."""

    def __init__(self, start_ms: float, end_ms: float) -> None:
        self.start = start_ms
        self.end = max(end_ms, start_ms + 1)

    def x(self, at_ms: float) -> float:
        """Where a moment is, within the plot."""
        share = (min(max(at_ms, self.start), self.end) - self.start) / (self.end - self.start)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def draw(self, height: float) -> str:
        """Ticks below a plot of this height."""
        parts = []
        span = self.end - self.start
        form = "%H:%M:%S" if span < 86_400_000 else "%m-%d %H:%M" if span < 60 * 86_400_000 else "%Y-%m-%d"
        for tick in range(_TICKS + 1):
            at = self.start + span * tick / _TICKS
            text = datetime.fromtimestamp(at / 1000, UTC).strftime(form)
            x = self.x(at)
            anchor = "end" if tick == _TICKS else "start" if tick == 0 else "middle"
            parts.append(f'<line class="grid" x1="{x}" y1="0" x2="{x}" y2="{height}"/>')
            parts.append(f'<text class="tick" x="{x}" y="{height + 14}" text-anchor="{anchor}">{text}</text>')
        return "".join(parts)


@dataclass(frozen=True)
class Plot:
    """A plot, for a page or as a file of its own.

    Attributes:
        title: what it shows.
        height: of the body, ticks below it not counted.
        body: SVG, as wide as all plots are.
        key: what its colors stand for.
    """

    title: str
    height: float
    body: str
    key: Key = ()

    def inline(self) -> str:
        """As an element of an HTML page, which has ``STYLE``."""
        return self._frame(0, "", "")

    def picture(self, caption: str) -> str:
        """As a file, with a white ground, its title and a caption on top."""
        head = (
            f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
            f'<text class="head" x="8" y="20">{escape(self.title)}</text>'
            f'<text class="tick" x="{WIDTH - RIGHT}" y="20" text-anchor="end">{escape(caption)}</text>'
        )
        return self._frame(_HEAD, head, ' xmlns="http://www.w3.org/2000/svg"') + "\n"

    def _frame(self, above: float, head: str, attributes: str) -> str:
        body = above + (_KEY if self.key else 0)
        height = body + self.height + _FOOT
        keys, x = "", float(LEFT)
        for name, color in self.key:
            keys += f'<circle cx="{x + 5}" cy="{above + 8}" r="5" fill="{color}"/>'
            keys += f'<text x="{x + 15}" y="{above + 12}">{escape(name)}</text>'
            x += 40 + 7 * len(name)
        return (
            f'<svg{attributes} viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(self.title)}">'
            f'<title>{escape(self.title)}</title>{head}{keys}<g transform="translate(0 {body})">{self.body}</g></svg>'
        )


def lanes(title: str, bars: Sequence[Bar], axis: Axis, *, order: Sequence[str] | None = None, key: Key = ()) -> Plot:
    """Bars over time, a lane for each name."""
    names = list(order or dict.fromkeys(bar.lane for bar in bars))
    height = 24 * len(names)
    parts = [axis.draw(height)]
    for row, name in enumerate(names):
        parts.append(f'<text class="lane" x="{LEFT - 8}" y="{24 * row + 16}" text-anchor="end">{escape(name)}</text>')
    rows = {name: row for row, name in enumerate(names)}
    for bar in bars:
        x, end = axis.x(bar.start_ms), axis.x(bar.end_ms)
        width = max(end - x, 1.5)
        y = 24 * rows[bar.lane] + 3
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width:.1f}" height="18" fill="{bar.color}" rx="2">'
            f"<title>{escape(bar.title)}</title></rect>"
        )
        if bar.label and width > 7 * len(bar.label) + 4:
            parts.append(f'<text class="in" x="{x + 4}" y="{y + 13}">{escape(bar.label)}</text>')
    return Plot(title, height, "".join(parts), key)


def steps(title: str, series: Sequence[tuple[str, str, Sequence[tuple[float, float]]]], axis: Axis) -> Plot:
    """Values that hold until the next one: (name, color, [(ms, value)])."""
    height = 120.0
    top = max([1.0, *(value for _, _, points in series for _, value in points)])

    def y(value: float) -> float:
        return round(height - value / top * (height - 10), 1)

    parts = [axis.draw(height)]
    for value in (0, top):
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{value:g}</text>')
    for _, color, points in series:
        if not points:
            continue
        path = [f"M{axis.x(points[0][0])} {y(points[0][1])}"]
        path += [f"H{axis.x(at)}V{y(value)}" for at, value in points[1:]]
        path.append(f"H{axis.x(axis.end)}")
        parts.append(f'<path d="{"".join(path)}" fill="none" stroke="{color}" stroke-width="2"/>')
    return Plot(title, height, "".join(parts), tuple((name, color) for name, color, _ in series))


def columns(title: str, values: Sequence[tuple[float, float, float, str]], axis: Axis, color: str = COLORS[0]) -> Plot:
    """Amounts in spans of time: (from ms, to ms, value, tooltip)."""
    height = 120.0
    top = max([1.0, *(value for _, _, value, _ in values)])
    parts = [axis.draw(height)]
    for value in (0.0, top):
        at = round(height - value / top * (height - 10), 1) + 4
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{at}" text-anchor="end">{value:g}</text>')
    for start, end, value, text in values:
        tall = value / top * (height - 10)
        x = axis.x(start)
        width = max(axis.x(end) - x - 0.5, 1.0)
        parts.append(
            f'<rect x="{x}" y="{height - tall:.1f}" width="{width:.1f}" height="{tall:.1f}" fill="{color}">'
            f"<title>{escape(text)}</title></rect>"
        )
    return Plot(title, height, "".join(parts))
