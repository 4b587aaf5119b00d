from collections.abc import Callable, Iterable, Mapping
from typing import final

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.cluster import Broker
from kraftcore.metadata.partition import Partition
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.topics import PartitionKey

NOBODY: int

@final
class PartitionRules:
    def __init__(
        self,
        metadata_version: MetadataVersion,
        is_elr_on: bool,
        brokers: Mapping[int, Broker],
        *,
        without: int = -1,
        including: int = -1,
        unclean: int = -1,
    ) -> None: ...
    @property
    def version(self) -> int: ...
    def change(
        self,
        topic_id: Uuid,
        partition_id: int,
        before: Partition,
        min_isr: int,
        *,
        election: Election = ...,
        isr: tuple[int, ...] | None = None,
        replicas: tuple[int, ...] | None = None,
        removing: tuple[int, ...] | None = None,
        adding: tuple[int, ...] | None = None,
        recovery_state: int | None = None,
        directory: tuple[int, Uuid] | None = None,
    ) -> PartitionChangeRecord | None: ...
    def refresh(
        self,
        partitions: Iterable[tuple[PartitionKey, Partition]],
        terms: Callable[[Uuid], tuple[int, Election]],
    ) -> list[tuple[PartitionChangeRecord, int]]: ...
    def may_lead(self, broker_id: int, partition: Partition) -> bool: ...
    def default_directory(self, broker_id: int) -> Uuid: ...
