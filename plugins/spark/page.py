"""The report's page: its style, the script that draws and zooms the plots, and the HTML elements of figures.

Every figure names its question (``data-query``), row (``data-row``) and column (``data-column``), so that it can be
compared with the answer of ``kraftcore spark query``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from kraftcore.plugins.spark.answers import QUESTIONS, Answer
from kraftcore.plugins.spark.charts import Chart, Json, columnar, milliseconds, script
from kraftcore.plugins.vega import CONFIG, NOTICE

STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #5f6368; --ground: #fff; --line: #d0d4d8; --faint: #eceef0;
  --bad: #b3261e; --good: #2e7d32; }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --soft: #a0a5aa; --ground: #181a1b; --line: #4a4e52;
  --faint: #2c2f31; --bad: #ff8a80; --good: #81c784; } }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1400px; margin: 2em auto; padding: 0 1em; color: var(--ink);
  background: var(--ground); }
h1 { font-size: 1.6em; } h2 { margin-top: 2.2em; border-bottom: 2px solid var(--line); overflow-wrap: anywhere; }
h3 { margin: 1.6em 0 .3em; }
figure { margin: .6em 0; } figcaption, .note, summary { color: var(--soft); font-size: 13px; }
.plot { width: 100%; min-height: 60px; } .plot svg { display: block; max-width: 100%; }
.rows { overflow-x: auto; } .rows:focus-visible { outline: 2px solid var(--soft); }
table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; padding: 3px 9px; white-space: nowrap; }
th { border-bottom: 2px solid var(--line); white-space: normal; vertical-align: bottom; }
td { border-bottom: 1px solid var(--faint); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.words { white-space: normal; min-width: 9em; }
@media (max-width: 700px) { table { font-size: 12px; } th, td { padding: 3px 4px; } th, td { white-space: normal; }
  td.number { white-space: nowrap; } td.words { min-width: 5em; } }
details { margin: .2em 0 .8em; } .fold > summary { cursor: pointer; }
.fold h2 { display: inline-block; width: 95%; margin: .6em 0; } .log { float: right; margin-left: 1em; }
pre { overflow-x: auto; padding: .6em; background: var(--faint); font-size: 12px; }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); }
.zoom { position: sticky; top: 0; z-index: 2; background: var(--ground); padding: .3em 0; font-size: 13px; }
.zoom button { font: inherit; padding: .1em .7em; }
"""
_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))
# A plot is drawn when it comes into view; all plots of one cluster show the same span of time.
_CODE = r"""
(() => {
  const page = JSON.parse(document.getElementById("report-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shown = new Map();
  window.kraftReport = {page, shown};
  const spans = {};
  function config() {
    if (!dark.matches) return page.config;
    const ink = "#c8ccd0", line = "#55595d";
    return {...page.config, title: {color: ink}, axis: {...page.config.axis, labelColor: ink, titleColor: ink,
      domainColor: line, tickColor: line, gridColor: "#3a3d40"}, legend: {...page.config.legend, labelColor: ink}};
  }
  function follow(cluster, span, from) {
    spans[cluster] = span;
    for (const [element, one] of shown) {
      if (element === from || one.cluster !== cluster) continue;
      const held = one.view.signal(one.signal);
      if (String(held) === String(span)) continue;
      one.view.signal(one.signal, span).runAsync();
    }
  }
  // Zero and what is below it have a place on this scale, too: it is linear up to one.
  function logarithmic(spec, [least, most]) {
    const powers = [0];
    for (let one = 1; one <= Math.max(-least, most); one *= 10) powers.push(one, -one);
    const values = powers.filter(one => one >= least && one <= most);
    const copy = structuredClone(spec);
    for (const {encoding: {y} = {}} of [copy, ...copy.layer]) {
      if (y && y.type === "quantitative") Object.assign(y, {scale: {...y.scale, type: "symlog"},
        axis: {...y.axis, values}});
    }
    return copy;
  }
  function within(spec, span) {
    const copy = structuredClone(spec);
    const dates = [...new Set(span.map(one => new Date(one).toISOString().slice(0, 10)))].join(" and ");
    for (const {encoding: {x} = {}} of [copy, ...copy.layer]) if (x) {
      x.scale.domain = span;
      x.axis.title = `time (UTC), ${dates}`;
    }
    return copy;
  }
  async function draw(element) {
    const chart = page.charts[element.dataset.chart], {columns, rows} = page.rows[chart.cluster][chart.query];
    const old = shown.get(element), log = element.querySelector(".log input");
    const linear = within(page.specs[chart.spec], page.spans[chart.cluster]);
    const isLog = old && log && log.checked;
    const drawn = isLog ? logarithmic(linear, old.view.scale("y").domain()) : linear;
    if (old) old.result.finalize();
    const spec = {...drawn, width: "container", autosize: {type: "fit-x", contains: "padding"},
      background: "transparent", datasets: {[chart.query]: rows.map(
        row => Object.fromEntries(row.map((value, place) => [columns[place], value])))}};
    const result = await vegaEmbed(element.querySelector(".plot"), spec, {actions: false, renderer: "svg",
      config: config(), tooltip: {theme: dark.matches ? "dark" : "light"}});
    const one = {result, view: result.view, cluster: chart.cluster, signal: "zoom_" + chart.x};
    shown.set(element, one);
    element.dataset.scale = isLog ? "log" : "linear";
    if (spans[chart.cluster]) await result.view.signal(one.signal, spans[chart.cluster]).runAsync();
    result.view.addSignalListener(one.signal, (_, span) => follow(chart.cluster, span, element));
    element.dataset.drawn = "yes";
  }
  const watcher = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
  }, {rootMargin: "800px"});
  const plots = document.querySelectorAll("figure[data-chart]");
  plots.forEach(element => watcher.observe(element));
  plots.forEach(element => {
    const log = element.querySelector(".log input");
    if (log) log.addEventListener("change", () => shown.has(element) && draw(element));
  });
  dark.addEventListener("change", () => [...shown.keys()].forEach(draw));
  addEventListener("beforeprint", () => plots.forEach(
    element => shown.has(element) || element.closest("details.fold:not([open])") || draw(element)));
  // The questions stand in the page once; whose they are is put in when one is looked at.
  document.addEventListener("toggle", event => {
    const details = event.target;
    if (!details.matches("details.sql")) return;
    const {cluster} = details.closest("[data-cluster]").dataset;
    const name = cluster.replaceAll("\\", "\\\\").replaceAll("'", "\\'");
    details.querySelector("pre").textContent =
      page.questions[details.dataset.query].replaceAll("{of}", () => `cluster_id = '${name}'`);
  }, true);
  function unfold() {
    const found = document.getElementById(location.hash.slice(1));
    const folded = found && found.querySelector("details.fold");
    if (folded) { folded.open = true; found.scrollIntoView(); }
  }
  addEventListener("hashchange", unfold);
  unfold();
  for (const bar of document.querySelectorAll(".zoom")) {
    const whole = page.spans[bar.dataset.of];
    bar.addEventListener("click", event => {
      const kind = event.target.dataset.zoom;
      if (!kind) return;
      const [from, to] = (spans[bar.dataset.of] || whole).map(Number), width = to - from, step = width / 4;
      const span = {in: [from + step, to - step], out: [from - width / 2, to + width / 2],
        back: [from - step, to - step], on: [from + step, to + step], all: whole}[kind];
      follow(bar.dataset.of, span, null);
    });
  }
})();
"""
# The page may load nothing. Vega makes functions of its expressions, which takes `unsafe-eval`.
_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:"


