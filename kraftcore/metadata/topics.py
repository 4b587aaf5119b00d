"""Names and ids of topics in the image (KIP-516)."""

from __future__ import annotations

from typing import NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.errors import MetadataRecordError
from kraftcore.metadata.journal import Journal, Part
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord


class Topic(NamedTuple):
    """A topic's id and name; `Partitions` has its partitions.

    Attributes:
        id: drawn when the topic was created; a topic created again under the same name has another id.
        name: as clients call it.
    """

    id: Uuid
    name: str


def metric_name(topic_name: str) -> str:
    """A topic's name in metrics, where Kafka cannot tell ``.`` from ``_``; two topics must not share it."""
    return topic_name.replace(".", "_")


class Topics(Part[Uuid, Topic]):
    """Topics by id, with look-ups by name."""

    __slots__ = ("_by_metric_name", "_by_name")

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self._by_name: dict[str, Topic] = {}
        # Only for names with a dot or an underscore; nearly always one name for each key.
        self._by_metric_name: dict[str, dict[str, None]] = {}

    def by_name(self, name: str) -> Topic | None:
        """The topic with this name, or None."""
        return self._by_name.get(name)

    def colliding_with(self, name: str) -> str | None:
        """A topic's name that differs from ``name`` only in dots and underscores; None if there is none."""
        others = self._by_metric_name.get(metric_name(name), ())
        return next((other for other in others if other != name), None)

    def on_topic(self, record: TopicRecord) -> None:
        """Add a topic.

        Raises:
            MetadataRecordError: its name or its id belongs to a topic already.
        """
        known = self._by_name.get(record.name) or self._items.get(record.topic_id)
        if known is not None:
            raise MetadataRecordError(
                record, f"topic {record.name} with id {record.topic_id}: {known.name} has the id {known.id}"
            )
        self.put(record.topic_id, Topic(record.topic_id, record.name))

    def on_remove(self, record: RemoveTopicRecord) -> Topic:
        """Remove a topic.

        Raises:
            MetadataRecordError: there is no such topic.
        """
        topic = self._items.get(record.topic_id)
        if topic is None:
            raise MetadataRecordError(record, f"there is no topic with the id {record.topic_id}")
        self.drop(topic.id)
        return topic

    def put(self, key: Uuid, value: Topic) -> None:
        """Set a topic."""
        super().put(key, value)
        self._index(value)

    def drop(self, key: Uuid) -> None:
        """Remove a topic."""
        self._unindex(key)
        super().drop(key)

    def restore_item(self, key: Uuid, value: Topic | None) -> None:
        """See `Part`; the look-ups by name follow."""
        self._unindex(key)
        super().restore_item(key, value)
        if value is not None:
            self._index(value)

    def _index(self, topic: Topic) -> None:
        name = topic.name
        self._by_name[name] = topic
        if "." in name or "_" in name:
            self._by_metric_name.setdefault(metric_name(name), {})[name] = None

    def _unindex(self, topic_id: Uuid) -> None:
        topic = self._items.get(topic_id)
        if topic is None:
            return
        name = topic.name
        del self._by_name[name]
        if "." in name or "_" in name:
            names = self._by_metric_name[metric_name(name)]
            del names[name]
            if not names:
                del self._by_metric_name[metric_name(name)]
