"""What a written report holds: sections of clusters, tables, figures, questions and the rows of its plots."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

VOID = {"meta", "br", "link", "img", "input"}


@dataclass
class Table:
    query: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[tuple[Any, str]]] = field(default_factory=list)
    """Cells: the value, and the text that is seen."""


@dataclass
class Figure:
    query: str
    row: int
    column: str
    value: Any
    text: str = ""


@dataclass
class Cluster:
    questions: set[str] = field(default_factory=set)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    shown: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    titles: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """A report, read without the code that wrote it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.clusters: dict[str, Cluster] = {}
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.counts: dict[str, int] = {}
        """How many clusters there are, of which kinds."""
        self.unfolded: list[str] = []
        self.free_text = ""
        """What is neither figure nor cell nor SQL nor code nor a cluster's name."""
        self.data: dict[str, Any] = {}
        self._open: list[tuple[str, dict[str, str]]] = []
        self._cluster = Cluster()
        text = path.read_text()
        self.size = len(text)
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.tags.add(tag)
        self.links += [found[name] for name in ("src", "href", "data", "srcset", "xlink:href") if name in found]
        if tag not in VOID:
            self._open.append((tag, found))
        if "data-cluster" in found:
            self._cluster = self.clusters.setdefault(found["data-cluster"], Cluster())
        if tag == "details" and found.get("class") == "fold" and "open" in found:
            self.unfolded.append(next(one["data-cluster"] for _, one in self._open if "data-cluster" in one))
        if tag == "details" and found.get("class") == "sql":
            self._cluster.questions.add(found["data-query"])
        if tag == "table":
            self._cluster.tables.append(Table(found["data-query"]))
        elif tag == "th":
            self._cluster.tables[-1].columns.append(found["data-column"])
        elif tag == "tr":
            self._cluster.tables[-1].rows.append([])
        elif tag == "td":
            value = json.loads(found["data-value"]) if "data-value" in found else ""
            self._cluster.tables[-1].rows[-1].append((value, ""))
        elif tag == "data" and "data-query" in found:
            self._cluster.figures.append(
                Figure(found["data-query"], int(found["data-row"]), found["data-column"], json.loads(found["value"]))
            )

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass
        if tag == "table":
            self._cluster.tables[-1].rows = [row for row in self._cluster.tables[-1].rows if row]

    def handle_data(self, data: str) -> None:
        tags = dict(self._open)
        if "script" in tags:
            if tags["script"].get("id") == "report-data":
                self.data = json.loads(data)
        elif "td" in tags:
            row = self._cluster.tables[-1].rows[-1]
            text = row[-1][1] + data
            value = row[-1][0]
            if "data-value" not in tags["td"]:  # the text says it
                value = json.loads(text) if tags["td"].get("class") == "number" else text
            row[-1] = (value, text)
        elif "data" in tags:
            self._figure(tags["data"], data)
        elif not {"style", "h1", "h2", "a"} & set(tags) and tags.get("p", {}).get("class") != "note made":
            self.free_text += data
            if "b" in tags:
                self._cluster.titles.append(data)

    def _figure(self, found: dict[str, str], text: str) -> None:
        if "data-count" in found:
            self.counts[found["data-count"]] = int(text)
        elif "data-shown" in found:
            self._cluster.shown[found["data-shown"]] = int(text)
        elif "data-left-out" in found:
            self._cluster.left_out[found["data-left-out"]] = int(text)
        else:
            self._cluster.figures[-1].text += text

    def charts(self, cluster_id: str) -> list[dict[str, Any]]:
        """Plots of a cluster, each with its rows."""
        held = self.data["rows"].get(cluster_id, {})
        return [
            one | {"rows": [dict(zip(held[one["query"]]["columns"], row, strict=True))
                            for row in held[one["query"]]["rows"]]}
            for one in self.data["charts"] if one["cluster"] == cluster_id
        ]  # fmt: skip


def milliseconds(text: str) -> tuple[int, int]:
    """What a span of time on the page says, and how exactly: milliseconds, and those of its smallest unit."""
    sizes = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    parts = re.findall(r"([\d.]+) (ms|s|min|h|d)\b", text)
    assert parts, text
    exact = 1 if len(parts) == 1 and parts[0][1] in ("ms", "s") else sizes[parts[-1][1]]
    return round(sum(float(number) * sizes[unit] for number, unit in parts)), exact
