"""The report's questions. Each is one SQL text, run once for all clusters and shown on the page for each cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kraftcore.plugins.spark.engines import Engine, Row, spark_literal

INCIDENTS, ROWS, LANES, BARS = 50, 20, 20, 2000
"""How many the page shows of one cluster at most: incidents, rows of another table, lanes of a plot, bars of a plot."""
SILENT_MS = 2000
"""A leader writes every half second: a quorum that wrote nothing for this many ms had no leader (KIP-595)."""
Answers: TypeAlias = dict[str, dict[str, list[Row]]]
"""Rows by question and by cluster."""
_SPAN = """
  span AS (
    SELECT cluster_id, min(first_time) AS first_time, max(last_time) AS last_time,
      unix_millis(max(last_time)) - unix_millis(min(first_time)) AS span_ms
    FROM gold_logs WHERE {of} GROUP BY cluster_id),"""
_TROUBLE = """
  trouble AS (
    SELECT cluster_id, topic_id, topic, partition, from_offset, to_offset, from_time, duration_ms,
      timestamp_millis(unix_millis(from_time) + duration_ms) AS end_time, state
    FROM gold_partition_history CROSS JOIN (VALUES ('offline'), ('under min ISR'), ('under-replicated')) AS kinds(state)
    WHERE {of} AND CASE state WHEN 'offline' THEN is_offline WHEN 'under min ISR' THEN is_under_min_isr
      ELSE is_under_replicated END),"""
_UNCLEAN = """
  states AS (
    SELECT *, lag(leader_recovery_state) OVER life AS previous_recovery_state,
      lag(eligible_leader_replicas) OVER life AS previous_elr, lag(adding_replicas) OVER life AS previous_adding
    FROM gold_partition_history WHERE {of}
    WINDOW life AS (PARTITION BY cluster_id, topic_id, partition ORDER BY from_offset)),
  unclean AS (
    SELECT * FROM states
    WHERE is_leader_change AND change = 'changed' AND leader >= 0 AND previous_isr IS NOT NULL AND (
      leader_recovery_state = 1 AND previous_recovery_state = 0
      OR NOT array_contains(previous_isr, leader) AND NOT coalesce(array_contains(previous_elr, leader), false)
        AND size(previous_adding) = 0))"""
_KIP_841 = """
  joined AS (
    SELECT cluster_id, topic, partition, from_offset, to_offset, from_time, duration_ms, isr, leader,
      explode(if(change = 'created', isr, isr_added)) AS broker_id
    FROM gold_partition_history WHERE {of} AND change <> 'known from a snapshot'
    UNION
    SELECT cluster_id, topic, partition, from_offset, to_offset, from_time, duration_ms, isr, leader, leader
    FROM gold_partition_history
    WHERE {of} AND change <> 'known from a snapshot' AND is_leader_change AND leader >= 0),
  ineligible AS (
    SELECT cluster_id, broker_id, topic, partition, joined.from_offset, joined.from_time, isr, leader, fenced,
      broker.from_offset AS broker_offset, least(joined.to_offset, broker.to_offset) AS to_offset,
      greatest(0, least(joined.duration_ms,
        unix_millis(broker.from_time) + broker.duration_ms - unix_millis(joined.from_time))) AS duration_ms
    FROM joined JOIN gold_broker_history AS broker USING (cluster_id, broker_id)
    WHERE (fenced OR in_controlled_shutdown) AND broker.from_offset <= joined.from_offset
      AND (broker.to_offset IS NULL OR broker.to_offset > joined.from_offset))"""
# The fenced states of a broker with the same turn are one outage, except those before its first unfencing.
_TURNS = """
  turns AS (
    SELECT *, count(if(NOT fenced, 1, null)) OVER life AS turn,
      fenced AND (count(if(NOT fenced, 1, null)) OVER life > 0
        OR first_value(event) OVER life <> 'registered') AS is_out
    FROM gold_broker_history WHERE {of}
    WINDOW life AS (PARTITION BY cluster_id, broker_id ORDER BY from_offset))"""
_OUTAGES = f"""{_TURNS},
  outages AS (
    SELECT cluster_id, broker_id, turn, min(from_offset) AS from_offset, max_by(to_offset, from_offset) AS to_offset,
      min(from_time) AS from_time, sum(duration_ms) AS duration_ms,
      min_by(in_controlled_shutdown, from_offset) AS is_planned
    FROM turns WHERE is_out GROUP BY cluster_id, broker_id, turn)"""
_UNREAD = """
  unread AS (
    SELECT * FROM errors ANTI JOIN (
      SELECT file_id, position, 'torn' AS kind FROM bronze_batches WHERE is_valid) USING (file_id, position, kind)
      ANTI JOIN bronze_files AS again ON again.file_id = errors.file_id
        AND again.generation > errors.generation AND again.rewound_to <= errors.position
    WHERE {of})"""
_WORST = """
  parts AS (
    SELECT cluster_id, topic_id, topic, partition, count(*) AS states,
      count(if(is_leader_change AND change = 'changed', 1, null)) AS leader_changes,
      sum(if(is_offline, duration_ms, 0)) AS offline_ms, sum(if(is_under_min_isr, duration_ms, 0)) AS under_min_isr_ms,
      sum(if(is_under_replicated, duration_ms, 0)) AS under_replicated_ms,
      min(if(is_offline OR is_under_min_isr OR is_under_replicated, from_offset, null)) AS first_offset,
      max(if(is_offline OR is_under_min_isr OR is_under_replicated, from_offset, null)) AS last_offset
    FROM gold_partition_history WHERE {of} GROUP BY cluster_id, topic_id, topic, partition),
  worst AS (
    SELECT *, row_number() OVER (PARTITION BY cluster_id
        ORDER BY offline_ms DESC, under_min_isr_ms DESC, under_replicated_ms DESC, topic, partition,
          first_offset) AS rank,
      count(*) OVER (PARTITION BY cluster_id) AS total,
      count(if(offline_ms > 0, 1, null)) OVER (PARTITION BY cluster_id) AS total_offline
    FROM parts WHERE first_offset IS NOT NULL)"""
_FLAPS = f"""{_TURNS},
  times AS (
    SELECT cluster_id, broker_id, turn, count(if(event = 'registered', 1, null)) AS registrations,
      max(is_out) AS is_outage, sum(if(fenced, duration_ms, 0)) AS fenced_ms, max_by(fenced, from_offset) AS is_fenced,
      max(from_offset) AS last_offset
    FROM turns GROUP BY cluster_id, broker_id, turn),
  counted AS (
    SELECT cluster_id, broker_id, sum(registrations) AS registrations, count(if(is_outage, 1, null)) AS fencings,
      sum(fenced_ms) AS fenced_ms, max(fenced_ms) AS longest_ms, max_by(is_fenced, turn) AS is_fenced,
      max(last_offset) AS last_offset
    FROM times GROUP BY cluster_id, broker_id),
  flaps AS (
    SELECT *, row_number() OVER (PARTITION BY cluster_id ORDER BY fencings DESC, fenced_ms DESC, broker_id) AS rank,
      count(*) OVER (PARTITION BY cluster_id) AS total
    FROM counted)"""


def _top(source: str, order: str, rows: int, columns: str = "*") -> str:
    # The first rows of each cluster, with their rank and the total number of rows.
    return f"""SELECT * FROM (
  SELECT {columns}, row_number() OVER (PARTITION BY cluster_id ORDER BY {order}) AS rank,
    count(*) OVER (PARTITION BY cluster_id) AS total
  FROM {source})
