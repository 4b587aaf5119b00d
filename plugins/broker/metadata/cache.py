"""The brokers and partitions of the cluster, as this broker tells clients.

Clients are told from here; what the broker does with its own partitions goes another way (``Replicas.assign``).
`RequestCache` holds what UpdateMetadata announced; ``kraft.image_cache`` reads the metadata image. Source: Kafka 3.9.1,
ZkMetadataCache; Kafka 4.3.1, KRaftMetadataCache.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import UNKNOWN_BROKER_EPOCH
from kraftcore.ports.transport import Address
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest

LEADER_DURING_DELETE = -2
"""Leader of a partition that is being deleted."""
_PLAINTEXT = "PLAINTEXT"


class LiveBroker(NamedTuple):
    """A broker that is alive.

    Attributes:
        id: the broker id.
        rack: the broker's rack, or None.
        endpoints: address by the listener's name.
        epoch: the broker epoch; -1: unknown.
        is_eligible: whether the broker may be proposed for an ISR: it is not shutting down (KIP-841).
    """

    id: int
    rack: str | None
    endpoints: Mapping[str, Address]
    epoch: int = UNKNOWN_BROKER_EPOCH
    is_eligible: bool = True


class MetadataCache:
    """The brokers and partitions of the cluster, as the controller told them. Only the owner changes it.

    Attributes:
        brokers: by id; those that are alive, that is, not fenced.
        controller_id: whom clients are sent to with what only a controller does, or None.
        topics: partitions by number, by topic.
        ids: topic id by name, of topics that have one.
        names: the reverse.
    """

    brokers: Mapping[int, LiveBroker]
    controller_id: int | None
    topics: Mapping[str, Mapping[int, UpdateMetadataPartitionState]]
    ids: Mapping[str, Uuid]
    names: Mapping[Uuid, str]

    def partition(self, topic: str, partition: int) -> UpdateMetadataPartitionState | None:
        """A partition as announced, or None."""
        return self.topics.get(topic, {}).get(partition)

    def knows(self, topic: str, partition: int) -> bool:
        """Whether the partition exists."""
        return self.partition(topic, partition) is not None

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; 0: the topic is unknown."""
        return len(self.topics.get(topic, ()))

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is alive."""
        return broker_id in self.brokers

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a replica may be proposed for the ISR.

        Args:
            broker_id: its broker.
            broker_epoch: of the incarnation that fetches; -1: it does not say (KIP-903).
        """
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.is_eligible:
            return False
        return broker_epoch == UNKNOWN_BROKER_EPOCH or broker.epoch in (UNKNOWN_BROKER_EPOCH, broker_epoch)

    def address(self, broker_id: int, listener: str) -> Address | None:
        """The address of a live broker on a listener, or None."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def brokers_on(self, listener: str) -> Iterable[tuple[LiveBroker, Address]]:
        """The live brokers that have a listener of this name, with its addresses."""
        for broker in self.brokers.values():
            address = broker.endpoints.get(listener)
            if address is not None:
                yield broker, address


class RequestCache(MetadataCache):
    """What the controller announced by UpdateMetadata.

    Attributes:
        announcer_id: the controller itself, or None. Where it is one of KRaft, which is no broker, clients are sent to
            some broker that is alive (Kafka 3.9.1, KafkaApis.handleTopicMetadataRequest).
    """

    brokers: dict[int, LiveBroker]
    topics: dict[str, dict[int, UpdateMetadataPartitionState]]
    ids: dict[str, Uuid]
    names: dict[Uuid, str]

    def __init__(self) -> None:
        self.brokers = {}
        self.controller_id = None
        self.announcer_id: int | None = None
        self.topics = {}
        self.ids = {}
        self.names = {}

    def update(self, request: UpdateMetadataRequest, version: int) -> set[TopicPartition]:
        """Take over what a request says. Brokers it does not name are not alive; topics it does not name stay.

        Returns:
            The partitions that are deleted.
        """
        self.announcer_id = self.controller_id = None if request.controller_id < 0 else request.controller_id
        self.brokers = {each.id: _live_broker(each, version) for each in request.live_brokers}
        if request.is_kraft_controller and self.announcer_id is not None:
            self.controller_id = random.choice(tuple(self.brokers)) if self.brokers else None
        told = []
        for topic in request.topic_states:
            self._name(topic.topic_name, topic.topic_id)
            told += [(topic.topic_name, state) for state in topic.partition_states]
        told += [(state.topic_name, state) for state in request.ungrouped_partition_states]
        deleted = set()
        for name, state in told:
            self._put(name, state)
            if _is_deleted(state):
                deleted.add(TopicPartition(name, state.partition_index))
            else:  # deleted, and made anew since
                deleted.discard(TopicPartition(name, state.partition_index))
        return deleted

    def _name(self, topic: str, topic_id: Uuid) -> None:
        before = self.ids.get(topic)
        if before is not None:
            self.names.pop(before, None)
        if topic_id == ZERO_UUID:
            self.ids.pop(topic, None)
        else:
            self.ids[topic] = topic_id
            self.names[topic_id] = topic

    def _put(self, topic: str, state: UpdateMetadataPartitionState) -> None:
        if not _is_deleted(state):
            self.topics.setdefault(topic, {})[state.partition_index] = state
            return
        partitions = self.topics.get(topic, {})
        partitions.pop(state.partition_index, None)
        if not partitions:
            self.topics.pop(topic, None)
            self.names.pop(self.ids.pop(topic, ZERO_UUID), None)


def _is_deleted(state: UpdateMetadataPartitionState) -> bool:
    return state.leader == LEADER_DURING_DELETE


def _live_broker(told: UpdateMetadataRequest.UpdateMetadataBroker, version: int) -> LiveBroker:
    if version == 0:
        return LiveBroker(told.id, None, {_PLAINTEXT: Address(told.v0_host, told.v0_port)})
    # Before there were listener names, a listener was called as its security protocol; 0 is PLAINTEXT.
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    endpoints = {}
    for endpoint in told.endpoints:
        protocol = endpoint.security_protocol
        name = endpoint.listener if version >= 3 else names[protocol] if 0 <= protocol < len(names) else ""
        endpoints[name] = Address(endpoint.host, endpoint.port)
    return LiveBroker(told.id, told.rack, endpoints)
