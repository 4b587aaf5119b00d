"""What a node's image of the cluster counts, for the metrics that Kafka's controllers have.

Source: Kafka 4.3.1 ControllerMetadataMetrics, QuorumControllerMetrics, MetadataLoaderMetrics.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

from kraftcore.metadata.cluster import Broker
from kraftcore.metadata.image import Image
from kraftcore.metadata.machine import MetadataMachine
from kraftcore.node.plugin_node import PluginNode


class Registration(IntEnum):
    """The states of a registered broker, as ``BrokerRegistrationState`` numbers them."""

    FENCED = 10
    CONTROLLED_SHUTDOWN = 20
    ACTIVE = 30


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster at one moment, by a controller's applied records.

    Attributes:
        brokers: the state of each registered broker, by id.
        topics: how many there are.
        partitions: likewise.
        offline: partitions without a leader.
        not_preferred: partitions that their first replica does not lead.
        metadata_version: the finalized level; 0: none.
    """

    brokers: dict[int, Registration]
    topics: int
    partitions: int
    offline: int
    not_preferred: int
    metadata_version: int

    @property
    def by_registration(self) -> Counter[Registration]:
        """How many brokers are in each state."""
        return Counter(self.brokers.values())


def cluster_state(node: PluginNode) -> ClusterState | None:
    """The cluster of a controller; None: the node is none, or cannot follow its log.

    Costs a step a broker, none a topic or partition; call it from the node's task.
    """
    machine = node.state_machine
    if not isinstance(machine, MetadataMachine) or not node.config.can_become_voter or machine.trouble is not None:
        return None
    image: Image = machine.image
    return ClusterState(
        brokers={broker.id: _registration(broker) for broker in image.brokers.values()},
        topics=len(image.topics),
        partitions=len(image.partitions),
        offline=image.partitions.leaderless_count,
        not_preferred=image.partitions.not_preferred_count,
        metadata_version=machine.levels.get("metadata.version", 0),
    )


def _registration(broker: Broker) -> Registration:
    if broker.is_fenced:
        return Registration.FENCED
    return Registration.CONTROLLED_SHUTDOWN if broker.is_shutting_down else Registration.ACTIVE
