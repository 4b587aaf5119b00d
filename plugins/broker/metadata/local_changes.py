"""What the metadata log says that this broker is to do, without I/O: image and delta in, changes of its partitions out.

    catalogue = Catalogue(broker_id)
    changes = catalogue.begin(image)            # the first image, and each that a snapshot brings
    changes = catalogue.follow(image, delta)    # what the records behind it changed

Deletions come before everything else: a topic that was deleted and made anew under its name within one delta has
another id, and nothing of the old one. A controller of KRaft never has a replica stop and stay. Source: Kafka 4.3.1,
TopicsDelta, TopicDelta, LocalReplicaChanges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.metadata import Delta, Image, PartitionKey
from kraftcore.metadata import Partition as PartitionRow
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.plugins.broker.partition import Assignment, TopicPartition


@dataclass(slots=True)
class LocalChanges:
    """What is to be done, in this order.

    Attributes:
        deletes: replicas that go, with their topic's id: the topic was deleted, or the replica moved to another broker.
        leads: what this broker leads from now on, or leads with another ISR or other replicas. A log that is not there
            is made.
        follows: what it follows, likewise; a leader of -1 means that there is none for now.
        topic_configs: topics of its partitions whose configuration changed, or all of them: what is set on each.
        broker_configs: whether settings of this broker, or the default of all brokers, changed.
        brokers: whether registrations changed: who is alive, and where.
        gone: topics that were deleted, wherever they were: name by id.
    """

    deletes: dict[TopicPartition, Uuid] = field(default_factory=dict)
    leads: dict[TopicPartition, Assignment] = field(default_factory=dict)
    follows: dict[TopicPartition, Assignment] = field(default_factory=dict)
    topic_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: bool = False
    brokers: bool = False
    gone: Mapping[Uuid, str] = field(default_factory=dict)

    @property
    def directories(self) -> dict[TopicPartition, Uuid]:
        """Ids of the log directories that the controller has the replicas in which it leads or follows."""
        return {name: each.directory for name, each in (*self.leads.items(), *self.follows.items())}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be done."""
        lists = self.deletes or self.leads or self.follows or self.topic_configs or self.gone
        return not (lists or self.broker_configs or self.brokers)


class Catalogue:
    """Tells from metadata images and deltas which partitions this broker has to make, lead, follow or delete.

    Args:
        broker_id: whose partitions.

    Attributes:
        held: topic id by partition, of all that the newest image gives this broker a replica of.
    """

    def __init__(self, broker_id: int) -> None:
        self.held: dict[TopicPartition, Uuid] = {}
        self._broker_id = broker_id
        self._names: dict[Uuid, str] = {}  # of all topics: a snapshot does not say which ones were deleted

    def begin(self, image: Image) -> LocalChanges:
        """Take a whole image: all replicas in it lead or follow; those that it has no more are deleted."""
        changes = LocalChanges(broker_configs=True, brokers=True)
        held: dict[TopicPartition, Uuid] = {}
        for key, row in image.partitions.with_replica(self._broker_id):
            name = TopicPartition(image.topics[key.topic_id].name, key.partition_id)
            held[name] = key.topic_id
            self._assign(changes, name, key.topic_id, row, came=False)
        changes.deletes = {name: topic_id for name, topic_id in self.held.items() if held.get(name) != topic_id}
        self.held = held
        names = {topic_id: image.topics[topic_id].name for topic_id in image.topics}
        changes.gone = {topic_id: name for topic_id, name in self._names.items() if topic_id not in names}
        self._names = names
        changes.topic_configs = {topic: image.configs.of(TOPIC, topic) for topic in {name.topic for name in held}}
        return changes

    def follow(self, image: Image, delta: Delta) -> LocalChanges:
        """Take what changed since the last image.

        Args:
            image: as it is now.
            delta: what changed.
        """
        changes = LocalChanges(brokers=bool(delta.brokers))
        gone = {topic_id: change.before.name for topic_id, change in delta.topics.items() if change.before is not None}
        changes.gone = gone
        for topic_id, change in delta.topics.items():
            if change.after is None:
                self._names.pop(topic_id, None)
            else:
                self._names[topic_id] = change.after.name
        news: list[tuple[TopicPartition, Uuid, PartitionRow, bool]] = []
        for key, (before, after) in delta.partitions.items():
            if after is not None and self._broker_id in after.replicas:
                came = before is None or self._broker_id not in before.replicas
                if came or before is None or before.partition_epoch != after.partition_epoch:
                    news.append((self._name(image, key), key.topic_id, after, came))
            elif before is not None and self._broker_id in before.replicas:
                topic = gone.get(key.topic_id) or image.topics[key.topic_id].name
                name = TopicPartition(topic, key.partition_id)
                changes.deletes[name] = key.topic_id
                if self.held.get(name) == key.topic_id:
                    del self.held[name]
        topics = set()
        for name, topic_id, row, came in news:
            if name not in self.held:
                topics.add(name.topic)
            self.held[name] = topic_id
            self._assign(changes, name, topic_id, row, came=came)
        self._note_configs(changes, image, delta, topics)
        return changes

    def _name(self, image: Image, key: PartitionKey) -> TopicPartition:
        return TopicPartition(image.topics[key.topic_id].name, key.partition_id)

    def _assign(
        self, changes: LocalChanges, name: TopicPartition, topic_id: Uuid, row: PartitionRow, *, came: bool
    ) -> None:
        assigned = assignment(row, topic_id, self._broker_id)
        if came or _counts_not(row, self._broker_id):
            assigned = assigned._replace(is_new=True)
        (changes.leads if row.leader == self._broker_id else changes.follows)[name] = assigned

    def _note_configs(self, changes: LocalChanges, image: Image, delta: Delta, topics: set[str]) -> None:
        for resource in delta.configs:
            if resource.type == TOPIC:
                topics.add(resource.name)
            elif resource.type == BROKER and resource.name in ("", str(self._broker_id)):
                changes.broker_configs = True
        changes.topic_configs = {
            topic: image.configs.of(TOPIC, topic) for topic in topics if self._holds_some(image, topic)
        }

    def _holds_some(self, image: Image, name: str) -> bool:
        topic = image.topics.by_name(name)
        return topic is not None and any(
            TopicPartition(name, number) in self.held for number, _ in image.partitions.of_topic(topic.id)
        )


def _counts_not(row: PartitionRow, broker_id: int) -> bool:
    """Whether a broker's replica has no known directory, and is in neither ISR nor ELR: its records do not count."""
    is_nowhere = row.directory_of(broker_id) == UNASSIGNED_DIRECTORY
    return is_nowhere and broker_id not in row.isr and broker_id not in row.elr


def assignment(row: PartitionRow, topic_id: Uuid, broker_id: int) -> Assignment:
    """The assignment of a partition to a broker that has a replica of it, from the image."""
    return Assignment(
        row.leader,
        row.leader_epoch,
        row.partition_epoch,
        row.replicas,
        row.isr,
        topic_id,
        row.directory_of(broker_id),
        is_recovering=row.recovery_state != 0,
    )
