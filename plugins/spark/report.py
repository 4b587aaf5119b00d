"""The report: one HTML file with plots and tables, which needs neither network nor scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kraftcore import __version__
from kraftcore.errors import LocalError
from kraftcore.plugins.spark.svg import BAD, COLORS, GOOD, STYLE, WARN, Axis, Bar, Plot, columns, lanes, steps
from kraftcore.plugins.spark.tables import Tables

ROWS_MAX = 200
_MINUTE_MS = 60_000
_WORDS = re.compile(r"[^\w.]+")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.6em; } h2 { margin-top: 2.2em; border-bottom: 2px solid #ddd; } h3 { margin: 1.4em 0 .3em; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; width: 100%; } th, td { text-align: left; padding: 3px 8px; }
th { border-bottom: 2px solid #ccc; } td { border-bottom: 1px solid #eee; vertical-align: top; word-break: break-word; }
.note { color: #666; font-size: 13px; } .bad { color: #b3261e; font-weight: 600; } .good { color: #2e7d32; }
@media (prefers-color-scheme: dark) {
  body { background: #181a1b; color: #ddd; } svg text { fill: #bbb; } svg .grid { stroke: #444; }
  td { border-color: #333; } h2 { border-color: #444; }
}
"""


@dataclass(frozen=True)
class Section:
    """A part of a cluster's report: HTML and plots."""

    title: str
    parts: tuple[str | Plot, ...]

    def html(self) -> str:
        """As it stands on the page."""
        parts = (part.inline() if isinstance(part, Plot) else part for part in self.parts)
        return f"<h3>{escape(self.title)}</h3>{''.join(parts)}"


def write_report(
    session: SparkSession, tables: str | Path, target: str | Path, *, pictures: str | Path | None = None
) -> None:
    """Write the report of all clusters.

    Args:
        session: Spark's.
        tables: folder of the tables.
        target: the HTML file; replaced if it is there.
        pictures: folder that gets each plot as a file of its own, ``<cluster>-<plot>.svg``; None: no such files.

    Raises:
        LocalError: the folder holds no tables, or a file cannot be written.
    """
    source = Tables(session, tables)
    source.check()
    clusters = [
        row[0] for row in source.read("bronze_files").select("cluster_id").distinct().orderBy("cluster_id").collect()
    ]
    files: dict[Path, str] = {}
    body = ""
    for cluster_id in clusters:
        sections, span = _cluster(source, cluster_id)
        body += f"<h2>Cluster {escape(cluster_id)}</h2>{''.join(section.html() for section in sections)}"
        if pictures is not None:
            plots = [part for section in sections for part in section.parts if isinstance(part, Plot)]
            for plot in plots:
                name = _WORDS.sub("-", f"{cluster_id}-{plot.title.lower()}")
                while (file := Path(pictures) / f"{name}.svg") in files:  # another cluster of much the same name
                    name += "-2"
                files[file] = plot.picture(f"cluster {cluster_id}, {span}")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>KRaft report</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}{_STYLE}</style></head><body><h1>KRaft report</h1>"
        f'<p class="note">Made by kraftcore {__version__} on {made}. Times are UTC. Point at a bar for details.</p>'
        f"{body}</body></html>\n"
    )
    for file, content in {Path(target): text, **files}.items():
        try:
            if file in files:
                file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{file}: cannot be written: {error.strerror}") from None


def _cluster(source: Tables, cluster_id: str) -> tuple[list[Section], str]:
    # Its sections, and from when to when it is known.
    def rows(name: str, *order: str, where: str = "true") -> list[Any]:
        found = source.read(name).where(F.col("cluster_id") == cluster_id).where(where)
        return found.orderBy(*order).collect()

    logs = rows("gold_logs", "node_id", "log_id")
    sections = [_logs(logs)]
    span = "no log"
    times = [one for log in logs for one in (log.first_time, log.last_time) if one is not None]
    if times:
        axis = Axis(_ms(min(times)), _ms(max(times)))
        span = f"{_text(min(times))} to {_text(max(times))} UTC"
        sections += [
            _leaders(rows("gold_leadership", "epoch"), axis),
            _voters(rows("gold_voter_sets", "offset"), axis),
            _health(source, cluster_id, axis),
            _brokers(rows("gold_broker_history", "broker_id", "from_offset"), axis),
            _rates(rows("gold_batch_stats", "minute"), axis),
        ]
    sections += [
        Section("Replicas that differ", (_table(
            rows("gold_divergence", "offset"),
            ["offset", "node_id_a", "node_id_b", "epoch_a", "epoch_b", "batches_differing", "is_below_committed"],
        ) or '<p class="good">No two logs differ.</p>',)),
        Section("Errors", (_table(
            _unread(source, cluster_id), ["path", "position", "size", "offset", "kind", "reason"]
        ) or '<p class="good">All bytes could be read.</p>',)),
    ]  # fmt: skip
    return [section for section in sections if section.parts], span


