"""``python -m bench report``: the page of all kept figures, made from ``bench/results/``.

A run is an environment and the rows behind it, as ``--save`` wrote them. Every run gets a table; a picture shows the
ratios of a run that has a figure which no newer run of the same effort has. Nothing on the page is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import vl_convert

Row = dict[str, Any]
HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE, PICTURES = "figures.md", "pictures"
SUITES = {
    "nodes": "Whole clusters: three nodes that replicate a log",
    "controller": "Controllers",
    "broker": "Brokers",
    "spark": "Metadata logs on Spark",
    "core": "The compiled core: batches, messages and the log on disk",
    "abuse": "Hostile connections (`python tests/faults/run.py --abuse --json`)",
}
"""By a word in the name of the file; "batches" of 2026-11-22 are of nodes."""
NOT_KEPT = "not in the rows"
VEGA_LITE = "6.4"
HEAD = """\
# Figures

This page lists all figures that are kept, beside the peers of the same run, with machine, date and commit.
`python -m bench report` writes the page from [results](results); do not edit the page. The [manual](README.md)
says what each case measures, and what the figures do not show.

How to read a table: the column `kraftcore` has our figure, in the unit of the row. The cell of a peer has the
peer's figure and, in brackets, the ratio: 2x means that kraftcore is twice as good, whether more or less is better.
A dash says that the peer was not measured in this case. A quick run has short loads, in which a JVM is not warm:
ratios beside Java flatter kraftcore there. "Commit" is the commit that was measured. Runs that were saved before
rows had the commit say that the commit is not in the rows.

Pictures show the ratios on a logarithmic scale. Right of the line at 1, kraftcore is better.
"""


@dataclass(eq=False)
class Run:
    """One run: the file, what the file says of the machine, and the rows.

    Attributes:
        file: the file's path.
        facts: the environment; empty where the file has none.
        rows: in the order of the file.
    """

    file: Path
    facts: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @property
    def suite(self) -> str:
        """The section of the page."""
        return next((name for name in SUITES if name in self.file.stem), "nodes")

    @property
    def date(self) -> str:
        """The moment at which the run began, or the day in the file's name."""
        return str(self.facts.get("time", self.file.name[:10])).replace("T", " ").replace("+00:00", " UTC")

    @property
    def effort(self) -> str:
        """``quick`` or ``full``; runs before there was a choice of efforts were full ones."""
        return str(self.facts.get("effort", "quick" if "quick" in self.file.stem else "full"))

    @property
    def codes(self) -> list[str]:
        """The commits that rows of their own name."""
        return list(dict.fromkeys(row["code"] for row in self.rows if "code" in row))

    def origin(self) -> str:
        """One line: machine, effort, load, commit and raw rows."""
        machine = ", ".join(filter(None, (self.facts.get("machine"), self.facts.get("system"))))
        load = f", load {self.facts['load'][0]:g} before" if "load" in self.facts else ""
        commit = self.facts.get("commit") or " and ".join(self.codes) or NOT_KEPT
        return (
            f"Machine: {machine or NOT_KEPT}{load}. Effort: {self.effort}. Commit: {commit}. "
            f"Rows: [{self.file.name}]({RESULTS.name}/{self.file.name})."
        )


def runs(folder: Path) -> list[Run]:
    """All runs, the newest first."""
    found: list[Run] = []
    for file in sorted(folder.glob("*.jsonl")):
        run = Run(file)
        for row in map(json.loads, file.read_text().splitlines()):
            if "environment" not in row:
                run.rows.append(row)
                continue
            if run.rows:
                found.append(run)
            run = Run(file, row["environment"])
        found.append(run)
    return sorted(found, key=lambda run: run.date, reverse=True)


def short(figure: float) -> str:
    """A figure with three digits or more."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def table(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table in Markdown."""
    heads = list(heads)
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for cells in lines:
        yield f"| {' | '.join(cells)} |"


def beside_peers(run: Run) -> Iterator[str]:
    """Rows of ``--save``: a line a case, a column a peer."""
    peers = list(dict.fromkeys(row["peer_name"] for row in run.rows if row["peer"] is not None and row["peer_name"]))

    def cell(found: dict[str, Row], peer: str) -> str:
        row = found.get(peer)
        if row is None or row["peer"] is None:
            return "-"
        return short(row["peer"]) if row["ratio"] is None else f"{short(row['peer'])} ({short(row['ratio'])}x)"

    lines = []
    for case, group in groupby(run.rows, key=lambda row: row["case"]):
        rows = {row["peer_name"]: row for row in group}
        first = next(iter(rows.values()))
        ours = "not measured" if first["ours"] is None else short(first["ours"])
        lines.append([f"`{case}`", first["unit"], ours, *(cell(rows, peer) for peer in peers)])
    yield from table(["case", "unit", "kraftcore", *peers], lines)
    details = [row for row in run.rows if "details" in row]
    for names, group in groupby(details, key=lambda row: tuple(row["details"])):
        yield ""
        lines = [[f"`{row['case']}`", *(short(row["details"][name]) for name in names)] for row in group]
        yield from table(["case", *(name.replace("_", " ") for name in names)], lines)


