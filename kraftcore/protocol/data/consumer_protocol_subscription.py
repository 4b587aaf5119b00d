"""ConsumerProtocolSubscription."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, Struct, array, int32, octets, string


class ConsumerProtocolSubscription(Data, versions=(0, 3)):
    """What a classic consumer sends in JoinGroup."""

    class TopicPartition(Struct):
        """An element of ``owned_partitions``."""

        topic: str = string("1+")
        partitions: list[int] = array(int32, "1+")

    topics: list[str] = array(string)
    user_data: bytes | None = octets(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
