"""Any sequence of requests keeps the rules of KIP-841 (``ControllerStage.check_rules``), whatever it asks for.

A request is drawn half sensible and half not: brokers that are not there, replicas twice, epochs that are gone.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from controller_stage import ControllerStage, FakeBroker, directory
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_partition_rules import PlainIsrProposals, PlainLeaderElections, PlainPartitionRules

from kraftcore.metadata import Broker
from kraftcore.plugins.controller import elections, isr, updates
from kraftcore.plugins.controller.brokers import fence_expired
from kraftcore.plugins.controller.elections import elect_unclean_leaders, rebalance_leaders
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.records.config_record import ConfigRecord

BROKERS = range(1, 5)
TOPICS = ("t", "u", "t.u")
VERSIONS = (MetadataVersion.V4_3_IV0, MetadataVersion.V3_9_IV0, MetadataVersion.V3_3_IV3)


class Traffic:
    """Draws one step after the other, from hypothesis or from a seed."""

    def __init__(self, choose: random.Random, version: MetadataVersion, elr: int) -> None:
        self.choose = choose
        self.stage = ControllerStage(version, elr=elr if version >= MetadataVersion.V4_0_IV1 else 0)
        self.stage.random = random.Random(choose.randrange(2**32))
        for number in BROKERS[:3]:
            self.stage.up(FakeBroker(number, rack="ab"[number % 2], directories=[directory(number, n) for n in (0, 1)]))
        self.create()

    def step(self) -> None:
        choices = [self.heartbeat] * 8 + [self.alter] * 8 + [self.reassign] * 4 + [self.register] * 3 + [self.elect] * 3
        choices += [self.create] * 2 + [self.grow, self.delete, self.unregister, self.assign, self.configure]
        choices += [self.wait, self.timers, self.stage.fail_over]
        self.choose.choice(choices)()

    def chance(self, part: float) -> bool:
        return self.choose.random() < part

    def ids(self, most: int = 4) -> list[int]:
        count = self.choose.randrange(most)
        return [self.choose.choice((*BROKERS, 9) if self.chance(0.1) else BROKERS) for _ in range(count)]

    def replicas(self) -> list[int]:
        if self.chance(0.2):
            return self.ids()
        return self.choose.sample(BROKERS, self.choose.randrange(1, 4))

    def place(self) -> tuple[str, int]:
        return self.choose.choice(TOPICS), self.choose.randrange(3)

    def partition(self, name: str, number: int) -> Any:
        topic = self.stage.image.topics.by_name(name)
        return None if topic is None else self.stage.image.partitions.get(topic.id, number)

    # --- what brokers ask for

    def register(self) -> None:
        number = self.choose.choice(BROKERS)
        broker = self.stage.brokers.get(number) or FakeBroker(number)
        before, broker.incarnation = broker.incarnation, broker.incarnation + self.choose.choice((0, 1, 1))
        previous = broker.epoch if self.chance(0.5) else -1
        step = self.stage.register(broker, previous_broker_epoch=previous)
        if step.error is not None:
            broker.incarnation = before

    def heartbeat(self) -> None:
        number = self.choose.choice(BROKERS)
        wants = self.choose.choice(((False, False), (False, False), (True, False), (False, True), (True, True)))
        changes: dict[str, Any] = {"want_fence": wants[0], "want_shut_down": wants[1]}
        if self.chance(0.2):
            changes["current_metadata_offset"] = self.choose.randrange(self.stage.offset + 1)
        if self.chance(0.15):
            changes["offline_log_dirs"] = [directory(self.choose.choice(BROKERS), self.choose.randrange(3))]
        if self.chance(0.1):
            changes["cordoned_log_dirs"] = [directory(number, n) for n in range(self.choose.randrange(3))]
        self.stage.heartbeat(number, **changes)

    def alter(self) -> None:
        name, number = self.place()
        partition = self.partition(name, number)
        sender = partition.leader if partition is not None and partition.leader > 0 else self.choose.choice(BROKERS)
        if self.chance(0.1):
            sender = self.choose.choice(BROKERS)
        if sender not in self.stage.brokers:
            return
        isr = list(partition.replicas) if partition is not None and self.chance(0.5) else self.replicas()
        changes: dict[str, Any] = {"leader_recovery_state": int(self.chance(0.2))}
        if self.chance(0.1):
            changes[self.choose.choice(("leader_epoch", "partition_epoch"))] = self.choose.choice((-1, 1))
        self.stage.alter(sender, name, number, isr, version=self.choose.choice((2, 3)), **changes)

    def assign(self) -> None:
        name, number = self.place()
        topic = self.stage.image.topics.by_name(name)
        broker = self.choose.choice(list(self.stage.brokers.values()))
        if topic is None:
            return
        kind = AssignReplicasToDirsRequest.DirectoryData
        where = directory(self.choose.choice(BROKERS), self.choose.randrange(3))
        partitions = [kind.TopicData.PartitionData(partition_index=number)]
        wanted = kind(id=where, topics=[kind.TopicData(topic_id=topic.id, partitions=partitions)])
        request = AssignReplicasToDirsRequest(
            broker_id=broker.id, broker_epoch=broker.epoch, directories=[wanted] * self.choose.choice((1, 2))
        )
        self.stage.ask(request)

    # --- what administrators ask for

    def create(self) -> None:
        kind = CreateTopicsRequest.CreatableTopic
        topic = kind(name=self.choose.choice(TOPICS), num_partitions=-1, replication_factor=-1)
        if self.chance(0.5):
            size = self.choose.randrange(1, 4)
            topic.assignments = [
                kind.CreatableReplicaAssignment(partition_index=n, broker_ids=self.choose.sample(BROKERS, size))
                for n in range(3)
            ]
        else:
            topic.num_partitions, topic.replication_factor = 3, self.choose.randrange(4)
        if self.chance(0.3):
            value = str(self.choose.randrange(4))
            topic.configs = [kind.CreatableTopicConfig(name="min.insync.replicas", value=value)]
        self.stage.ask(CreateTopicsRequest(topics=[topic]))

    def grow(self) -> None:
        kind = CreatePartitionsRequest.CreatePartitionsTopic
        topic = kind(name=self.choose.choice(TOPICS), count=self.choose.randrange(6), assignments=None)
        self.stage.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1))

    def delete(self) -> None:
        kind = DeleteTopicsRequest.DeleteTopicState
        self.stage.ask(DeleteTopicsRequest(topics=[kind(name=self.choose.choice(TOPICS))], timeout_ms=1))

    def unregister(self) -> None:
        self.stage.ask(UnregisterBrokerRequest(broker_id=self.choose.choice(BROKERS)))

    def reassign(self) -> None:
        name, number = self.place()
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        replicas = None if self.chance(0.3) else self.replicas()
        topic = kind(name=name, partitions=[kind.ReassignablePartition(partition_index=number, replicas=replicas)])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        request.allow_replication_factor_change = self.chance(0.8)
        self.stage.ask(request)

    def elect(self) -> None:
        name, number = self.place()
        topics = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[number])]
        request = ElectLeadersRequest(election_type=self.choose.randrange(2), topic_partitions=topics)
        if self.chance(0.3):
            request.topic_partitions = None
        self.stage.ask(request)

    def configure(self) -> None:
        topic = self.stage.image.topics.by_name(self.choose.choice(TOPICS))
        if topic is not None:
            value = self.choose.choice(("true", "false"))
            key = "unclean.leader.election.enable"
            self.stage.apply((ConfigRecord(resource_type=2, resource_name=topic.name, name=key, value=value), 0))

    # --- time

    def wait(self) -> None:
        self.stage.now_ms += self.choose.choice((1, 3_000, 9_001))

    def timers(self) -> None:
        for decide in (fence_expired, rebalance_leaders, elect_unclean_leaders):
            while self.stage.on_timer(decide).decision.is_more:
                pass


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.sampled_from(VERSIONS), st.integers(0, 1), st.integers(1, 120))
def test_any_sequence_of_requests_keeps_the_rules(choose, version, elr, steps):
    traffic = Traffic(choose, version, elr)
    for _ in range(steps):
        traffic.step()


@pytest.mark.parametrize("seed", range(12))
def test_long_sequences_keep_the_rules(seed):
    choose = random.Random(seed)
    traffic = Traffic(choose, VERSIONS[seed % 3], seed // 3 % 2)
    for _ in range(600):
        traffic.step()


def run_until_a_rule_breaks() -> bool:
    for seed in range(20):
        traffic = Traffic(random.Random(seed), MetadataVersion.V4_3_IV0, seed % 2)
        try:
            for _ in range(300):
                traffic.step()
        except AssertionError:
            return True
    return False


class FencedBrokersLead(PlainPartitionRules):
    def may_lead(self, broker_id, partition):
        return broker_id in partition.replicas


class FencedBrokersStay(PlainPartitionRules):
    def change(self, topic_id, partition_id, before, min_isr, *, isr=None, **more):
        return super().change(topic_id, partition_id, before, min_isr, isr=isr and before.isr, **more)


def use_rules(patch, rules):
    patch.setattr(updates, "PartitionRules", rules)
    patch.setattr(isr, "IsrProposals", PlainIsrProposals)
    patch.setattr(elections, "LeaderElections", PlainLeaderElections)


def fenced_brokers_lead(patch):
    use_rules(patch, FencedBrokersLead)


def fenced_brokers_stay(patch):
    use_rules(patch, FencedBrokersStay)


def fenced_brokers_may_join(patch):
    patch.setattr(Broker, "is_active", True)


@pytest.mark.parametrize("fault", [fenced_brokers_lead, fenced_brokers_stay, fenced_brokers_may_join])
def test_a_planted_fault_breaks_a_rule(fault, monkeypatch):
    fault(monkeypatch)
    assert run_until_a_rule_breaks()


@pytest.mark.parametrize("is_plain", [False, True])
def test_without_a_fault_none_breaks(is_plain, monkeypatch):
    if is_plain:
        use_rules(monkeypatch, PlainPartitionRules)
    assert not run_until_a_rule_breaks()
