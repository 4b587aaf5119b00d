"""The report's plots as Vega-Lite specifications: on the page they can be zoomed, as files they are SVG.

All have time on x, in UTC. A specification holds no data: its rows are those of the question it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import vl_convert

from kraftcore.plugins.spark.answers import Answer

VEGA_LITE = "6.4"
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
GOOD, WARN, WORSE, BAD = "#54a24b", "#eeca3b", "#f58518", "#e45756"
STATES: Mapping[str, str] = {
    "active": GOOD,
    "in controlled shutdown": WARN,
    "fenced": BAD,
    "in sync": GOOD,
    "under-replicated": WARN,
    "under min ISR": WORSE,
    "offline": BAD,
    "committed": GOOD,
    "uncommitted": WARN,
}
"""Colors of what lanes show."""
# Whole figures with their unit's parts, so that a tick can be read by itself: 24 hours, no ":05".
_TICKS = {
    "year": "%Y",
    "quarter": "%Y-%m",
    "month": "%Y-%m",
    "week": "%m-%d",
    "date": "%m-%d",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": "%H:%M:%S.%L",
}
_CLIP = re.compile(r"\bclip\d+\b(?=[\")])")
_EXACT = "%Y-%m-%d %H:%M:%S.%L"
_WIDTH = 800
_HEIGHTS = 4
"""About so many ticks has an axis of amounts, which ends at one: nothing is drawn above the last."""
_LEFT = 110
"""Pixels left of every plot: one moment is at the same place in all of them, whatever the fonts."""
Json = dict[str, Any]
_ROOM: Json = {"minExtent": _LEFT - 20, "maxExtent": _LEFT - 20}
# Of a long name both ends are told: a partition's number is the last of it.
_SHORT = "length(datum.label) > 17 ? slice(datum.label, 0, 7) + '\u2026' + slice(datum.label, -9) : datum.label"
# Room is only kept where there is a title.
_LANES: Json = {"labelLimit": _LEFT - 10, "ticks": False, "title": "\u00a0", "labelExpr": _SHORT} | _ROOM


@dataclass(frozen=True)
class Chart:
    """A plot of one question's rows.

    Attributes:
        title: what it shows.
        answer: its rows.
        spec: the Vega-Lite specification, without width, data, title and what is of one log: see ``within``.
        span: first and last moment of the axis.
        x: the column that x begins with: what a zoom is of.
        has_amounts: whether y is a number, not lanes.
    """

    title: str
    answer: Answer
    spec: Json
    span: tuple[datetime, datetime]
    x: str
    has_amounts: bool = False

    def picture(self, caption: str) -> str:
        """As an SVG file with its title and a caption."""
        spec = within(self.spec, self.span) | {
            "width": _WIDTH,
            "title": {"text": self.title, "subtitle": caption, "anchor": "start"},
            "datasets": {self.answer.name: plain_rows(self.answer.rows)},
            "config": CONFIG,
            "background": "#fff",
        }
        return _numbered_anew(str(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE))) + "\n"


def _numbered_anew(svg: str) -> str:
    """The same picture with its clip paths counted from 0: Vega counts on through all that a process draws."""
    numbers = {name: f"clip{number}" for number, name in enumerate(dict.fromkeys(_CLIP.findall(svg)))}
    return _CLIP.sub(lambda found: numbers[found[0]], svg)


CONFIG: Json = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
    "legend": {"orient": "top", "title": None, "labelFontSize": 11, "symbolType": "circle", "labelLimit": 0},
}


def columnar(rows: Iterable[Mapping[str, object]]) -> Json:
    """Rows as ``plain_rows`` gives them, with the names of the columns once."""
    plain = plain_rows(rows)
    return {"columns": list(plain[0]) if plain else [], "rows": [list(one.values()) for one in plain]}


def plain_rows(rows: Iterable[Mapping[str, object]]) -> list[Json]:
    """Rows as JSON has them: moments in milliseconds since 1970, lists as text."""
    return [{name: _plain(value) for name, value in row.items() if name != "cluster_id"} for row in rows]


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)  # PySpark hands out naive times of this process's zone


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return _ms(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if value is None or isinstance(value, str | int | float) else str(value)


def script() -> str:
    """The code that draws: Vega, Vega-Lite and Vega-Embed in one text, about 0.9 MB, which loads nothing."""
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return text.replace("</script", "<\\/script")


def _tooltip(columns: Mapping[str, str]) -> list[Json]:
    # By column: its heading. Moments are written out.
    found: list[Json] = []
    for name, title in columns.items():
        one: Json = {"field": name, "title": title, "type": "nominal"}
        if name == "at" or name.endswith("_time"):
            one |= {"type": "temporal", "timeUnit": "utcyearmonthdatehoursminutessecondsmilliseconds", "format": _EXACT}
        found.append(one)
    return found


def milliseconds(span: tuple[datetime, datetime]) -> list[int]:
    """The ends of an axis of time, since 1970; never the same."""
    first, last = map(_ms, span)
    return [first, max(last, first + 1)]


def within(spec: Json, span: tuple[datetime, datetime]) -> Json:
    """A specification whose axes of time reach from the first to the last moment, and tell the date."""
    found = deepcopy(spec)
    dates = " and ".join(dict.fromkeys(one.astimezone(UTC).strftime("%Y-%m-%d") for one in span))
    for part in (found, *found["layer"]):
        x = part.get("encoding", {}).get("x")
        if x is not None:
            x["scale"]["domain"] = milliseconds(span)
            x["axis"]["title"] = f"time (UTC), {dates}"
    return found


def _time(name: str) -> Json:
    # x, from the log's first to its last moment; a tick about every 90 pixels, at round times.
    return {
        "field": name,
        "type": "temporal",
        "scale": {"type": "utc", "clamp": False},
        "axis": {
            "format": _TICKS,
            "tickCount": {"expr": "ceil(width / 100)"},
            "labelOverlap": True,
            "labelSeparation": 6,
            "labelFlush": False,
            "grid": True,
        },
    }


_ZOOM: Json = {
    "name": "zoom",
    "select": {
        "type": "interval",
        "encodings": ["x"],
        "zoom": "wheel![event.ctrlKey]",
        "clear": "dblclick",
    },
    "bind": "scales",
}


def _frame(answer: Answer) -> Json:
    return {"$schema": _SCHEMA, "data": {"name": answer.name}}


def lanes(
    title: str,
    answer: Answer,
    span: tuple[datetime, datetime],
    tooltip: Mapping[str, str],
    *,
    color: str,
    label: str = "",
) -> Chart:
    """Bars over time, a lane for each ``lane``, from ``from_time`` to ``end_time``.

    Args:
        title: of the plot.
        answer: its rows, in the order of the lanes.
        span: first and last moment of the axis.
        tooltip: columns to show at the pointer, with their headings.
        color: column that bars are colored by.
        label: column written into bars that have the room.
    """
    states = [one for one in STATES if any(row[color] == one for row in answer.rows)]
    scale: Json = {"domain": states, "range": [STATES[one] for one in states]} if states else {"scheme": "tableau10"}
    order = list(dict.fromkeys(row["lane"] for row in answer.rows))
    bars: Json = {
        "mark": {"type": "bar", "height": {"band": 0.75}, "clip": True, "cornerRadius": 2},
        "params": [_ZOOM],
        "encoding": {
            "x": _time("from_time"),
            "x2": {"field": "end_time"},
            "color": {"field": color, "type": "nominal", "scale": scale, "legend": {} if states else None},
            "tooltip": _tooltip(tooltip),
        },
    }
    # What lasted less than a pixel is still to be seen.
    ticks: Json = {
        "mark": {"type": "tick", "opacity": 1, "thickness": 1.5, "height": {"expr": "15"}, "clip": True},
        "encoding": {key: bars["encoding"][key] for key in ("x", "color", "tooltip")},
    }
    layers = [ticks, bars]
    if label:
        room = f"scale('x', datum.end_time) - scale('x', datum.from_time) > 7 * length(datum['{label}'])"
        text = {"type": "text", "align": "left", "dx": 4, "fontSize": 11, "clip": True, "color": "#111"}
        layers.append({
            "mark": text | {"opacity": {"expr": f"{room} ? 1 : 0"}, "tooltip": False},
            "encoding": {"x": _time("from_time"), "text": {"field": label, "type": "nominal"}},
        })  # fmt: skip
    lane = {"field": "lane", "type": "nominal", "sort": order, "axis": _LANES}
    spec = _frame(answer) | {"height": {"step": 24}, "encoding": {"y": lane}, "layer": layers}
    return Chart(title, answer, spec, span, "from_time")


def steps(title: str, answer: Answer, span: tuple[datetime, datetime], value: str, unit: str, *, color: str) -> Chart:
    """Values that hold until the next one, at ``at``; a line for each of ``color``.

    Lines at one height are all seen: those of better states are wider, and lie below if their rows come first.
    """
    states = [one for one in STATES if any(row[color] == one for row in answer.rows)]
    widths = [
        {"test": f"datum['{color}'] === '{one}'", "value": 2 + 1.5 * better}
        for better, one in enumerate(reversed(states))
    ]
    lines: Json = {
        "mark": {"type": "line", "interpolate": "step-after", "clip": True},
        "encoding": {"strokeWidth": {"condition": widths, "value": 2}},  # of a scale it would take the legend away
        "params": [_ZOOM],
    }
    tooltip = _tooltip({color: "state", value: unit, "at": "from"})
    points = {
        "mark": {"type": "point", "opacity": 0, "size": 120, "filled": True, "clip": True},
        "encoding": {"tooltip": tooltip},
    }
    spec = _frame(answer) | {
        "height": 130,
        "encoding": {
            "x": _time("at"),
            "y": _amount(value, unit, step=1),
            "color": {
                "field": color,
                "type": "nominal",
                "scale": {"domain": states, "range": [STATES[one] for one in states]},
            },
        },
        "layer": [lines, points],
    }
    return Chart(title, answer, spec, span, "at", has_amounts=True)


def columns(
    title: str,
    answer: Answer,
    span: tuple[datetime, datetime],
    unit: str,
    above: tuple[str, str],
    below: tuple[str, str] | None = None,
) -> Chart:
    """Amounts in spans of time, from ``from_time`` to ``end_time``.

    Args:
        title: of the plot.
        answer: its rows.
        span: first and last moment of the axis.
        unit: what is counted.
        above: a column and what it is called.
        below: another, drawn below zero.
    """  # fmt: skip
    sides = [above] if below is None else [above, below]
    shades = [GOOD, BAD] if below else ["#4c78a8"]
    layers: list[Json] = []
    for number, (name, called) in enumerate(sides):
        encoding: Json = {
            "x": _time("from_time"),
            "x2": {"field": "end_time"},
            "y": _amount(f"height_{number}", unit, step=1 if below else None),
            "y2": {"datum": 0},
            "color": {"datum": called, "scale": {"range": shades}} if below else {"value": shades[0]},
            "tooltip": _tooltip({name: called, "from_time": "from", "end_time": "to"}),
        }
        sign = "-" if number else ""
        layer: Json = {
            "transform": [{"calculate": f"{sign}datum['{name}']", "as": f"height_{number}"}],
            "mark": {"type": "rect", "clip": True},
            "encoding": encoding,
        }
        layers.append(layer if number else layer | {"params": [_ZOOM]})
    spec = _frame(answer) | {"height": 130, "layer": layers}
    return Chart(title, answer, spec, span, "from_time", has_amounts=True)


def _amount(name: str, unit: str, *, step: int | None) -> Json:
    # Heights below zero are counts as well.
    amount = "abs(datum.value)"
    text = f"{amount} < 1 ? format({amount}, '~g') : format({amount}, '~s')"
    axis: Json = {"title": unit, "tickCount": _HEIGHTS, "labelExpr": text} | _ROOM
    if step is not None:
        axis["tickMinStep"] = step
    return {"field": name, "type": "quantitative", "axis": axis, "scale": {"zero": True, "nice": _HEIGHTS}}