def before_and_after(run: Run) -> Iterator[str]:
    """Rows of two commits that took turns: the best turn of each."""
    lines = []
    for case in dict.fromkeys(row["case"] for row in run.rows):
        rows = [row for row in run.rows if row["case"] == case]
        best = max if rows[0]["unit"].endswith("/s") else min
        figures = [[row["ours"] for row in rows if row["code"] == code] for code in run.codes]
        turns = max(map(len, figures))
        lines.append(
            [f"`{case}`", rows[0]["unit"], str(turns), *(short(best(each)) if each else "-" for each in figures)]
        )
    yield from table(["case", "unit", "turns", *run.codes], lines)


def as_they_are(run: Run) -> Iterator[str]:
    """Rows of another form: a column a key."""

    def cell(value: object) -> str:
        return "-" if value is None else short(value) if isinstance(value, float) else str(value)

    names = list(run.rows[0])
    yield from table(
        (name.replace("_", " ") for name in names), ([cell(row[name]) for name in names] for row in run.rows)
    )


def drawn(found: Iterable[Run]) -> list[Run]:
    """Runs with a ratio that no newer run of the same effort has."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for run in found:
        new = {(run.effort, row["case"]) for row in run.rows if row.get("ratio") is not None and "case" in row}
        if new - seen:
            chosen.append(run)
        seen |= new
    return chosen


def picture(run: Run) -> str:
    """The ratios of a run as SVG."""
    rows = [
        {"case": row["case"], "peer": row["peer_name"], "ratio": row["ratio"]}
        for row in run.rows
        if row.get("ratio") is not None
    ]
    color = {"field": "peer", "type": "nominal", "sort": None, "scale": {"scheme": "tableau10"}}
    values = {"type": "quantitative", "scale": {"type": "log", "nice": False}, "title": "ratio: how many times as good"}
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": "#fff",
        "width": 560,
        "height": {"step": 18},
        "title": {"text": f"{run.suite}, {run.effort}: {run.date}", "anchor": "start"},
        "datasets": {"rows": rows, "even": [{"ratio": 1}]},
        "layer": [
            {
                "data": {"name": "even"},
                "mark": {"type": "rule", "color": "#333", "strokeDash": [4, 3]},
                "encoding": {"x": {"field": "ratio", **values}},
            },
            {
                "data": {"name": "rows"},
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.9},
                "encoding": {
                    "y": {"field": "case", "type": "nominal", "sort": None, "title": None},
                    "x": {"field": "ratio", **values, "axis": {"format": "~r", "tickCount": 8}},
                    "color": color,
                    "shape": {"field": "peer", "type": "nominal", "sort": None},
                },
            },
        ],
        "config": {
            "font": "sans-serif",
            "axis": {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "labelLimit": 240},
            "axisY": {"grid": True},
            "legend": {"orient": "top", "title": None, "columns": 3, "labelLimit": 0},
            "view": {"stroke": None},
        },
    }
    return str(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)) + "\n"


def files(folder: Path = RESULTS) -> dict[str, str]:
    """The page and its pictures: paths below ``bench/``, and what is in them."""
    found = runs(folder)
    shown = drawn(found)
    made: dict[str, str] = {}
    lines = [HEAD]
    for suite, title in SUITES.items():
        lines += [f"## {title}", ""]
        for run in found:
            if run.suite != suite:
                continue
            lines += [f"### {run.date}: `{run.file.stem}`", "", run.origin(), ""]
            if run in shown:
                moment = re.sub(r"\D", "", run.date[10:16])
                name = f"{PICTURES}/{run.file.stem}{moment and '-'}{moment}.svg"
                made[name] = picture(run)
                lines += [f"![ratios of {run.file.stem}]({name})", ""]
            form = beside_peers if "better" in run.rows[0] else before_and_after if run.codes else as_they_are
            lines += [*form(run), ""]
        for file in sorted(folder.glob(f"*-{suite}*.txt"), reverse=True):
            lines += [f"Printed by a run of which no rows are kept: [{file.name}]({RESULTS.name}/{file.name}).", ""]
    return {PAGE: re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n", **made}


def write(folder: Path = HERE) -> None:
    """Write the page and its pictures into a folder, and take away pictures that the page does not show."""
    made = files()
    (folder / PICTURES).mkdir(exist_ok=True)
    for path in (folder / PICTURES).glob("*.svg"):
        if f"{PICTURES}/{path.name}" not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text)
