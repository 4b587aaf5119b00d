"""Applies the partition rules to partitions of the image, for all decisions about partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Partition, PartitionKey
from kraftcore.metadata.configs import TOPIC
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.partition_rules.partition_change import NOBODY, PartitionRules
from kraftcore.plugins.controller.decision import Context, Record
from kraftcore.plugins.controller.topic_configs import MIN_ISR, topic_defaults
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

_MOST: Final = 2**31 - 1
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class TopicTerms(NamedTuple):
    """The rules for partitions that follow from their topic's configuration.

    Attributes:
        min_isr: min.insync.replicas, or the replication factor of partition 0 if that is less.
        election: the election that a change may hold when a partition loses its leader.
    """

    min_isr: int
    election: Election


class PartitionUpdates:
    """Collects the records of one decision. Each change starts from the image, not from an earlier one of the decision.

    Args:
        context: of the decision.
        without, including, unclean: as for ``PartitionRules``.

    Attributes:
        records: the records so far, in order.
        rules: the rules for this decision.
    """

    __slots__ = ("_context", "_terms", "records", "rules")

    def __init__(
        self, context: Context, *, without: int = NOBODY, including: int = NOBODY, unclean: int = NOBODY
    ) -> None:
        image = context.image
        self._context = context
        self._terms: dict[Uuid, TopicTerms] = {}
        self.records: list[Record] = []
        self.rules = PartitionRules(
            image.features.metadata_version_or_minimum,
            image.features.is_elr_on,
            image.brokers,
            without=without,
            including=including,
            unclean=unclean,
        )

    def terms(self, topic_id: Uuid) -> TopicTerms:
        """The terms of a topic that is in the image."""
        found = self._terms.get(topic_id)
        if found is None:
            image = self._context.image
            own = image.configs.of(TOPIC, image.topics[topic_id].name)
            defaults = topic_defaults(self._context)
            min_isr = _number(defaults.of(MIN_ISR, own).value)
            first = image.partitions.get(topic_id, 0)
            if first is not None:
                min_isr = min(min_isr, len(first.replicas))
            is_unclean_allowed = (defaults.of(UNCLEAN_ELECTION, own).value or "").lower() == "true"
            election = Election.UNCLEAN if is_unclean_allowed else Election.ONLINE
            found = self._terms[topic_id] = TopicTerms(min_isr, election)
        return found

    def change(
        self, topic_id: Uuid, partition_id: int, partition: Partition, **wanted: Any
    ) -> PartitionChangeRecord | None:
        """Add the record, if any, that changes a partition as wanted; see ``PartitionRules.change``."""
        record = self.rules.change(topic_id, partition_id, partition, self.terms(topic_id).min_isr, **wanted)
        if record is not None:
            self.records.append((record, self.rules.version))
        return record

    def refresh(self, partitions: Iterable[tuple[PartitionKey, Partition]]) -> None:
        """Take leaving brokers out of the ISRs, and elect leaders where the present one may not lead or is missing."""
        self.records += self.rules.refresh(partitions, self.terms)


def _number(text: str | None) -> int:
    """A text as a whole number, or 1: values of brokers are stored unchecked. 0 counts as 0, as in Kafka."""
    try:
        return max(min(int(text or 1), _MOST), 0)
    except ValueError:
        return 1
