"""Computes the proposals of ``kraftcore reassign``, and the replicas that are throttled meanwhile.

Source: Kafka 4.3.1, ReassignPartitionsCommand; KIP-36, 73, 455. Kafka's tool places replicas as its controller does.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftcore.admin import NodeAddress, Reassignment, TopicPartition
from kraftcore.admin.calls import by_topic
from kraftcore.errors import LocalError
from kraftcore.plugins.controller.decision import Refusal
from kraftcore.plugins.controller.placement import UsableBroker, place


@dataclass(frozen=True, slots=True)
class Move:
    """One partition that is moved.

    Attributes:
        sources: ids of brokers that have the partition.
        destinations: ids of brokers that get it.
    """

    sources: frozenset[int]
    destinations: frozenset[int]


def propose(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Sequence[NodeAddress], *, by_rack: bool
) -> dict[TopicPartition, Sequence[int]]:
    """Spread topics evenly over brokers, with as many partitions and replicas as they have.

    Args:
        current: broker ids of all partitions of the topics.
        brokers: to spread them over.
        by_rack: spread each partition over racks.

    Raises:
        LocalError: fewer brokers than replicas, or some have racks and some do not.
    """
    racks = {broker.id: broker.rack if by_rack else None for broker in brokers}
    with_rack = [rack for rack in racks.values() if rack is not None]
    if by_rack and 0 < len(with_rack) < len(racks):
        raise LocalError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    usable = [UsableBroker(broker.id, racks[broker.id], broker.is_fenced) for broker in brokers]
    proposed: dict[TopicPartition, Sequence[int]] = {}
    for topic, numbers in sorted(by_topic(current).items()):
        first = TopicPartition(topic, min(numbers))
        try:
            spread = place(usable, len(numbers), len(current[first]), random.SystemRandom())
        except Refusal as refusal:
            raise LocalError(refusal.text or refusal.code.name) from None
        proposed.update({TopicPartition(topic, number): replicas for number, replicas in enumerate(spread)})
    return proposed


def moves(
    under_way: Mapping[TopicPartition, Reassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """All partitions that move after the proposal is begun.

    Args:
        under_way: reassignments that have begun.
        proposed: proposed broker ids by partition.
        current: present broker ids by partition.
    """
    found = {
        partition: Move(frozenset(each.replicas) - frozenset(each.adding), frozenset(each.adding))
        for partition, each in under_way.items()
    }
    for partition, replicas in proposed.items():
        known = found.get(partition)
        sources = frozenset(current[partition]) if known is None else known.sources
        found[partition] = Move(sources, frozenset(replicas) - sources)
    return found


def throttled_replicas(moving: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, str]]:
    """By topic the values of leader. and follower.replication.throttled.replicas."""
    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    for partition, move in moving.items():
        leaders[partition.topic].update(f"{partition.partition}:{each}" for each in move.sources)
        followers[partition.topic].update(f"{partition.partition}:{each}" for each in move.destinations)
    return {topic: (",".join(sorted(leaders[topic])), ",".join(sorted(followers[topic]))) for topic in sorted(leaders)}