WHERE rank <= {rows} ORDER BY cluster_id, rank"""


def _spread(source: str, order: str, rows: int) -> str:
    # Rows of a plot's lanes: ``rows`` of each cluster, divided equally among its lanes; ``place`` numbers the lanes.
    return f"""SELECT * FROM (
  SELECT *, row_number() OVER (PARTITION BY cluster_id ORDER BY depth, place) AS rank,
    count(*) OVER (PARTITION BY cluster_id) AS total
  FROM (
    SELECT *, row_number() OVER (PARTITION BY cluster_id, place ORDER BY {order}) AS depth
    FROM {source}))
WHERE rank <= {rows} ORDER BY cluster_id, place, from_offset, duration_ms, depth"""


_INCIDENTS = f"""WITH {_TROUBLE.strip()}
  reached AS (
    SELECT *, max(coalesce(to_offset, 9223372036854775807)) OVER (PARTITION BY cluster_id, state
      ORDER BY from_offset, topic, partition ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach FROM trouble),
  islands AS (
    SELECT *, count(if(reach IS NULL OR from_offset > reach, 1, null)) OVER (PARTITION BY cluster_id, state
      ORDER BY from_offset, topic, partition ROWS UNBOUNDED PRECEDING) AS island FROM reached),{_UNCLEAN},{_KIP_841},\
{_OUTAGES},{_UNREAD},
  found AS (
    SELECT cluster_id, 1 AS severity, 'replicas differ below what is committed' AS what,
      'nodes ' || node_id_a || ' and ' || node_id_b AS subject, 1 AS things, cast(null AS timestamp) AS from_time,
      cast(null AS bigint) AS duration_ms, offset AS from_offset, cast(null AS bigint) AS to_offset
    FROM gold_divergence WHERE {{of}} AND is_below_committed
    UNION ALL
    SELECT cluster_id, 2, 'bytes that cannot be read', kind || ' in ' || path, count(*), null, null,
      min(offset), null FROM unread WHERE kind NOT IN ('gone', 'torn')
    GROUP BY cluster_id, kind, path
    UNION ALL
    SELECT cluster_id, 11, 'log that ends inside a batch', path, count(*), null, null, null, null
    FROM unread WHERE kind = 'torn' GROUP BY cluster_id, path
    UNION ALL
    SELECT cluster_id, 3, 'unclean election', min(topic || '-' || partition) ||
      if(count(*) > 1, ' and ' || (count(*) - 1) || ' more', ''), count(*), from_time, max(duration_ms),
      min(from_offset), max(to_offset) FROM unclean GROUP BY cluster_id, from_time
    UNION ALL
    SELECT cluster_id, 4, 'KIP-841 violation', 'broker ' || broker_id || ' in ' ||
        min(topic || '-' || partition) || if(count(*) > 1, ' and ' || (count(*) - 1) || ' more', ''), count(*),
      from_time, max(duration_ms), min(from_offset), if(count(if(to_offset IS NULL, 1, null)) > 0, null, max(to_offset))
    FROM ineligible GROUP BY cluster_id, broker_id, from_time
    UNION ALL
    SELECT cluster_id, CASE state WHEN 'offline' THEN 5 WHEN 'under min ISR' THEN 7 ELSE 9 END,
      'partitions ' || state,
      min_by(topic || '-' || partition, struct(-duration_ms, topic, partition)) ||
        if(count(DISTINCT topic_id || partition) > 1,
          ' and ' || (count(DISTINCT topic_id || partition) - 1) || ' more', ''),
      count(DISTINCT topic_id || partition), min(from_time),
      unix_millis(max(end_time)) - unix_millis(min(from_time)), min(from_offset),
      if(count(if(to_offset IS NULL, 1, null)) > 0, null, max(to_offset))
    FROM islands GROUP BY cluster_id, state, island
    UNION ALL
    SELECT cluster_id, 6, 'no leader of the quorum',
      'node ' || previous_leader_id || if(leader_id = previous_leader_id, ' again', ' to ' || leader_id) || ', ' ||
        failed_elections || if(failed_elections = 1, ' failed election', ' failed elections'),
      1, timestamp_millis(unix_millis(start_time) - silent_ms), silent_ms, epoch_start_offset - 1,
      epoch_start_offset FROM gold_leadership
    WHERE {{of}} AND status <> 'truncated' AND (failed_elections > 0 OR reason = 'the previous leader fell silent'
      OR silent_ms >= {SILENT_MS} AND reason <> 'the previous leader left the voter set')
    UNION ALL
    SELECT cluster_id, if(is_planned, 10, 8), if(is_planned, 'broker shut down as planned', 'broker fenced'),
      'broker ' || broker_id, 1, from_time, duration_ms, from_offset, to_offset FROM outages)
{_top("found", "severity, duration_ms DESC, from_offset, subject", INCIDENTS)}"""

_NOW = f"""WITH {_SPAN.strip()}
  known AS (
    SELECT cluster_id, max_by(is_complete, era) AS is_known, max(if(is_complete, end_offset, null)) AS known_end,
      coalesce(max(if(is_complete, end_offset, null)), min(start_offset)) AS unknown_from
    FROM gold_eras WHERE {{of}} GROUP BY cluster_id),
  parts AS (
    SELECT cluster_id, count(*) AS partitions, count(if(is_offline, 1, null)) AS offline,
      count(if(is_under_min_isr, 1, null)) AS under_min_isr,
      count(if(is_under_replicated, 1, null)) AS under_replicated,
      count(if(size(eligible_leader_replicas) > 0, 1, null)) AS with_elr
    FROM gold_partition_history JOIN known USING (cluster_id)
    WHERE {{of}} AND if(is_known, to_offset IS NULL, to_offset = known_end) GROUP BY cluster_id),
  machines AS (
    SELECT cluster_id, count(*) AS brokers, count(if(fenced, 1, null)) AS fenced,
      count(if(in_controlled_shutdown AND NOT fenced, 1, null)) AS shutting_down
    FROM gold_broker_history JOIN known USING (cluster_id)
    WHERE {{of}} AND if(is_known, to_offset IS NULL, to_offset = known_end) GROUP BY cluster_id),
  leaders AS (
    SELECT cluster_id, max_by(leader_id, epoch) AS leader_id, max(epoch) AS epoch
    FROM gold_leadership WHERE {{of}} AND status <> 'truncated' GROUP BY cluster_id),
  voters AS (
    SELECT cluster_id, max_by(voter_ids, offset) AS voter_ids
    FROM gold_voter_sets WHERE {{of}} AND status <> 'truncated' GROUP BY cluster_id),
  ends AS (SELECT cluster_id, max(end_offset) AS end_offset FROM gold_logs WHERE {{of}} GROUP BY cluster_id)
SELECT cluster_id, first_time, last_time, span_ms, end_offset, is_known, known_end, unknown_from, leader_id, epoch,
  voter_ids,
  coalesce(brokers, 0) AS brokers, coalesce(fenced, 0) AS fenced, coalesce(shutting_down, 0) AS shutting_down,
  coalesce(partitions, 0) AS partitions,
  coalesce(offline, 0) AS offline, coalesce(under_min_isr, 0) AS under_min_isr,
  coalesce(under_replicated, 0) AS under_replicated, coalesce(with_elr, 0) AS with_elr
FROM span LEFT JOIN ends USING (cluster_id) LEFT JOIN known USING (cluster_id)
  LEFT JOIN parts USING (cluster_id) LEFT JOIN machines USING (cluster_id)
  LEFT JOIN leaders USING (cluster_id) LEFT JOIN voters USING (cluster_id) ORDER BY cluster_id"""

_TROUBLE_OVER_TIME = f"""WITH {_SPAN.strip()}{_TROUBLE}
  edges AS (
    SELECT cluster_id, state, from_time AS at, 1 AS step FROM trouble
    UNION ALL SELECT cluster_id, state, end_time, -1 FROM trouble WHERE to_offset IS NOT NULL
    UNION ALL
    SELECT cluster_id, state, at, 0
    FROM (SELECT cluster_id, first_time AS at FROM span UNION ALL SELECT cluster_id, last_time FROM span)
      CROSS JOIN (VALUES ('offline'), ('under min ISR'), ('under-replicated')) AS kinds(state)),
  steps AS (SELECT cluster_id, state, at, sum(step) AS step FROM edges GROUP BY cluster_id, state, at),
  levels AS (
    SELECT cluster_id, state, at, sum(step) OVER (PARTITION BY cluster_id, state ORDER BY at) AS level FROM steps),
  placed AS (
    SELECT cluster_id, state, greatest(at, first_time) AS at, level, first_time,
      unix_millis(greatest(at, first_time)) - unix_millis(first_time) AS past_ms,
      greatest(1, cast((span_ms - span_ms % {BARS}) / {BARS} AS bigint)) AS width_ms
    FROM levels JOIN span USING (cluster_id)),
  rounded AS (
    SELECT cluster_id, state, at, level, width_ms,
      unix_millis(first_time) + past_ms - past_ms % width_ms AS bucket_ms
    FROM placed),
  buckets AS (
    SELECT cluster_id, state, timestamp_millis(bucket_ms) AS at, width_ms, max(level) AS most,
      max_by(level, at) AS last
    FROM rounded GROUP BY cluster_id, state, bucket_ms, width_ms)
SELECT cluster_id, state, at, most AS partitions FROM buckets
UNION ALL SELECT cluster_id, state, timestamp_millis(unix_millis(at) + width_ms), last FROM buckets WHERE most <> last
ORDER BY cluster_id, state DESC, at, partitions DESC"""
# The state that is worst comes last: a plot draws it over the others.

_MINUTES = f"greatest(1, cast(ceil(span_ms / 60000 / {BARS // 2}) AS bigint))"


def _by_minutes(columns: str, rows: str) -> str:
    # Spans of whole minutes, wide enough that all spans fit into a plot. ``rows`` is SQL with a column ``at``, a time.
    return f"""WITH {_SPAN.strip()}
  wide AS (SELECT cluster_id, {_MINUTES} AS minutes FROM span),
  timed AS (
    {rows}),
  rounded AS (
    SELECT *, unix_millis(at) - unix_millis(at) % (60000 * minutes) AS from_ms
    FROM timed JOIN wide USING (cluster_id))
SELECT cluster_id, timestamp_millis(from_ms) AS from_time, timestamp_millis(from_ms + 60000 * minutes) AS end_time,
  minutes, {columns}
FROM rounded GROUP BY cluster_id, from_ms, minutes ORDER BY cluster_id, from_time"""


QUESTIONS: Mapping[str, str] = {
    "now": _NOW,
    "incidents": _INCIDENTS,
    "logs": """SELECT cluster_id, node_id, directory_id, start_offset, end_offset,
  max(end_offset) OVER (PARTITION BY cluster_id) - end_offset AS records_behind, last_epoch, batches, records, bytes,
  committed_end, is_reference, first_time, last_time
FROM gold_logs WHERE {of} ORDER BY cluster_id, node_id, log_id""",
    "leaders": f"""WITH {_SPAN.strip()[:-1]}
{_top("gold_leadership JOIN span USING (cluster_id) WHERE {of} AND status <> 'truncated'", "epoch DESC", BARS // 4,
      '''cluster_id, 'node ' || leader_id AS lane, 'epoch ' || epoch AS label, epoch, leader_id,
    epoch_start_offset, start_time AS from_time, coalesce(end_time, last_time) AS end_time, reason, silent_ms,
    failed_elections, status''')}""",
    "elections": _top(
        "gold_leadership WHERE {of}", "epoch DESC, epoch_start_offset DESC", ROWS,
        """cluster_id, epoch, leader_id, previous_leader_id, epoch_start_offset, start_time, silent_ms,
    failed_elections, reason, status,
    sum(greatest(failed_elections, 0)) OVER (PARTITION BY cluster_id) AS total_failed,
    count(if(leader_id <> previous_leader_id, 1, null)) OVER (PARTITION BY cluster_id) AS total_changes""",
    ),
    "voters": f"""WITH {_SPAN.strip()}
  sets AS (
    SELECT cluster_id, offset, voter_ids, source, status, if(offset < 0, first_time, timestamp) AS from_time,
      coalesce(lead(timestamp) OVER (PARTITION BY cluster_id ORDER BY offset), last_time) AS end_time
    FROM gold_voter_sets JOIN span USING (cluster_id) WHERE {{of}} AND status <> 'truncated')
{_top("(SELECT *, explode(voter_ids) AS voter_id FROM sets)", "offset DESC, voter_id", BARS // 4,
      "cluster_id, 'voter ' || voter_id AS lane, offset, from_time, end_time, voter_ids, source, status")}""",
    "voter_changes": _top(
        "gold_voter_sets WHERE {of}", "offset DESC", ROWS,
        "cluster_id, offset, timestamp, voter_ids, added, removed, source, status",
    ),
    "trouble": _TROUBLE_OVER_TIME,
    "worst": f"""WITH {_WORST.strip()}
SELECT cluster_id, topic, partition, offline_ms, under_min_isr_ms, under_replicated_ms, leader_changes, states,
  first_offset, last_offset, rank, total, total_offline
FROM worst WHERE rank <= {ROWS} ORDER BY cluster_id, rank""",
    "worst_states": f"""WITH {_WORST.strip()}
{_spread(f'''(
      SELECT cluster_id, topic || '-' || partition AS lane, place, from_offset, from_time,
        timestamp_millis(unix_millis(from_time) + duration_ms) AS end_time, duration_ms, leader, isr,
        eligible_leader_replicas, change, CASE WHEN is_offline THEN 'offline' WHEN is_under_min_isr THEN 'under min ISR'
          WHEN is_under_replicated THEN 'under-replicated' ELSE 'in sync' END AS state
      FROM gold_partition_history JOIN (SELECT cluster_id, topic_id, partition, rank AS place FROM worst
        WHERE rank <= {LANES}) USING (cluster_id, topic_id, partition)
      WHERE {{of}})''', "state = 'in sync', duration_ms DESC, from_offset, change DESC", BARS)}""",
    "isr_changes": _by_minutes(
        "count(if(size(isr_removed) > 0, 1, null)) AS shrunk, count(if(size(isr_added) > 0, 1, null)) AS grown",
        """SELECT cluster_id, isr_removed, isr_added, from_time AS at FROM gold_partition_history
    WHERE {of} AND change = 'changed' AND size(isr_removed) + size(isr_added) > 0""",
    ),
    "elr": _top(
        """(
    SELECT cluster_id, topic, partition, sum(if(size(eligible_leader_replicas) > 0, duration_ms, 0)) AS with_elr_ms,
      sum(if(size(last_known_elr) > 0, duration_ms, 0)) AS with_last_known_ms,
      max_by(eligible_leader_replicas, from_offset) AS elr_at_end, max_by(last_known_elr, from_offset) AS
      last_known_at_end, min(if(size(eligible_leader_replicas) + size(last_known_elr) > 0, from_offset, null)) AS
      first_offset
    FROM gold_partition_history WHERE {of} GROUP BY cluster_id, topic_id, topic, partition)
  WHERE first_offset IS NOT NULL""",
        "with_elr_ms DESC, with_last_known_ms DESC, topic, partition, first_offset", ROWS,
    ),
    "unclean": f"""WITH {_UNCLEAN.strip()}
{_top("unclean", "from_offset DESC, topic, partition", ROWS,
      '''cluster_id, from_offset, from_time, topic, partition, previous_leader, leader, previous_isr, isr, previous_elr,
    leader_recovery_state''')}""",
    "kip_841": f"""WITH {_KIP_841.strip()}
{_top("ineligible", "from_offset DESC, topic, partition, broker_id", ROWS,
      '''cluster_id, from_offset, from_time, topic, partition, broker_id, if(leader = broker_id, 'leads', 'in ISR')
      AS place, if(fenced, 'fenced', 'in controlled shutdown') AS broker_is, broker_offset, isr''')}""",
    "flaps": f"""WITH {_FLAPS.strip()}
SELECT * FROM flaps WHERE rank <= {ROWS} ORDER BY cluster_id, rank""",
    "broker_states": f"""WITH {_FLAPS.strip()}
{_spread(f'''(
      SELECT cluster_id, 'broker ' || broker_id AS lane, place, from_offset, from_time,
        timestamp_millis(unix_millis(from_time) + duration_ms) AS end_time, duration_ms, event, broker_epoch,
        CASE WHEN fenced THEN 'fenced' WHEN in_controlled_shutdown THEN 'in controlled shutdown' ELSE 'active' END
          AS state
      FROM gold_broker_history JOIN (SELECT cluster_id, broker_id, rank AS place FROM flaps WHERE rank <= {LANES})
        USING (cluster_id, broker_id)
      WHERE {{of}})''', "state = 'active', duration_ms DESC, from_offset", BARS)}""",
    "rates": _by_minutes(
        """sum(records) / minutes AS records_a_minute, sum(bytes) / minutes AS bytes_a_minute,
  max(pause_ms_max) / 1000 AS longest_pause_s, min(first_offset) AS first_offset, max(last_offset) AS last_offset""",
        "SELECT *, minute AS at FROM gold_batch_stats WHERE {of}",
    ),
    "divergence": _top(
        "gold_divergence WHERE {of}", "is_below_committed DESC, offset", ROWS,
        """cluster_id, offset, node_id_a, node_id_b, epoch_a, epoch_b, batches_differing, committed_end,
    is_overridden_end, is_below_committed""",
    ),
    "errors": f"""WITH {_UNREAD.strip()}
{_top("unread", "path, position", ROWS, "cluster_id, path, position, size, offset, kind, reason")}""",
}  # fmt: skip
"""SQL by name of the question; ``{of}`` stands for the condition that chooses the clusters."""


def question(name: str, cluster_id: str) -> str:
    """The SQL text of a question about one cluster, as ``kraftcore spark query`` takes it."""
    return QUESTIONS[name].replace("{of}", f"cluster_id = {spark_literal(cluster_id)}")


@dataclass(frozen=True)
class Answer:
    """The answer to a question about one cluster.

    Attributes:
        name: the question, a key of ``QUESTIONS``.
        sql: the question's SQL for this cluster.
        rows: the rows in order.
    """

    name: str
    sql: str
    rows: tuple[Row, ...]

    @property
    def left_out(self) -> int:
        """The number of rows that are not in ``rows``; only for questions with a column ``total``."""
        return int(self.rows[0]["total"]) - len(self.rows) if self.rows else 0


def ask(engine: Engine, names: Iterable[str], cluster_ids: Iterable[str]) -> Answers:
    """The answers to some questions about some clusters."""
    of = f"cluster_id IN ({', '.join(map(engine.literal, cluster_ids))})"
    wanted = list(names)
    answers: Answers = {}
    for name, rows in zip(wanted, engine.answers([QUESTIONS[one].replace("{of}", of) for one in wanted]), strict=True):
        answers[name] = {}
        for row in rows:
            answers[name].setdefault(row["cluster_id"], []).append(row)
    return answers
