"""The table of partitions in plain Python: what the compiled one is held against."""

from __future__ import annotations

from collections.abc import Callable

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Partition, PartitionKey, changed_partition, partition_of
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord

State = dict[PartitionKey, Partition]


class PlainPartitions:
    """Topics and partitions as dicts; `state` is a copy of all."""

    def __init__(self) -> None:
        self.topics: dict[Uuid, dict[int, Partition]] = {}

    def state(self) -> State:
        return {
            PartitionKey(topic_id, number): each
            for topic_id, partitions in self.topics.items()
            for number, each in partitions.items()
        }

    def copy(self) -> PlainPartitions:
        made = PlainPartitions()
        made.topics = {topic_id: dict(partitions) for topic_id, partitions in self.topics.items()}
        return made

    def put(self, record: PartitionRecord) -> None:
        self.topics[record.topic_id][record.partition_id] = partition_of(record)

    def change(self, record: PartitionChangeRecord) -> None:
        partitions = self.topics[record.topic_id]
        partitions[record.partition_id] = changed_partition(partitions[record.partition_id], record)

    def clear_elr(self, topic_id: Uuid) -> None:
        for number, each in self.topics[topic_id].items():
            if each.elr or each.last_known_elr:
                cleared = each.replace(elr=(), last_known_elr=(), partition_epoch=each.partition_epoch + 1)
                self.topics[topic_id][number] = cleared

    def those(self, wanted: Callable[[Partition], bool]) -> State:
        return {key: each for key, each in self.state().items() if wanted(each)}
