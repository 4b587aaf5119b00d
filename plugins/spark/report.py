"""The report: one HTML file with incidents, the worst first, and plots that can be zoomed without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from pyspark.sql import SparkSession

from kraftcore import __version__
from kraftcore.errors import LocalError
from kraftcore.plugins.spark import charts, page
from kraftcore.plugins.spark.answers import QUESTIONS, Answer, Answers, ask, question
from kraftcore.plugins.spark.charts import Chart
from kraftcore.plugins.spark.engines import Engine, engine_for
from kraftcore.plugins.spark.page import figure, left_out, sql, table
from kraftcore.plugins.spark.state import unknown_cluster
from kraftcore.plugins.spark.tables import Starter, Tables

_WORDS = re.compile(r"[^\w.]+")
_NO_INCIDENT = (99, 0)
_LONGEST = "Of each first those in trouble, the longest before others:"
OPEN_MAX = 5
"""The number of clusters with incidents that are unfolded."""
CLUSTERS_MAX = 100
"""The most clusters on the page, about 6 MB; of more clusters, the worst are shown."""
_STILL = {"offline": "partitions offline", "under_min_isr": "under min ISR", "fenced": "brokers fenced"}
_ELECTIONS = {
    "epoch": "epoch", "leader_id": "leader", "previous_leader_id": "before", "epoch_start_offset": "from offset",
    "start_time": "since (UTC)", "silent_ms": "nothing written for", "failed_elections": "failed elections",
    "reason": "reason", "status": "status",
}  # fmt: skip
_VOTERS = {
    "offset": "offset", "timestamp": "since (UTC)", "voter_ids": "voters", "added": "added", "removed": "removed",
    "source": "source", "status": "status",
}  # fmt: skip
_INCIDENTS = {
    "what": "what", "subject": "who", "from_time": "since (UTC)", "duration_ms": "for", "from_offset": "from offset",
    "to_offset": "to offset", "things": "how many",
}  # fmt: skip
_MEANINGS = {
    "unclean election": "the leader was in neither ISR nor ELR, so records may be lost; the time is until the "
    "partition's next change",
    "KIP-841 violation": "a broker came into an ISR or to lead while it was fenced or in controlled shutdown",
    "no leader of the quorum": "the time is that in which nobody wrote, between two leaders",
    "partitions offline": "they had no leader",
}
"""Explanations of kinds of incidents whose names do not suffice."""
_WORST = {
    "topic": "topic", "partition": "partition", "offline_ms": "offline", "under_min_isr_ms": "under min ISR",
    "under_replicated_ms": "under-replicated", "leader_changes": "leader changes", "states": "states",
    "first_offset": "first at offset", "last_offset": "last at offset",
}  # fmt: skip
_UNCLEAN = {
    "from_offset": "offset", "from_time": "time (UTC)", "topic": "topic", "partition": "partition",
    "previous_leader": "leader before", "leader": "leader", "previous_isr": "ISR before", "previous_elr": "ELR before",
}  # fmt: skip
_KIP_841 = {
    "from_offset": "offset", "from_time": "time (UTC)", "topic": "topic", "partition": "partition",
    "broker_id": "broker", "place": "what it is there", "broker_is": "the broker is", "broker_offset": "since offset",
    "isr": "ISR",
}  # fmt: skip
_ELR = {
    "topic": "topic", "partition": "partition", "with_elr_ms": "had an ELR for",
    "with_last_known_ms": "last known ELR for", "elr_at_end": "ELR at the end",
    "last_known_at_end": "last known ELR at the end", "first_offset": "first at offset",
}  # fmt: skip
_FLAPS = {
    "broker_id": "broker", "registrations": "registrations", "fencings": "fencings", "fenced_ms": "fenced for",
    "longest_ms": "longest", "is_fenced": "fenced at the end", "last_offset": "last changed at offset",
}  # fmt: skip
_LOGS = {
    "node_id": "node", "directory_id": "directory", "start_offset": "from offset", "end_offset": "to offset",
    "records_behind": "records behind", "last_epoch": "last epoch", "batches": "batches", "records": "records",
    "bytes": "bytes", "committed_end": "committed to", "is_reference": "tells the log", "first_time": "from (UTC)",
    "last_time": "to (UTC)",
}  # fmt: skip
_DIVERGENCE = {
    "offset": "first offset", "node_id_a": "node", "epoch_a": "its epoch", "node_id_b": "other node",
    "epoch_b": "its epoch", "batches_differing": "batches", "committed_end": "committed to",
    "is_overridden_end": "one is an end that was overridden", "is_below_committed": "below what is committed",
}  # fmt: skip
_ERRORS = {
    "path": "file", "position": "byte", "size": "bytes", "offset": "offset", "kind": "kind", "reason": "reason",
}  # fmt: skip


@dataclass
class Cluster:
    """One cluster's section of the page, while it is made."""

    cluster_id: str
    answers: Mapping[str, Answer]
    span: tuple[datetime, datetime] | None
    first_plot: int
    plots: list[Chart] = field(default_factory=list)

    def show(self, chart: Chart, caption: str = "") -> str:
        """The HTML of a plot; empty if the plot has no rows."""
        if not chart.answer.rows:
            return ""
        self.plots.append(chart)
        return page.plot(self.first_plot + len(self.plots) - 1, chart, caption)

    def rows(
        self, name: str, headings: Mapping[str, str], what: tuple[str, str], none: str, words: tuple[str, ...] = ()
    ) -> str:
        """A table with caption and SQL; ``none`` if it has no rows. ``what``: arguments of ``left_out``."""
        answer = self.answers[name]
        if not answer.rows:
            return f'<p class="good">{none}</p>{sql(answer)}'
        counted = f'<p class="note">{left_out(answer, *what)}</p>'
        return table(answer, headings, words=frozenset(words)) + counted + sql(answer)

    @property
    def has_incident(self) -> bool:
        """Whether the cluster had an incident."""
        return bool(self.answers["incidents"].rows)


