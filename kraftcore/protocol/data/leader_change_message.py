"""LeaderChangeMessage."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Data, Struct, array, int16, int32, uuid


class Voter(Struct):
    """Shared by several fields of LeaderChangeMessage."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Data, versions=(0, 1), flexible_from=0):
    """Control record: a leader took office (KIP-595). Kafka 4.3.1 writes and reads version 0 only."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)
