"""ConsumerProtocolAssignment."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, Struct, array, int32, octets, string


class ConsumerProtocolAssignment(Data, versions=(0, 3)):
    """What a classic consumer receives in SyncGroup."""

    class TopicPartition(Struct):
        """An element of ``assigned_partitions``."""

        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets(nullable="0+", default=None)
