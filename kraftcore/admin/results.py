"""The values that the admin client returns about quorums, nodes and features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """A replica's progress, as its leader sees it (KIP-836).

    Attributes:
        key: id and directory id; the directory id is zero with kraft.version 0.
        log_end_offset: next offset it will fetch; -1 while unknown.
        last_fetch_ms: when it last fetched, milliseconds since 1970 by the leader's clock; None while unknown.
        last_caught_up_ms: when its log was last as long as the leader's, as ``last_fetch_ms``; None while unknown.
    """

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The leader's view of the quorum.

    Attributes:
        leader_id: replica id of the leader.
        leader_epoch: its epoch.
        high_watermark: the offset below which records are committed; -1 while a new leader has none.
        voters: as the leader lists them.
        observers: replicas that fetch and do not vote.
        endpoints: where voters listen, by replica id; empty from nodes before Kafka 3.9.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]
    endpoints: Mapping[int, tuple[Endpoint, ...]]

    @property
    def leader(self) -> ReplicaProgress | None:
        """The leader among the voters; None if the leader has just removed itself."""
        return next((voter for voter in self.voters if voter.key.id == self.leader_id), None)

    @property
    def end_offset(self) -> int:
        """The leader's log end offset, or the highest offset known if the leader is not a voter."""
        leader = self.leader
        if leader is not None:
            return leader.log_end_offset
        replicas = (*self.voters, *self.observers)
        return max((replica.log_end_offset for replica in replicas), default=self.high_watermark)

    def lag(self, replica: ReplicaProgress) -> int:
        """How many records a replica lacks; one more than the log end offset while the replica's is unknown."""
        return self.end_offset - replica.log_end_offset


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A broker, or a controller that has registered.

    Attributes:
        id: node id.
        host: name or address.
        port: 1 to 65535.
        rack: None if it has none.
        is_fenced: whether it is a fenced broker; only known when fenced brokers were asked for.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster's id, controller and nodes.

    Attributes:
        cluster_id: its id.
        controller_id: the active controller, or through brokers a node to send controller requests to; None if the
            node that answered knows none.
        nodes: controllers when asked through a controller, else brokers; by id.
    """

    cluster_id: str
    controller_id: int | None
    nodes: tuple[NodeAddress, ...]


@dataclass(frozen=True, slots=True)
class FeatureStatus:
    """A feature as one node sees it (KIP-584).

    Attributes:
        name: for example ``kraft.version``.
        min_supported: lowest level the node supports.
        max_supported: highest level the node supports.
        finalized: level in force in the cluster; 0 is off.
    """

    name: str
    min_supported: int
    max_supported: int
    finalized: int


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """All features of the node that answered.

    Attributes:
        features: by name.
        epoch: offset up to which the node has applied finalized levels; None if it does not say.
    """

    features: Mapping[str, FeatureStatus]
    epoch: int | None
