"""Names of topics and partitions: what a partition is called, and the topics that Kafka keeps for itself."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftcore.core.uuid import Uuid

METADATA_TOPIC: Final = "__cluster_metadata"
"""The topic of the metadata log; its id is ``kraftcore.core.uuid.METADATA_TOPIC_ID``."""
GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
"""Topics that brokers keep for themselves, as Kafka's ``Topic.INTERNAL_TOPICS``."""


class TopicPartition(NamedTuple):
    """A partition of a topic; as text ``topic-0``.

    Attributes:
        topic: its name.
        partition: its number, from 0.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionKey(NamedTuple):
    """A partition by its topic's id, which another topic of the same name does not have.

    Attributes:
        topic_id: the topic's id.
        partition_id: the partition's number, from 0.
    """

    topic_id: Uuid
    partition_id: int