def write_report(
    session: SparkSession | Starter,
    tables: str | Path,
    target: str | Path,
    *,
    pictures: str | Path | None = None,
    cluster_ids: Sequence[str] = (),
    at: datetime | None = None,
) -> None:
    """Write the report of all clusters, the one with the worst incident first; of more than 100, the worst 100.

    Args:
        session: Spark's session, or a function that starts it. Local tables of up to 256 MiB take no Spark.
        tables: folder of the tables.
        target: the HTML file; an existing file is replaced.
        pictures: folder for each plot as a file ``<cluster>-<plot>.svg``; None: no such files.
        cluster_ids: the clusters; empty: all.
        at: the moment whose tables are reported, in UTC if it has no zone; None: now.

    Raises:
        LocalError: the folder holds no tables, none of that moment, or no such cluster; or a file cannot be written.
    """
    source = Tables(session, tables, at=at)
    source.check()
    ids = source.clusters()
    if not ids:
        raise LocalError(f"{source.path} holds no cluster yet: no run has ended there")
    for one in cluster_ids:
        if one not in ids:
            raise LocalError(unknown_cluster(source.path, one, ids))
    with engine_for(source, " ".join(QUESTIONS.values())) as engine:
        found, ranked = _asked(engine, list(dict.fromkeys(cluster_ids)) or ids)
    clusters, body = _clusters(found, ranked)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    top = (
        f'<h1>KRaft report</h1><p class="note made">Made by kraftcore {__version__} on {made}. Times are UTC. '
        "Each figure is what the SQL beside it answers: <code>kraftcore spark query</code>.</p>"
    )
    plots = [(cluster.cluster_id, chart) for cluster in clusters for chart in cluster.plots]
    spans = {cluster.cluster_id: cluster.span for cluster in clusters if cluster.span is not None}
    files = {Path(target): page.document(top + body, plots, spans)}
    if pictures is not None:
        files |= _pictures(clusters, Path(pictures))
    for file, content in files.items():
        try:
            if file != Path(target):
                file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{file}: cannot be written: {error.strerror}") from None


@dataclass(frozen=True)
class Ranked:
    """Clusters in the order of the page.

    Attributes:
        ids: the clusters shown, the worst first.
        total: number of all clusters.
        with_incidents: number of all clusters with incidents.
    """

    ids: list[str]
    total: int
    with_incidents: int

    @property
    def left_out(self) -> int:
        """Number of clusters that are not shown."""
        return self.total - len(self.ids)


def _asked(engine: Engine, ids: Sequence[str]) -> tuple[Answers, Ranked]:
    # The answers about the clusters that are shown. In a large fleet the incidents choose these clusters.
    is_large = len(ids) > CLUSTERS_MAX
    found = ask(engine, ["incidents"] if is_large else QUESTIONS, ids)
    incidents = found["incidents"]

    def worst(cluster_id: str) -> tuple[int, int, str]:
        rows = incidents.get(cluster_id)
        return (*((rows[0]["severity"], -rows[0]["total"]) if rows else _NO_INCIDENT), cluster_id)

    ranked = Ranked(sorted(ids, key=worst)[:CLUSTERS_MAX], len(ids), len(incidents))
    if is_large:
        found |= ask(engine, [name for name in QUESTIONS if name not in found], ranked.ids)
    return found, ranked


