"""Scripted administrators: topics, partitions, configurations, elections, reassignments, features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftcore.metadata.configs import TOPIC
from kraftcore.plugins.controller.simulated.clients import Client, heard
from kraftcore.plugins.controller.simulated.rules import REGISTER, Rules
from kraftcore.protocol.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.schema import Request
from kraftcore.raft.roles import Role
from kraftcore.simulation.world import World

_NAMES: Final = tuple(f"topic-{number}" for number in range(8))
_MOST_PARTITIONS: Final = 40  # of one topic; more would only make the checks slow
_SET: Final = 0
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


class Admin(Client):
    """One administrator.

    Args:
        world: the simulated world.
        number: its number in the network.
        rules: has the committed state.
        brokers: ids of all brokers.
    """

    def __init__(self, world: World, number: int, rules: Rules, brokers: Sequence[int]) -> None:
        super().__init__(world, number)
        self._rules = rules
        self._brokers = list(brokers)
        self._drawn = 0
        self._wishes: list[tuple[float, Callable[[], Request | None]]] = [
            (6, self._create),
            (2, self._delete),
            (2, self._grow),
            (6, self.set_register),
            (6, self._read_register),
            (3, self._elect),
            (4, self.reassign),
            (1, self._list),
            (1, self._update_feature),
            (0.5, self._unregister),
        ]

    def act(self) -> None:
        """Send a request, drawn at random."""
        wishes, weights = [wish for _, wish in self._wishes], [weight for weight, _ in self._wishes]
        request = self.rng.choices(wishes, weights)[0]()
        if request is not None:
            self.send(request, heard)

    def doubt(self) -> None:
        """Read from a host that wrongly believes that it leads, if there is one."""
        world = self.world
        leading = [host for host in world.hosts if host.is_up and host.replica.role is Role.LEADER]
        request = self._read_register() if len(leading) > 1 else None
        if request is not None:
            self.send(request, heard, to=min(leading, key=lambda host: host.replica.epoch))

    def topic(self) -> str | None:
        """The name of some topic, or None."""
        names = sorted(topic.name for topic in self._rules.reference.topics.values())
        return self.rng.choice(names) if names else None

    def _partition(self) -> tuple[str, int] | None:
        name = self.topic()
        topic = None if name is None else self._rules.reference.topics.by_name(name)
        if topic is None:
            return None
        return topic.name, self.rng.randrange(max(self._rules.reference.partitions.count(topic.id), 1))

    # --- topics -------------------------------------------------------------------------------------------------------

    def _create(self) -> Request:
        rng = self.rng
        kind = CreateTopicsRequest.CreatableTopic
        configs = {REGISTER: str(self._next())}
        if rng.random() < 0.3:
            configs["unclean.leader.election.enable"] = "true"
        if rng.random() < 0.4:
            configs["min.insync.replicas"] = "2"
        topics = [
            kind(
                name=name,
                num_partitions=rng.choice((1, 2, 3, _MOST_PARTITIONS)),
                replication_factor=rng.choice((1, 2, 3, 3)),
                configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name in rng.sample(_NAMES, rng.choice((1, 1, 2)))
        ]
        if rng.random() < 0.2:
            replicas = rng.sample(self._brokers, min(2, len(self._brokers)))
            topics[0].num_partitions = topics[0].replication_factor = -1
            topics[0].assignments = [kind.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        return CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=rng.random() < 0.1)

    def _delete(self) -> Request | None:
        name = self.topic()
        if name is None:
            return None
        return DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=10_000)

    def _grow(self) -> Request | None:
        found = self._partition()
        topic = None if found is None else self._rules.reference.topics.by_name(found[0])
        if topic is None:
            return None
        count = self._rules.reference.partitions.count(topic.id) + self.rng.randrange(3)
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(
            name=topic.name, count=min(count, _MOST_PARTITIONS), assignments=None
        )
        return CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)

    # --- configurations -----------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._drawn += 1
        return 1_000_000 + 1000 * self._drawn + abs(self.number) % 1000  # no other administrator writes this value

    def set_register(self) -> Request | None:
        """Write a value that no other administrator writes."""
        name = self.topic()
        if name is None:
            return self._create()
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = kind.AlterableConfig(name=REGISTER, config_operation=_SET, value=str(self._next()))
        return IncrementalAlterConfigsRequest(
            resources=[kind(resource_type=TOPIC, resource_name=name, configs=[config])]
        )

    def _read_register(self) -> Request | None:
        name = self.topic()
        if name is None:
            return None
        kind = DescribeConfigsRequest.DescribeConfigsResource
        return DescribeConfigsRequest(
            resources=[kind(resource_type=TOPIC, resource_name=name, configuration_keys=[REGISTER])]
        )

    # --- elections and reassignments ----------------------------------------------------------------------------------

    def _elect(self) -> Request:
        found = self._partition()
        wanted: Any = None
        if found is not None and self.rng.random() < 0.5:
            wanted = [ElectLeadersRequest.TopicPartitions(topic=found[0], partitions=[found[1]])]
        return ElectLeadersRequest(election_type=self.rng.randrange(2), topic_partitions=wanted, timeout_ms=10_000)

    def reassign(self) -> Request | None:
        """Reassign some partition, or cancel its reassignment."""
        found = self._partition()
        if found is None:
            return None
        rng = self.rng
        replicas: list[int] | None = rng.sample(self._brokers, rng.randrange(1, min(4, len(self._brokers)) + 1))
        if rng.random() < 0.25:
            replicas = None  # cancels
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        partition = kind.ReassignablePartition(partition_index=found[1], replicas=replicas)
        return AlterPartitionReassignmentsRequest(
            topics=[kind(name=found[0], partitions=[partition])], timeout_ms=10_000
        )

    def _list(self) -> Request:
        return ListPartitionReassignmentsRequest(timeout_ms=10_000)

    # --- the cluster --------------------------------------------------------------------------------------------------

    def _update_feature(self) -> Request:
        name = ELIGIBLE_LEADER_REPLICAS_VERSION.name
        level = 0 if self._rules.reference.features.is_elr_on else 1
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=_UPGRADE if level else _SAFE_DOWNGRADE
        )
        return UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000)

    def _unregister(self) -> Request:
        return UnregisterBrokerRequest(broker_id=self.rng.choice(self._brokers))
