"""What clients are told of a cluster, read from the metadata image when they ask.

Source: Kafka 4.3.1, KRaftMetadataCache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Broker, Image
from kraftcore.metadata import Partition as PartitionRow
from kraftcore.plugins.broker.metadata.cache import LiveBroker, MetadataCache
from kraftcore.ports.transport import Address
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState

NO_LEADER = -1


class ImageCache(MetadataCache):
    """Answers what clients ask about the cluster from a metadata image: the one it was given last, as it is now.

    Topics are read from the image at each question. The brokers are a copy of the image's, so that finding one costs a
    look-up: ``show`` is called after each batch of records, before anybody asks. So no answer names a partition
    without the broker that leads it.

    Args:
        broker_id: id of this broker. Clients send it the requests for the controller, which it passes on.
    """

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._registered: dict[int, Broker] | None = None
        self._image = Image()
        self.show(self._image)

    def show(self, image: Image) -> None:
        """Answer from this image; to be called for a new image and after each change of it."""
        registered = image.brokers.snapshot()
        if registered == self._registered and image is self._image:
            return
        self._image, self._registered = image, registered
        self.brokers = {each.id: _live(each) for each in image.brokers.values() if not each.is_fenced}
        self.controller_id = self._broker_id if self._broker_id in self.brokers else min(self.brokers, default=None)
        self.topics = _Topics(self)
        self.ids = _Ids(image)
        self.names = _Names(image)

    def partition(self, topic: str, partition: int) -> UpdateMetadataPartitionState | None:
        """See `MetadataCache`."""
        known = self._image.topics.by_name(topic)
        row = None if known is None else self._image.partitions.get(known.id, partition)
        return None if row is None else self._state(topic, partition, row)

    def knows(self, topic: str, partition: int) -> bool:
        """See `MetadataCache`."""
        known = self._image.topics.by_name(topic)
        return known is not None and self._image.partitions.get(known.id, partition) is not None

    def partition_count(self, topic: str) -> int:
        """See `MetadataCache`."""
        known = self._image.topics.by_name(topic)
        return 0 if known is None else self._image.partitions.count(known.id)

    def partitions(self, topic: str) -> dict[int, UpdateMetadataPartitionState] | None:
        """All partitions of a topic, or None if there is no such topic."""
        known = self._image.topics.by_name(topic)
        if known is None:
            return None
        return {number: self._state(topic, number, row) for number, row in self._image.partitions.of_topic(known.id)}

    def topic_names(self) -> list[str]:
        """The names of all topics."""
        return [topic.name for topic in self._image.topics.values()]

    def _state(self, topic: str, partition: int, row: PartitionRow) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            topic_name=topic,
            partition_index=partition,
            leader=row.leader,
            leader_epoch=row.leader_epoch,
            isr=list(row.isr),
            replicas=list(row.replicas),
            offline_replicas=[each for each in row.replicas if not self._is_online(each, row)],
        )

    def _is_online(self, broker_id: int, row: PartitionRow) -> bool:
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.is_fenced:
            return False
        return bool(broker.has_online_directory(row.directory_of(broker_id)))


def _live(broker: Broker) -> LiveBroker:
    endpoints = {each.name: Address(each.host, each.port) for each in broker.listeners}
    return LiveBroker(broker.id, broker.rack, endpoints, broker.epoch, broker.is_active)


class _Topics(Mapping[str, Mapping[int, UpdateMetadataPartitionState]]):
    def __init__(self, cache: ImageCache) -> None:
        self._cache = cache

    def __getitem__(self, name: str) -> Mapping[int, UpdateMetadataPartitionState]:
        found = self._cache.partitions(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._cache.topic_names())

    def __len__(self) -> int:
        return len(self._cache.topic_names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._cache.ids.get(name) is not None


class _Ids(Mapping[str, Uuid]):
    def __init__(self, image: Image) -> None:
        self._topics = image.topics

    def __getitem__(self, name: str) -> Uuid:
        found = self._topics.by_name(name)
        if found is None:
            raise KeyError(name)
        return found.id

    def __iter__(self) -> Iterator[str]:
        return iter([topic.name for topic in self._topics.values()])

    def __len__(self) -> int:
        return len(self._topics)


class _Names(Mapping[Uuid, str]):
    def __init__(self, image: Image) -> None:
        self._topics = image.topics

    def __getitem__(self, topic_id: Uuid) -> str:
        return str(self._topics[topic_id].name)

    def __iter__(self) -> Iterator[Uuid]:
        return iter(list(self._topics))

    def __len__(self) -> int:
        return len(self._topics)