def _clusters(found: Answers, ranked: Ranked) -> tuple[list[Cluster], str]:
    # The clusters in the order of the page, and the HTML of their sections.
    clusters = []
    for cluster_id in ranked.ids:
        answers = {
            name: Answer(name, question(name, cluster_id), tuple(rows.get(cluster_id, ())))
            for name, rows in found.items()
        }
        now = answers["now"].rows
        span = (now[0]["first_time"], now[0]["last_time"]) if now else None
        clusters.append(Cluster(cluster_id, answers, span, 0))
    body, plots = "", 0
    for number, cluster in enumerate(clusters):
        cluster.first_plot = plots
        parts = "".join(section(cluster) for section in _SECTIONS)
        plots += len(cluster.plots)
        bar = page.zoom_bar(cluster.cluster_id) if cluster.plots else ""
        is_open = (number < OPEN_MAX and cluster.has_incident) or len(clusters) == 1
        body += page.fold(number, cluster.cluster_id, f"{_summary(cluster)}{bar}{parts}", is_open=is_open)
    return clusters, (_contents(clusters, ranked) if len(clusters) > 1 else "") + body


def _contents(clusters: list[Cluster], ranked: Ranked) -> str:
    # A line for each cluster; clusters without an incident are folded.
    lines = [
        f'<li data-cluster="{escape(cluster.cluster_id)}">'
        f'<a href="#cluster-{number}">{escape(cluster.cluster_id)}</a>: {_in_short(cluster)}</li>'
        for number, cluster in enumerate(clusters)
    ]
    bad = sum(cluster.has_incident for cluster in clusters)
    count = '<data data-count="{}">{}</data>'.format
    rest = (
        f" The worst {count('shown', len(clusters))} are shown, {count('left-out', ranked.left_out)} are left out, "
        f"{count('left-out-incidents', ranked.with_incidents - bad)} of those with incidents: "
        "<code>kraftcore spark report --cluster ID</code> shows a cluster whichever it is."
        if ranked.left_out
        else ""
    )
    text = (
        f"<nav><h2>Clusters, worst first</h2><p>{count('clusters', ranked.total)} clusters, "
        f"{count('incidents', ranked.with_incidents)} of them with incidents.{rest}</p><ul>{''.join(lines[:bad])}</ul>"
    )
    if bad < len(clusters):
        of_these = " of those shown" if ranked.left_out else ""
        text += (
            f"<details><summary>{count('quiet', len(clusters) - bad)}{of_these} without an incident</summary>"
            f"<ul>{''.join(lines[bad:])}</ul></details>"
        )
    return f"{text}</nav>"


def _in_short(cluster: Cluster) -> str:
    # The number of incidents, the worst, and what was wrong at the end of the log.
    rows, now = cluster.answers["incidents"], cluster.answers["now"]
    text = (
        f"incidents: {figure(rows, 'total', bad=True)}, the worst: {figure(rows, 'what')}"
        if rows.rows
        else "no incidents"
    )
    is_known = not now.rows or now.rows[0]["is_known"]
    if not is_known:
        text += f"; the state from offset {figure(now, 'unknown_from')} on is not known"
    for column, what in _STILL.items():
        if is_known and now.rows and now.rows[0][column]:
            text += f"; {what} at the end: {figure(now, column, bad=True)}"
    return text


def _pictures(clusters: list[Cluster], folder: Path) -> dict[Path, str]:
    files: dict[Path, str] = {}
    for cluster in clusters:
        if cluster.span is None:
            continue
        first, last = (page.text_of("time", one) for one in cluster.span)
        for chart in cluster.plots:
            name = _WORDS.sub("-", f"{cluster.cluster_id}-{chart.title.lower()}")
            while (
                file := folder / f"{name}.svg"
            ) in files:  # two names may differ only in signs that a file name lacks
                name += "-2"
            files[file] = chart.picture(f"cluster {cluster.cluster_id}, {first} to {last} UTC")
    return files


