from typing import final

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.partitions import Matches
from kraftcore.partition_rules.leader_choice import Election
from kraftcore.partition_rules.partition_change import PartitionRules
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.elect_leaders import ElectLeadersResponse
from kraftcore.protocol.schema import MetadataRecord

@final
class LeaderElections:
    def __init__(self, rules: PartitionRules, needing: Matches, election: Election, error: ErrorCode) -> None: ...
    def __contains__(self, topic_id: Uuid, /) -> bool: ...
    def hold(
        self, topic_id: Uuid, min_isr: int, records: list[tuple[MetadataRecord, int]]
    ) -> list[ElectLeadersResponse.ReplicaElectionResult.PartitionResult]: ...
