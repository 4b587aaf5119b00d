"""QuorumStateData."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Data, Struct, array, int32, int64, string, uuid


class QuorumStateData(Data, versions=(0, 1), flexible_from=0):
    """Contents of the quorum-state file, which is JSON (KIP-595, KIP-853)."""

    class Voter(Struct):
        """An element of ``current_voters``."""

        voter_id: int = int32("0")

    cluster_id: str = string("0")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: Uuid = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[Voter] | None = array(Voter, "0", nullable="0")
