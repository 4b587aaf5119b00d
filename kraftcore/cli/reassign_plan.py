"""Where replicas go, and who is throttled meanwhile: what ``kraftcore reassign`` works out by itself.

Source: Kafka 4.3.1, AdminUtils.assignReplicasToBrokers and ReassignPartitionsCommand; KIP-36, 73, 455.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftcore.admin import NodeAddress, Reassignment, TopicPartition
from kraftcore.errors import LocalError


@dataclass(frozen=True, slots=True)
class Move:
    """One partition on its way.

    Attributes:
        sources: brokers that have it, ids.
        destinations: brokers that get it.
    """

    sources: frozenset[int]
    destinations: frozenset[int]


def propose(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Sequence[NodeAddress], *, by_rack: bool
) -> dict[TopicPartition, list[int]]:
    """Spread topics evenly over brokers, with as many partitions and replicas as they have.

    Args:
        current: broker ids of all partitions of the topics.
        brokers: where they shall be.
        by_rack: no rack gets two replicas of a partition while another has none.

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
    proposed = {}
    for topic in sorted({each.topic for each in current}):
        partitions = sorted(each for each in current if each.topic == topic)
        spread = _spread(racks, len(partitions), len(current[partitions[0]]))
        proposed.update({TopicPartition(topic, number): replicas for number, replicas in enumerate(spread)})
    return proposed


def _spread(racks: Mapping[int, str | None], partitions: int, replicas: int) -> list[list[int]]:
    """Leaders take turns; followers are shifted by one more each round. Without racks each broker counts as one."""
    if replicas > len(racks):
        raise LocalError(f"Replication factor: {replicas} larger than available brokers: {len(racks)}.")
    rack_of = {broker: rack if rack is not None else f"broker {broker}" for broker, rack in racks.items()}
    brokers = _alternating(rack_of) if any(racks.values()) else sorted(racks)
    count, rack_count = len(brokers), len(set(rack_of.values()))
    start, shift = random.randrange(count), random.randrange(count)
    found = []
    for number in range(partitions):
        if number > 0 and number % count == 0:
            shift += 1
        first = (number + start) % count
        chosen = [brokers[first]]
        place = 0
        while len(chosen) < replicas:
            step = 1 + (shift * (rack_count if any(racks.values()) else 1) + place) % (count - 1)
            broker = brokers[(first + step) % count]
            place += 1
            held = {rack_of[each] for each in chosen}
            if broker not in chosen and (rack_of[broker] not in held or len(held) == rack_count):
                chosen.append(broker)
        found.append(chosen)
    return found


def _alternating(rack_of: Mapping[int, str]) -> list[int]:
    """Brokers so that neighbours are in different racks as long as that is possible."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(rack_of):
        by_rack[rack_of[broker]].append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    return [queue[place] for place in range(max(map(len, queues))) for queue in queues if place < len(queue)]


def moves(
    under_way: Mapping[TopicPartition, Reassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """All partitions that move once the proposed ones do as well.

    Args:
        under_way: reassignments that have begun.
        proposed: broker ids by partition.
        current: the same now.
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
    """By topic the values of leader.replication.throttled.replicas and of the same for followers."""
    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    for partition, move in moving.items():
        leaders[partition.topic].update(f"{partition.partition}:{each}" for each in move.sources)
        followers[partition.topic].update(f"{partition.partition}:{each}" for each in move.destinations)
    return {topic: (",".join(sorted(leaders[topic])), ",".join(sorted(followers[topic]))) for topic in sorted(leaders)}
