from collections.abc import Mapping
from typing import final

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.cluster import Broker
from kraftcore.metadata.partitions import Partitions
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.partition_rules.partition_change import PartitionRules
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftcore.protocol.schema import MetadataRecord

@final
class IsrProposals:
    def __init__(
        self,
        partitions: Partitions,
        rules: PartitionRules,
        brokers: Mapping[int, Broker],
        sender: int,
        names_epochs: bool,
    ) -> None: ...
    def take(
        self,
        topic_id: Uuid,
        wanted: list[AlterPartitionRequest.TopicData.PartitionData],
        min_isr: int,
        election: Election,
        records: list[tuple[MetadataRecord, int]],
    ) -> list[AlterPartitionResponse.TopicData.PartitionData]: ...