def _summary(cluster: Cluster) -> str:
    now = cluster.answers["now"]
    text = '<p class="note">Only snapshots were read.</p>'
    if now.rows:
        row = now.rows[0]
        leader = (
            f"node {figure(now, 'leader_id')} leads, epoch {figure(now, 'epoch')}"
            if row["leader_id"] is not None
            else "no leader is known"
        )
        voters = f", voters {figure(now, 'voter_ids')}" if row["voter_ids"] is not None else ""
        text = (
            f"<p>The log reaches from {figure(now, 'first_time')} to {figure(now, 'last_time')} "
            f"({figure(now, 'span_ms')}), offset {figure(now, 'end_offset')}. At its end {leader}{voters}. "
            f"{_state_at_end(now)}</p>"
        )
    rows = cluster.rows(
        "incidents", _INCIDENTS, ("incidents", "The worst"), "Nothing went wrong in what was read.", ("what", "subject")
    )
    kinds = {row["what"] for row in cluster.answers["incidents"].rows}
    meanings = "".join(f" {kind[0].upper()}{kind[1:]}: {text}." for kind, text in _MEANINGS.items() if kind in kinds)
    note = (
        '<p class="note">Offsets are those of the records that began and ended an incident; none: it lasts.'
        f"{meanings}</p>"
    )
    return f"<h3>What went wrong, worst first</h3>{rows}{note if kinds else ''}<h3>How it ended</h3>{text}{sql(now)}"


def _state_at_end(now: Answer) -> str:
    row, text = now.rows[0], ""
    if not row["is_known"]:
        text = (
            '<strong class="bad">The state at the end is not known: the log lacks what came before, and there is no '
            f"snapshot after offset {figure(now, 'unknown_from')}.</strong> "
        )
        if row["known_end"] is None:
            return text
        text += f"It was last known before offset {figure(now, 'known_end')}. There: "
    return (
        f"{text}{figure(now, 'brokers')} brokers, {figure(now, 'fenced', bad=True)} fenced and "
        f"{figure(now, 'shutting_down')} in controlled shutdown; {figure(now, 'partitions')} partitions, "
        f"{figure(now, 'offline', bad=True)} offline, {figure(now, 'under_min_isr', bad=True)} under min ISR, "
        f"{figure(now, 'under_replicated', bad=True)} under-replicated, {figure(now, 'with_elr')} with an ELR."
    )


def _quorum(cluster: Cluster) -> str:
    leaders, elections = cluster.answers["leaders"], cluster.answers["elections"]
    voters, parts = cluster.answers["voters"], ""
    if cluster.span is not None and leaders.rows:
        tooltip = {"label": "epoch", "lane": "leader", "epoch_start_offset": "from offset", "from_time": "since",
                   "end_time": "until", "reason": "reason", "failed_elections": "failed elections before"}  # fmt: skip
        chart = charts.lanes("Leaders by epoch", leaders, cluster.span, tooltip, color="leader_id", label="label")
        parts += cluster.show(chart, left_out(leaders, "epochs", "The latest")) + sql(leaders)
    if elections.rows:
        parts += (
            f"<p>Changes of the leader: {figure(elections, 'total_changes')}. Failed elections, which are epochs that "
            f"nobody won: {figure(elections, 'total_failed', bad=True)}.</p>"
        )
    parts += cluster.rows("elections", _ELECTIONS, ("epochs", "The latest"), "No leader is known.", ("reason",))
    if cluster.span is not None and voters.rows:
        tooltip = {
            "lane": "voter",
            "voter_ids": "voters",
            "offset": "from offset",
            "from_time": "since",
            "status": "status",
        }
        chart = charts.lanes("Voters", _by_lane(voters), cluster.span, tooltip, color="status")
        parts += cluster.show(chart, left_out(voters, "spans of voters", "The latest")) + sql(voters)
    parts += cluster.rows("voter_changes", _VOTERS, ("voter sets", "The latest"), "No voter set is known.")
    return f"<h3>Leaders, elections and voters</h3>{parts}"


def _by_lane(answer: Answer) -> Answer:
    # Sorted by lane, for the answer is sorted by time.
    return Answer(answer.name, answer.sql, tuple(sorted(answer.rows, key=lambda row: (len(row["lane"]), row["lane"]))))


