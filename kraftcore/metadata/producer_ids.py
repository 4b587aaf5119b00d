"""The producer ids that were handed out."""

from __future__ import annotations

from kraftcore.errors import MetadataRecordError
from kraftcore.metadata.journal import Part
from kraftcore.protocol.records.producer_ids_record import ProducerIdsRecord

_NEXT = "next"


class ProducerIds(Part[str, int]):
    """The lowest producer id that no broker was given."""

    __slots__ = ()

    @property
    def next_id(self) -> int:
        """The first id of the next block; 0 while no block was handed out."""
        return self._items.get(_NEXT, 0)

    @property
    def is_empty(self) -> bool:
        """Whether no id was ever handed out."""
        return not self._items

    def on_producer_ids(self, record: ProducerIdsRecord) -> None:
        """Count a block as handed out.

        Raises:
            MetadataRecordError: ids would be handed out twice.
        """
        if record.next_producer_id < self.next_id:
            raise MetadataRecordError(
                record, f"the next producer id would be {record.next_producer_id}, behind {self.next_id}"
            )
        self.put(_NEXT, record.next_producer_id)


def producer_ids_records(items: dict[str, int]) -> list[ProducerIdsRecord]:
    """The record in a snapshot: without the broker that was given the last block, as Kafka writes it."""
    return [ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=each) for each in items.values()]
