"""Everything that is reported of a node, read in its own task in one go."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from kraftcore.core.uuid import ZERO_UUID
from kraftcore.node.logins import LoginCounts
from kraftcore.node.plugin_node import PluginNode
from kraftcore.node.status import Status
from kraftcore.plugins.metrics.cluster_state import ClusterState, cluster_state
from kraftcore.plugins.metrics.latency import LatencyReading
from kraftcore.raft.describe_quorum import OBSERVER_TIMEOUT_MS
from kraftcore.raft.roles import Role


@dataclass(frozen=True, slots=True)
class Rates:
    """What is measured over time.

    Attributes:
        appended: records a second, as leader.
        fetched: records a second, as follower.
        idle: share of the time in which the loop had nothing to do, 0 to 1.
    """

    appended: float
    fetched: float
    idle: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A node at one moment; see docs/metrics.md.

    Attributes:
        status: the node's own.
        state: its role in Kafka's words.
        voted_id: whom it voted for in this epoch; -1: nobody.
        voted_directory_id: likewise.
        last_epoch: of the log's last record.
        observers: how many observers fetch; None unless it leads.
        changes_voters: whether a voter change is not committed yet; None unless it leads.
        offline_voters: voters that did not fetch for a fetch timeout; None unless it leads.
        ignores_static_voters: whether voters are configured and those in the log are used.
        log_bytes: size of the log's segments.
        snapshot_bytes: size of the latest snapshot; 0 without one.
        sessions: clients remembered for their retries.
        connections: (accepted, made); None if the transport does not count.
        authorizations: how often the authorizer said yes and no; None without one.
        logins: how many there were, by listener.
        bytes_in_flight_max: bound of ``status.bytes_in_flight``.
        now_ms: the node's time.
        commits: latency of what was appended here.
        elections: latency of elections begun here.
        rates: see `Rates`.
        counts: events by name, since the start.
        leaders: how often a leader became known.
        cluster: what the node's image counts; None unless it is a controller.
    """

    status: Status
    state: str
    voted_id: int
    voted_directory_id: str
    last_epoch: int
    observers: int | None
    changes_voters: bool | None
    offline_voters: int | None
    ignores_static_voters: bool
    log_bytes: int
    snapshot_bytes: int
    sessions: int
    connections: tuple[int, int] | None
    authorizations: tuple[int, int] | None
    logins: dict[str, LoginCounts]
    bytes_in_flight_max: int
    now_ms: int
    commits: LatencyReading
    elections: LatencyReading
    rates: Rates
    counts: dict[str, int]
    leaders: int
    cluster: ClusterState | None


def read_node(
    node: PluginNode,
    *,
    leading_since_ms: int,
    commits: LatencyReading,
    elections: LatencyReading,
    rates: Rates,
    counts: dict[str, int],
    leaders: int,
) -> Reading:
    """Gather a `Reading`; call it from the node's task.

    Args:
        node: of which.
        leading_since_ms: when its present role began, by ``node.now_ms()``.
        commits, elections, rates, counts, leaders: what was observed of it.
    """
    status = node.status()
    leads = status.role is Role.LEADER
    voted = status.voted_key
    asked = node.authorization
    return Reading(
        status=status,
        state=_state(status),
        voted_id=-1 if voted is None else voted.id,
        voted_directory_id=str(ZERO_UUID if voted is None else voted.directory_id),
        last_epoch=status.last_epoch,
        observers=_observers(status, node.now_ms()) if leads else None,
        changes_voters=status.changes_voters if leads else None,
        offline_voters=_offline(node, status, leading_since_ms) if leads else None,
        ignores_static_voters=bool(node.config.voters) and status.kraft_version > 0,
        log_bytes=status.log_bytes,
        snapshot_bytes=status.snapshot_bytes,
        sessions=status.sessions,
        connections=status.connections,
        authorizations=None if asked is None else (asked.allowed, asked.denied),
        logins={name: copy(each) for name, each in node.logins.items()},
        bytes_in_flight_max=node.config.max_bytes_in_flight,
        now_ms=node.now_ms(),
        commits=commits,
        elections=elections,
        rates=rates,
        counts=dict(counts),
        leaders=leaders,
        cluster=cluster_state(node),
    )


def _state(status: Status) -> str:
    """Source: Kafka 4.3.1 KafkaRaftMetrics; a resigned leader shows as unattached."""
    role = status.role
    if role is Role.FOLLOWER:
        return "follower" if status.is_voter else "observer"
    if role is Role.RESIGNED:
        return "unattached"
    if role in (Role.UNATTACHED, Role.PROSPECTIVE) and status.voted_key is not None:
        return f"{role.value}-voted"
    return str(role.value)


def _observers(status: Status, now_ms: int) -> int:
    oldest = now_ms - OBSERVER_TIMEOUT_MS
    return sum(not seen.is_voter and seen.last_fetch_ms >= oldest for seen in status.replicas)


def _offline(node: PluginNode, status: Status, leading_since_ms: int) -> int:
    """A new leader gives everybody a fetch timeout to appear. Source: KIP-853, "Monitoring"."""
    seen = {one.key.id: one.last_fetch_ms for one in status.replicas if one.is_voter}
    oldest = node.now_ms() - node.config.fetch_timeout_ms
    others = [voter.key.id for voter in status.voters if voter.key.id != node.key.id]
    return sum(max(seen.get(voter_id, 0), leading_since_ms) < oldest for voter_id in others)