def text_of(name: str, value: Any) -> str:
    """A value as text of the page; ``name`` is its column, and columns that end in ``_ms`` are durations in ms."""
    if value is None:
        return ""
    if name.endswith("_ms"):
        return duration(int(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def duration(ms: int) -> str:
    """A span of time in words: ``340 ms``, ``12.7 s``, ``3 min 5 s``, ``2 h 10 min``, ``4 d 3 h``."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:g} s"
    seconds = ms // 1000
    unit, size, lower, below = next(one for one in _UNITS if seconds >= one[1])
    rest = seconds % size // below
    return f"{seconds // size} {unit}" + (f" {rest} {lower}" if rest else "")


def figure(answer: Answer, column: str, row: int = 0, *, bad: bool = False) -> str:
    """One figure of an answer, for use in a sentence; ``bad``: it is red unless it is zero."""
    value = answer.rows[row][column]
    kind = ' class="bad"' if bad and value else ""
    return (
        f'<data{kind} data-query="{answer.name}" data-row="{row}" data-column="{column}" '
        f'value="{escape(_raw(value))}">{escape(text_of(column, value))}</data>'
    )


def table(answer: Answer, headings: Mapping[str, str], *, words: frozenset[str] = frozenset()) -> str:
    """The rows of an answer as a table.

    Args:
        answer: the answer.
        headings: headings by column; other columns are not shown.
        words: columns of long text, which may be broken into lines.
    """

    def kind(name: str) -> str:
        if name in words:
            return ' class="words"'
        values = [row[name] for row in answer.rows if row[name] is not None]
        numeric = values and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
        return ' class="number"' if numeric else ""

    kinds = {name: kind(name) for name in headings}
    head = "".join(
        f'<th{kinds[name]} data-column="{name}">{escape(heading)}</th>' for name, heading in headings.items()
    )
    lines = "".join(
        "<tr>" + "".join(_cell(kinds[name], _raw(row[name]), text_of(name, row[name])) for name in headings) + "</tr>"
        for row in answer.rows
    )
    return (
        f'<div class="rows" tabindex="0"><table data-query="{answer.name}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _cell(kind: str, raw: str, text: str) -> str:
    # The value is an attribute of its own unless it is the text.
    same = raw == (text if "number" in kind else json.dumps(text))
    value = "" if same else f' data-value="{escape(raw)}"'
    return f"<td{kind}{value}>{escape(text)}</td>"


def left_out(answer: Answer, what: str, which: str = "") -> str:
    """A sentence that counts the rows of an answer: shown, total and left out.

    Args:
        answer: the answer, with a column ``total``.
        what: noun in the plural for the rows.
        which: names the rows that are shown if not all are, as "The latest".
    """
    total, rest = figure(answer, "total"), answer.left_out
    if not rest:
        return f"{what[0].upper()}{what[1:]}: {total}, all shown."
    shown = f'<data data-shown="{answer.name}">{len(answer.rows)}</data>'
    return f'{which} {shown} of {total} {what}; left out: <data data-left-out="{answer.name}">{rest}</data>.'.lstrip()


def sql(answer: Answer) -> str:
    """A folded element for an answer's SQL; the script inserts the SQL when it is unfolded."""
    return (
        f'<details class="sql" data-query="{answer.name}"><summary>SQL of these figures</summary><pre></pre></details>'
    )


def plot(number: int, chart: Chart, caption: str) -> str:
    """An element that a plot is drawn into, with title and caption; ``caption`` is HTML."""
    switch = '<label class="log"><input type="checkbox"> logarithmic</label>' if chart.has_amounts else ""
    return (
        f'<figure data-chart="{number}" data-query="{chart.answer.name}"><figcaption>{switch}'
        f'<b>{escape(chart.title)}</b>{". " if caption else ""}{caption}</figcaption><div class="plot" role="img" '
        f'aria-label="{escape(chart.title)}"></div></figure>'
    )


def fold(number: int, cluster: str, body: str, *, is_open: bool) -> str:
    """A cluster's section of the page, which can be folded; ``body`` is HTML."""
    return (
        f'<section class="cluster" id="cluster-{number}" data-cluster="{escape(cluster)}">'
        f'<details class="fold"{" open" if is_open else ""}><summary><h2>Cluster {escape(cluster)}</h2></summary>'
        f"{body}</details></section>"
    )


def zoom_bar(cluster: str) -> str:
    """Buttons that zoom all plots of a cluster."""
    buttons = (("in", "Zoom in"), ("out", "Zoom out"), ("back", "Earlier"), ("on", "Later"), ("all", "Whole log"))
    return f'<div class="zoom" data-of="{escape(cluster)}">' + " ".join(
        f'<button type="button" data-zoom="{kind}">{text}</button>' for kind, text in buttons
    ) + " Or drag a plot, and turn the wheel with Ctrl held down.</div>"  # fmt: skip


def document(body: str, charts: list[tuple[str, Chart]], spans: Mapping[str, tuple[datetime, datetime]]) -> str:
    """The whole page.

    Args:
        body: HTML of the body, without scripts.
        charts: (cluster id, plot) in the order of the plots' numbers.
        spans: by cluster, first and last moment of its plots.
    """
    # Rows and specifications that several plots share are in the page once.
    rows: dict[str, dict[str, Json]] = {}
    specs: dict[str, int] = {}
    drawn = []
    for cluster, chart in charts:
        query = chart.answer.name
        if query not in rows.setdefault(cluster, {}):
            rows[cluster][query] = columnar(chart.answer.rows)
        number = specs.setdefault(_compact(chart.spec), len(specs))
        drawn.append({"cluster": cluster, "query": query, "x": chart.x, "spec": number})
    data = {
        "config": CONFIG,
        "spans": {name: milliseconds(span) for name, span in spans.items()},
        "questions": dict(QUESTIONS),
        "charts": drawn,
        "rows": rows,
        "specs": [json.loads(one) for one in specs],
    }
    written = _compact(data).replace("<", "\\u003c")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>KRaft report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">'
        f"<style>{STYLE}</style></head><body>{body}"
        '<noscript><p class="bad">Plots and SQL need scripts. The tables do not.</p></noscript>'
        f'<script type="application/json" id="report-data">{written}</script>'
        f"<!-- {NOTICE} --><script>{script()}</script><script>{_CODE}</script></body></html>\n"
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _raw(value: object) -> str:
    # JSON with moments in milliseconds since 1970.
    return json.dumps(value, default=lambda one: round(one.timestamp() * 1000))