def _partitions(cluster: Cluster) -> str:
    worst, states, parts = cluster.answers["worst"], cluster.answers["worst_states"], ""
    if cluster.span is not None:
        trouble = cluster.answers["trouble"]
        chart = charts.steps(
            "Partitions in trouble", trouble, cluster.span, "partitions", "partitions", color="state"
        )  # fmt: skip
        parts += cluster.show(chart, "All partitions count, one in several states in each of them.") + sql(trouble)
        if worst.rows:
            tooltip = {"lane": "partition", "state": "state", "from_offset": "from offset", "from_time": "since",
                       "end_time": "until", "leader": "leader", "isr": "ISR", "eligible_leader_replicas": "ELR",
                       "change": "by"}  # fmt: skip
            caption = (
                f"{left_out(worst, 'partitions that were ever in trouble', 'The worst')} "
                f"{figure(worst, 'total_offline', bad=True)} were offline. "
                f"{left_out(states, 'states of those', _LONGEST)}"
            )
            chart = charts.lanes("Worst partitions", states, cluster.span, tooltip, color="state")
            parts += cluster.show(chart, caption) + sql(states)
    none = "No partition was offline, under min ISR or under-replicated."
    parts += cluster.rows("worst", _WORST, ("partitions that were ever in trouble", "The worst"), none)
    return f"<h3>Partitions</h3>{parts}"


def _isr(cluster: Cluster) -> str:
    parts, changes = "", cluster.answers["isr_changes"]
    if cluster.span is not None and changes.rows:
        chart = charts.columns(
            "ISR changes", changes, cluster.span, "records", ("grown", "ISR grew"), ("shrunk", "ISR shrank")
        )
        wide = figure(changes, "minutes")
        parts += cluster.show(chart, f"Records that changed an ISR, in columns of {wide} min.") + sql(changes)
    parts += cluster.rows(
        "elr",
        _ELR,
        ("partitions that had an ELR or a last known one (KIP-966)", "The longest"),
        "No partition had an ELR (KIP-966).",
    )
    parts += "<h3>Unclean elections</h3>" + cluster.rows(
        "unclean", _UNCLEAN, ("unclean elections", "The latest"), "Every leader came out of the ISR or the ELR."
    )
    parts += "<h3>Fenced brokers in ISRs (KIP-841)</h3>" + cluster.rows(
        "kip_841", _KIP_841, ("violations of KIP-841", "The latest"),
        "No broker came into an ISR or to lead while it was fenced or in controlled shutdown.",
    )  # fmt: skip
    return f"<h3>ISR and ELR (eligible leader replicas)</h3>{parts}"


def _brokers(cluster: Cluster) -> str:
    flaps, states, parts = cluster.answers["flaps"], cluster.answers["broker_states"], ""
    if cluster.span is not None and states.rows:
        tooltip = {"lane": "broker", "state": "state", "event": "by", "from_offset": "from offset",
                   "from_time": "since", "end_time": "until", "broker_epoch": "broker epoch"}  # fmt: skip
        chart = charts.lanes("Broker availability", states, cluster.span, tooltip, color="state")
        caption = (
            f"{left_out(flaps, 'brokers', 'Those fenced most often:')} {left_out(states, 'states of those', _LONGEST)}"
        )
        parts += cluster.show(chart, caption) + sql(states)
    parts += cluster.rows("flaps", _FLAPS, ("brokers", "Those fenced most often:"), "No broker is known.")
    return f"<h3>Brokers</h3>{parts}"


def _log(cluster: Cluster) -> str:
    rates, parts = cluster.answers["rates"], ""
    if cluster.span is not None and rates.rows:
        wide = f"In columns of {figure(rates, 'minutes')} min; of the first and the last less may have been read."
        for title, unit, column in (
            ("Records a minute", "records a minute", "records_a_minute"),
            ("Longest pause between batches", "seconds", "longest_pause_s"),
        ):
            parts += cluster.show(charts.columns(title, rates, cluster.span, unit, (column, unit)), wide)
        parts += sql(rates)
    logs = cluster.answers["logs"]
    listed = table(logs, _LOGS) if logs.rows else '<p class="note">Only snapshots were read.</p>'
    return (
        f"<h3>Logs</h3>{listed}{sql(logs)}{parts}<h3>Replicas that differ</h3>"
        + cluster.rows("divergence", _DIVERGENCE, ("pairs of logs that differ", "The first"), "No two logs differ.")
        + "<h3>Errors</h3>"
        + cluster.rows("errors", _ERRORS, ("errors", "The first"), "All bytes could be read.", ("path", "reason"))
    )


_SECTIONS: tuple[Callable[[Cluster], str], ...] = (_quorum, _partitions, _isr, _brokers, _log)
