"""What differs between two images, wherever they come from: two clusters, or one at two moments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from kraftcore.metadata.delta import Delta
from kraftcore.metadata.image import Image
from kraftcore.metadata.journal import Change
from kraftcore.metadata.partition import Partition
from kraftcore.protocol.topics import PartitionKey

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def differences(before: Image, after: Image) -> Delta:
    """The changes that make one image of the other.

    As `Image.delta`, but of images that need not have a history in common.
    """
    return Delta(
        features=_changes(before.features, after.features),
        brokers=_changes(before.brokers, after.brokers),
        controllers=_changes(before.controllers, after.controllers),
        topics=_changes(before.topics, after.topics),
        partitions=_partition_changes(before, after),
        configs=_changes(before.configs, after.configs),
        quotas=_changes(before.quotas, after.quotas),
        acls=_changes(before.acls, after.acls),
        scram=_changes(before.scram, after.scram),
        tokens=_changes(before.tokens, after.tokens),
        next_producer_id=None
        if before.producer_ids.next_id == after.producer_ids.next_id
        else Change(before.producer_ids.next_id, after.producer_ids.next_id),
    )


def _changes(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, Change[V]]:
    return {
        key: Change(before.get(key), after.get(key)) for key in {**before, **after} if before.get(key) != after.get(key)
    }


def _partition_changes(before: Image, after: Image) -> dict[PartitionKey, Change[Partition]]:
    found: dict[PartitionKey, Change[Partition]] = {}
    for topic_id in {**before.topics, **after.topics}:
        changes = _changes(dict(before.partitions.of_topic(topic_id)), dict(after.partitions.of_topic(topic_id)))
        found |= {PartitionKey(topic_id, number): change for number, change in changes.items()}
    return found
