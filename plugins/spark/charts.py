"""The report's plots as Vega-Lite specifications, drawn on the page by Vega and into SVG files by vl-convert.

All plots have time in UTC on x. A specification holds no data: it names the question whose rows it draws.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.answers import Answer
from kraftcore.plugins.spark.runtime import runtime_folder
from kraftcore.plugins.vega import BAD, CONFIG, GOOD, SCHEMA, VEGA_LITE, WARN, WORSE, make_script

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
"""Colors of states, the best state first in each of the three kinds of lanes."""
# Each tick can be read by itself: the hour is shown with the minute, in 24 hours.
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
"""About the number of ticks of an axis of amounts; the axis ends at a tick."""
_LEFT = 110
"""Pixels left of every plot, so that one moment is at the same place in all plots, whatever the fonts."""
Json = dict[str, Any]
_ROOM: Json = {"minExtent": _LEFT - 20, "maxExtent": _LEFT - 20}
# A long name keeps both ends, for the number of a partition is at its end.
_SHORT = "length(datum.label) > 17 ? slice(datum.label, 0, 7) + '\u2026' + slice(datum.label, -9) : datum.label"
# Vega keeps room for labels only if the axis has a title.
_LANES: Json = {"labelLimit": _LEFT - 10, "ticks": False, "title": "\u00a0", "labelExpr": _SHORT} | _ROOM


@dataclass(frozen=True)
class Chart:
    """A plot of one question's rows.

    Attributes:
        title: heading of the plot.
        answer: the rows drawn.
        spec: the Vega-Lite specification, without width, data, title and the limits of time (see ``within``).
        span: first and last moment of the axis of time.
        x: the column on x, which the signal of a zoom is named by.
        has_amounts: whether y is a number; else y is lanes.
    """

    title: str
    answer: Answer
    spec: Json
    span: tuple[datetime, datetime]
    x: str
    has_amounts: bool = False

    def picture(self, caption: str) -> str:
        """The plot as SVG, with its title and a caption."""
        spec = within(self.spec, self.span) | {
            "width": _WIDTH,
            "title": {"text": self.title, "subtitle": caption, "anchor": "start"},
            "datasets": {self.answer.name: plain_rows(self.answer.rows)},
            "config": CONFIG,
            "background": "#fff",
        }
        return _numbered_anew(str(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE))) + "\n"


def _numbered_anew(svg: str) -> str:
    """The picture with its clip paths counted from 0; Vega counts them through all pictures of a process."""
    numbers = {name: f"clip{number}" for number, name in enumerate(dict.fromkeys(_CLIP.findall(svg)))}
    return _CLIP.sub(lambda found: numbers[found[0]], svg)


def columnar(rows: Iterable[Mapping[str, object]]) -> Json:
    """``plain_rows`` with the names of the columns once."""
    plain = plain_rows(rows)
    return {"columns": list(plain[0]) if plain else [], "rows": [list(one.values()) for one in plain]}


def plain_rows(rows: Iterable[Mapping[str, object]]) -> list[Json]:
    """Rows as JSON values, without ``cluster_id``: moments in milliseconds since 1970, lists as text."""
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
    """Vega, Vega-Lite and Vega-Embed as one script of about 0.9 MB, which loads nothing.

    To make the script takes more than a second, so it is kept in the runtime folder.
    """
    kept: Path | None = None
    with suppress(LocalError, OSError):
        kept = runtime_folder() / f"vega-{VEGA_LITE}-{version('vl-convert-python')}.js"
        return kept.read_text()
    text = make_script()
    if kept is not None:
        with suppress(OSError):
            new = kept.with_name(f"{kept.name}.{os.getpid()}")
            new.write_text(text)
            new.replace(kept)
    return text


def _tooltip(columns: Mapping[str, str]) -> list[Json]:
    # `columns`: headings by column. Moments are shown with date and milliseconds.
    found: list[Json] = []
    for name, title in columns.items():
        one: Json = {"field": name, "title": title, "type": "nominal"}
        if name == "at" or name.endswith("_time"):
            one |= {"type": "temporal", "timeUnit": "utcyearmonthdatehoursminutessecondsmilliseconds", "format": _EXACT}
        found.append(one)
    return found


def milliseconds(span: tuple[datetime, datetime]) -> list[int]:
    """The two ends of an axis of time in ms since 1970, at least 1 ms apart."""
    first, last = map(_ms, span)
    return [first, max(last, first + 1)]


def within(spec: Json, span: tuple[datetime, datetime]) -> Json:
    """The specification with axes of time from the first to the last moment, and the date in their titles."""
    found = deepcopy(spec)
    dates = " and ".join(dict.fromkeys(one.astimezone(UTC).strftime("%Y-%m-%d") for one in span))
    for part in (found, *found["layer"]):
        x = part.get("encoding", {}).get("x")
        if x is not None:
            x["scale"]["domain"] = milliseconds(span)
            x["axis"]["title"] = f"time (UTC), {dates}"
    return found


def _time(name: str) -> Json:
    # The axis x, with a tick about every 100 pixels.
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
    return {"$schema": SCHEMA, "data": {"name": answer.name}}


def lanes(
    title: str,
    answer: Answer,
    span: tuple[datetime, datetime],
    tooltip: Mapping[str, str],
    *,
    color: str,
    label: str = "",
) -> Chart:
    """Bars from ``from_time`` to ``end_time``, one lane for each value of the column ``lane``.

    Args:
        title: heading of the plot.
        answer: the rows, in the order of the lanes.
        span: first and last moment of the axis.
        tooltip: headings by column, shown at the pointer.
        color: the column that chooses the color of a bar.
        label: the column written into bars that are wide enough; empty: none.
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
    # A tick shows bars that are narrower than a pixel.
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
    """Lines of values that hold from ``at`` until the next value, one line for each value of the column ``color``.

    Lines of better states are wider and drawn first, so that lines at one height are all seen.
    """
    states = [one for one in STATES if any(row[color] == one for row in answer.rows)]
    widths = [
        {"test": f"datum['{color}'] === '{one}'", "value": 2 + 1.5 * better}
        for better, one in enumerate(reversed(states))
    ]
    lines: Json = {
        "mark": {"type": "line", "interpolate": "step-after", "clip": True},
        "encoding": {"strokeWidth": {"condition": widths, "value": 2}},  # as a scale the width would remove the legend
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
    """Columns of amounts from ``from_time`` to ``end_time``.

    Args:
        title: heading of the plot.
        answer: the rows.
        span: first and last moment of the axis.
        unit: the unit of the amounts, the title of y.
        above: a column and its heading.
        below: a second column and its heading, drawn below zero; None: no second column.
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
    # Amounts drawn below zero are labelled without a sign.
    amount = "abs(datum.value)"
    text = f"{amount} < 1 ? format({amount}, '~g') : format({amount}, '~s')"
    axis: Json = {"title": unit, "tickCount": _HEIGHTS, "labelExpr": text} | _ROOM
    if step is not None:
        axis["tickMinStep"] = step
    return {"field": name, "type": "quantitative", "axis": axis, "scale": {"zero": True, "nice": _HEIGHTS}}