def _unread(source: Tables, cluster_id: str) -> list[Any]:
    # What was damaged, without torn ends that were whole later.
    errors = source.read("errors").where(F.col("cluster_id") == cluster_id)
    whole = source.read("bronze_batches").where("is_valid").select("file_id", "position", F.lit("torn").alias("kind"))
    return errors.join(whole, ["file_id", "position", "kind"], "left_anti").orderBy("path", "position").collect()


def _ms(at: datetime) -> float:
    return at.timestamp() * 1000  # PySpark hands out naive times of this machine's zone


def _table(rows: Sequence[Any], names: Sequence[str]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    lines = [
        "<tr>" + "".join(f"<td>{escape(_text(row[name]))}</td>" for name in names) + "</tr>" for row in rows[:ROWS_MAX]
    ]
    more = f'<p class="note">{len(rows) - ROWS_MAX} more rows are in the table.</p>' if len(rows) > ROWS_MAX else ""
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>{more}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _logs(logs: Sequence[Any]) -> Section:
    names = ["node_id", "directory_id", "start_offset", "end_offset", "last_epoch", "batches", "records", "bytes",
             "committed_end", "is_reference"]  # fmt: skip
    best = max((log.end_offset for log in logs), default=0)
    note = ", ".join(f"node {log.node_id}: {best - log.end_offset}" for log in logs)
    lag = f'<p class="note">Records behind the longest log: {escape(note)}.</p>' if logs else ""
    return Section("Logs", ((_table(logs, names) or '<p class="note">Only snapshots were read.</p>') + lag,))


def _leaders(rows: Sequence[Any], axis: Axis) -> Section:
    title = "Leaders and epochs"
    alive = [row for row in rows if row.status != "truncated"]
    if not alive:
        return Section(title, ())
    ids = sorted({row.leader_id for row in alive})
    bars = [
        Bar(
            f"node {row.leader_id}",
            _ms(row.start_time),
            axis.end if row.end_time is None else _ms(row.end_time),
            COLORS[row.epoch % len(COLORS)],
            f"epoch {row.epoch}: leader {row.leader_id} from offset {row.epoch_start_offset}; {row.reason}",
            f"epoch {row.epoch}",
        )
        for row in alive
    ]
    plot = lanes("Leaders by epoch", bars, axis, order=[f"node {number}" for number in ids])
    names = ["epoch", "leader_id", "epoch_start_offset", "start_time", "silent_ms", "reason", "status"]
    return Section(title, (plot, _table(rows, names)))


def _voters(rows: Sequence[Any], axis: Axis) -> Section:
    title = "Voter sets"
    alive = [row for row in rows if row.status != "truncated"]
    bars = []
    for i, row in enumerate(alive):
        start = axis.start if row.offset < 0 else _ms(row.timestamp)
        end = _ms(alive[i + 1].timestamp) if i + 1 < len(alive) else axis.end
        color = GOOD if row.status == "committed" else WARN
        bars += [
            Bar(
                f"voter {number}",
                start,
                end,
                color,
                f"offset {row.offset}: voters {_text(row.voter_ids)} ({row.status})",
            )
            for number in row.voter_ids
        ]
    order = [f"voter {number}" for number in sorted({number for row in alive for number in row.voter_ids})]
    if not bars:
        return Section(title, ())
    names = ["offset", "timestamp", "voter_ids", "added", "removed", "source", "status"]
    key = (("committed", GOOD), ("not committed", WARN))
    return Section(title, (lanes("Voters", bars, axis, order=order, key=key), _table(rows, names)))


def _health(source: Tables, cluster_id: str, axis: Axis) -> Section:
    states = source.read("gold_partition_history").where(F.col("cluster_id") == cluster_id)
    series = []
    for name, flag, color in (
        ("under-replicated", "is_under_replicated", WARN),
        ("under min ISR", "is_under_min_isr", COLORS[1]),
        ("offline", "is_offline", BAD),
    ):
        series.append((name, color, _counted(states.where(flag), axis)))
    worst = (
        states.groupBy("topic", "partition")
        .agg(
            F.count("*").alias("states"),
            F.sum(F.expr("int(is_leader_change and change = 'changed')")).alias("elections"),
            *(
                F.sum(F.when(F.col(flag), F.col("duration_ms")).otherwise(0)).alias(name)
                for flag, name in (
                    ("is_offline", "offline_ms"), ("is_under_min_isr", "under_min_isr_ms"),
                    ("is_under_replicated", "under_replicated_ms"),
                )
            ),
        )
        .orderBy(F.desc("offline_ms"), F.desc("under_min_isr_ms"), F.desc("under_replicated_ms"), "topic", "partition")
        .limit(20)
        .collect()
    )  # fmt: skip
    if not worst:
        return Section("Partitions", ())
    names = ["topic", "partition", "offline_ms", "under_min_isr_ms", "under_replicated_ms", "elections", "states"]
    return Section("Partitions", (steps("Partitions in trouble", series, axis), _table(worst, names)))


def _counted(states: DataFrame, axis: Axis) -> list[tuple[float, float]]:
    # How many states hold at a time, as steps.
    ups = states.select(F.col("from_time").alias("at"), F.lit(1).alias("step"))
    downs = states.where("to_time is not null").select(F.col("to_time").alias("at"), F.lit(-1).alias("step"))
    points = [(axis.start, 0.0)]
    level = 0.0
    for row in ups.unionByName(downs).groupBy("at").agg(F.sum("step").alias("step")).orderBy("at").collect():
        level += row.step
        points.append((_ms(row["at"]), level))
    return points


def _brokers(rows: Sequence[Any], axis: Axis) -> Section:
    if not rows:
        return Section("Brokers", ())
    bars = []
    for row in rows:
        down = row.in_controlled_shutdown
        color, what = (WARN, "in controlled shutdown") if down else (BAD, "fenced") if row.fenced else (GOOD, "active")
        end = axis.end if row.to_time is None else _ms(row.to_time)
        title = f"broker {row.broker_id}: {what} since offset {row.from_offset} ({row.event}), epoch {row.broker_epoch}"
        bars.append(Bar(f"broker {row.broker_id}", _ms(row.from_time), end, color, title))
    flaps: dict[int, list[int]] = {}
    for row in rows:
        count = flaps.setdefault(row.broker_id, [0, 0, 0])
        count[0] += row.event == "registered"
        count[1] += row.event == "fenced"
        count[2] += row.duration_ms or 0 if row.fenced else 0
    lines = "".join(
        f"<tr><td>{number}</td><td>{one[0]}</td><td>{one[1]}</td><td>{one[2]}</td></tr>"
        for number, one in flaps.items()
    )
    head = "<tr><th>broker</th><th>registrations</th><th>fencings</th><th>fenced ms</th></tr>"
    key = (("active", GOOD), ("in controlled shutdown", WARN), ("fenced", BAD))
    plot = lanes("Broker availability", bars, axis, key=key)
    return Section("Brokers", (plot, f"<table>{head}{lines}</table>"))


def _rates(rows: Sequence[Any], axis: Axis) -> Section:
    minutes: dict[datetime, list[Any]] = {}  # of several epochs, where the leader changed
    for row in rows:
        minutes.setdefault(row.minute, []).append(row)
    plots: list[tuple[str, Callable[[list[Any]], float]]] = [
        ("Records a minute", lambda found: sum(row.records for row in found)),
        ("Longest pause between batches, ms", lambda found: max(row.pause_ms_max or 0 for row in found)),
    ]
    parts: list[str | Plot] = []
    for title, value in plots:
        values = []
        for minute, found in minutes.items():
            epochs = ", ".join(str(row.epoch) for row in found)
            text = f"{_text(minute)}: {value(found):g}, epoch {epochs}"
            values.append((_ms(minute), _ms(minute) + _MINUTE_MS, value(found), text))
        parts += [f'<p class="note">{title}</p>', columns(title, values, axis)]
    return Section("Rates", tuple(parts))
