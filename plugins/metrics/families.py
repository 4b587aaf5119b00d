"""A `Reading` as Prometheus metrics: names, kinds and help texts.

Kafka's are spelled as the JMX exporter's usual rules for KRaft spell them: ``kafka.server:type=raft-metrics`` becomes
``kafka_server_raftmetrics_`` and dashes become underscores; a text is a label of the metric's own name on the value 1.
``kafka.server:type=socket-server-metrics`` becomes ``kafka_server_socketservermetrics_`` with the label ``listener``.
One difference: those rules call what ends in ``max`` a counter; it is a gauge here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraftcore.plugins.metrics.cluster_state import Registration
from kraftcore.plugins.metrics.reading import Reading

RAFT = "kafka_server_raftmetrics_"
CHANNEL = "kafka_server_raftchannelmetrics_"
SOCKETS = "kafka_server_socketservermetrics_"
CONTROLLER = "kafka_controller_kafkacontroller_"
LOADER = "kafka_server_metadataloader_"
OWN = "kraftcore_"


def families(reading: Reading) -> Iterator[Any]:
    """Every metric of a node."""
    yield from _raft(reading)
    yield from _kafka(reading)
    yield from _controller(reading)
    yield from _log(reading)
    yield from _replicas(reading)
    yield from _events(reading)
    yield from _logins(reading)


def _gauge(name: str, text: str, value: float) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=float(value))


def _labelled(name: str, text: str, labels: dict[str, str], value: float = 1.0) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), float(value))
    return family


def _raft(reading: Reading) -> Iterator[Any]:
    status, rates = reading.status, reading.rates
    leader_id = -1 if status.leader_id is None else status.leader_id
    high_watermark = -1 if status.high_watermark is None else status.high_watermark
    name = RAFT + "current_state"
    yield _labelled(name, "The role of this node.", {"current_state": reading.state})
    yield _gauge(RAFT + "current_leader", "Id of the leader, -1 while none answers.", leader_id)
    yield _gauge(RAFT + "current_vote", "Id of the replica voted for in this epoch, -1: none.", reading.voted_id)
    name = RAFT + "current_vote_directory_id"
    yield _labelled(name, "Its directory id.", {"current_vote_directory_id": reading.voted_directory_id})
    yield _gauge(RAFT + "current_epoch", "Leader epoch.", status.epoch)
    yield _gauge(RAFT + "high_watermark", "Below it everything is committed, -1 while unknown.", high_watermark)
    yield _gauge(RAFT + "log_end_offset", "Next offset in the log.", status.log_end_offset)
    yield _gauge(RAFT + "log_end_epoch", "Leader epoch of the last record.", reading.last_epoch)
    yield _gauge(RAFT + "number_of_voters", "Voters in the voter set in force.", len(status.voters))
    yield _gauge(RAFT + "number_unknown_voter_connections", "Always 0, as in Kafka.", 0)
    if reading.observers is not None:
        yield _gauge(RAFT + "number_of_observers", "Observers that fetch from this leader.", reading.observers)
    if reading.changes_voters is not None:
        text = "1 while a voter change is not committed; leader only."
        yield _gauge(RAFT + "uncommitted_voter_change", text, reading.changes_voters)
    if reading.offline_voters is not None:
        text = "Voters that have not fetched for a fetch timeout; leader only (KIP-853, not in Kafka 4.3)."
        yield _gauge(RAFT + "number_of_offline_voters", text, reading.offline_voters)
    for kind, latency, text in (
        ("commit", reading.commits, "append to commit and application, ms in the last minute."),
        ("election", reading.elections, "asking for votes to a known leader, ms in the last minute."),
    ):
        yield _gauge(f"{RAFT}{kind}_latency_avg", f"Mean of: {text}", latency.average_ms)
        yield _gauge(f"{RAFT}{kind}_latency_max", f"Largest of: {text}", latency.maximum_ms)
    yield _gauge(RAFT + "append_records_rate", "Records a second appended as leader.", rates.appended)
    yield _gauge(RAFT + "fetch_records_rate", "Records a second fetched as follower.", rates.fetched)
    yield _gauge(RAFT + "poll_idle_ratio_avg", "Share of time in which the node's loop was idle.", rates.idle)


def _kafka(reading: Reading) -> Iterator[Any]:
    ignored = reading.ignores_static_voters
    text = "1 if controller.quorum.voters is set and not used."
    yield _gauge("kafka_controller_kafkacontroller_ignoredstaticvoters", text, ignored)
    yield _gauge("kafka_server_brokermetadatametrics_ignored_static_voters", text, ignored)
    text = "1 on the leader."
    yield _gauge("kafka_controller_kafkacontroller_activecontrollercount", text, reading.state == "leader")
    if reading.connections is not None:
        accepted, made = reading.connections
        yield _gauge(CHANNEL + "connection_count", "Connections made to other nodes.", made)
        yield _gauge(OWN + "accepted_connections", "Connections others made to this node.", accepted)


def _controller(reading: Reading) -> Iterator[Any]:
    """Attributes of ``kafka.controller:type=KafkaController`` and of ``kafka.server:type=MetadataLoader``."""
    from prometheus_client.core import GaugeMetricFamily

    status, cluster = reading.status, reading.cluster
    if cluster is None:
        return
    states = cluster.by_registration
    high_watermark = 0 if status.high_watermark is None else status.high_watermark
    values: tuple[tuple[str, str, float], ...] = (
        ("activebrokercount", "Brokers that may lead.", states[Registration.ACTIVE]),
        ("fencedbrokercount", "Registered brokers that are fenced.", states[Registration.FENCED]),
        (
            "controlledshutdownbrokercount",
            "Brokers in controlled shutdown.",
            states[Registration.CONTROLLED_SHUTDOWN],
        ),
        ("globaltopiccount", "Topics.", cluster.topics),
        ("globalpartitioncount", "Partitions.", cluster.partitions),
        ("offlinepartitionscount", "Partitions without a leader.", cluster.offline),
        ("preferredreplicaimbalancecount", "Partitions that their first replica does not lead.", cluster.not_preferred),
        ("lastappliedrecordoffset", "Offset of the last applied record.", status.applied_offset - 1),
        ("lastcommittedrecordoffset", "Offset of the last committed record.", high_watermark - 1),
        ("lastappliedrecordtimestamp", "Largest applied timestamp, ms since 1970.", status.applied_timestamp_ms),
        ("lastappliedrecordlagms", "Its age, ms.", max(reading.now_ms - status.applied_timestamp_ms, 0)),
        ("newactivecontrollerscount", "Times a leader became known.", reading.leaders),
    )
    for name, text, value in values:
        yield _gauge(CONTROLLER + name, text, value)
    text = "10: fenced, 20: in controlled shutdown, 30: active."
    brokers = GaugeMetricFamily(CONTROLLER + "brokerregistrationstate", text, labels=["broker"])
    for broker_id, state in sorted(cluster.brokers.items()):
        brokers.add_metric([str(broker_id)], float(state))
    yield brokers
    leader_id = -1 if status.leader_id is None else status.leader_id
    yield _gauge(LOADER + "currentmetadataversion", "The finalized metadata.version.", cluster.metadata_version)
    yield _gauge(LOADER + "currentcontrollerid", "Id of the leader, -1 while none answers.", leader_id)


def _log(reading: Reading) -> Iterator[Any]:
    status = reading.status
    latest = status.snapshots[-1][0] if status.snapshots else 0
    values: tuple[tuple[str, str, float], ...] = (
        ("log_start_offset", "First offset in the log.", status.log_start_offset),
        ("log_size_bytes", "Size of the log's segments.", reading.log_bytes),
        ("flushed_offset", "Below it the log is durable.", status.flushed_offset),
        ("applied_offset", "Below it everything is applied.", status.applied_offset),
        ("snapshots", "Snapshots on disk.", len(status.snapshots)),
        ("snapshot_end_offset", "End of the latest snapshot, 0 without one.", latest),
        ("snapshot_size_bytes", "Size of the latest snapshot, 0 without one.", reading.snapshot_bytes),
        ("bytes_in_flight", "Size of proposals not yet committed.", status.bytes_in_flight),
        ("bytes_in_flight_max", "Callers wait above it.", reading.bytes_in_flight_max),
        ("client_sessions", "Clients remembered for their retries.", reading.sessions),
        ("kraft_version", "The level in force.", status.kraft_version),
    )
    text = "Seconds since the leader last answered this node, or since a majority fetched from this leader."
    yield _gauge(OWN + "seconds_since_leader_answered", text, status.leader_silent_ms / 1000)
    for name, text, value in values:
        yield _gauge(OWN + name, text, value)


def _replicas(reading: Reading) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    labels = ["replica_id", "directory_id", "voter"]
    lag = GaugeMetricFamily(OWN + "replica_lag_records", "Records a replica lacks; leader only.", labels=labels)
    text = "Seconds since a replica last fetched; leader only."
    age = GaugeMetricFamily(OWN + "replica_last_fetch_age_seconds", text, labels=labels)
    for seen in reading.status.replicas:
        who = [str(seen.key.id), str(seen.key.directory_id), "true" if seen.is_voter else "false"]
        if seen.lag is not None:
            lag.add_metric(who, float(seen.lag))
            age.add_metric(who, max(reading.now_ms - seen.last_fetch_ms, 0) / 1000)
    yield lag
    yield age


def _events(reading: Reading) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    text = "Append to commit and application, for every record appended here."
    for name, help_text, latency in (
        ("commit_latency_seconds", text, reading.commits),
        ("election_latency_seconds", "Asking for votes to a known leader.", reading.elections),
    ):
        yield HistogramMetricFamily(OWN + name, help_text, buckets=list(latency.buckets), sum_value=latency.sum_s)
    for name, help_text in COUNTED.items():
        yield CounterMetricFamily(OWN + name, help_text, value=float(reading.counts[name]))
    if reading.authorizations is not None:
        text = "Decisions of the authorizer, one for each resource asked about."
        decisions = CounterMetricFamily(OWN + "authorizations", text, labels=["verdict"])
        for verdict, count in zip(("allowed", "denied"), reading.authorizations, strict=True):
            decisions.add_metric([verdict], float(count))
        yield decisions


def _logins(reading: Reading) -> Iterator[Any]:
    """Attributes of ``kafka.server:type=socket-server-metrics``; there are no network processors to tell apart."""
    from prometheus_client.core import CounterMetricFamily

    if not reading.logins:
        return
    for name, text, attribute in (
        ("successful_authentication", "Connections that proved who they are.", "succeeded"),
        ("failed_authentication", "Connections that were turned away.", "failed"),
        ("successful_reauthentication", "Sessions that proved it anew (KIP-368).", "renewed"),
        ("failed_reauthentication", "Sessions that ended because they did not prove it anew.", "not_renewed"),
    ):
        family = CounterMetricFamily(SOCKETS + name, text, labels=["listener"])
        for listener, counts in reading.logins.items():
            family.add_metric([listener], float(getattr(counts, attribute)))
        yield family


COUNTED = {
    "role_changes": "Changes of role, or of the epoch in the same role.",
    "leader_changes": "Times another leader answered, or the leader ceased to.",
    "voter_set_changes": "Voter sets that came into force, also those undone later.",
    "snapshots_written": "Snapshots of the state machine written.",
    "snapshots_restored": "Times the state machine was loaded from a snapshot.",
    "notes": "Contradictions and refusals, one log line each.",
}
"""Events that are counted, with the help texts of ``kraftcore_..._total``."""
