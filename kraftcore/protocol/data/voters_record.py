"""VotersRecord."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Data, Struct, array, int16, int32, string, struct, uint16, uuid


class VotersRecord(Data, versions=(0, 0), flexible_from=0):
    """Control record: the voter set in force from here on (KIP-853)."""

    class Voter(Struct):
        """An element of ``voters``."""

        class Endpoint(Struct):
            """An element of ``endpoints``."""

            name: str = string()
            host: str = string()
            port: int = uint16()

        class KRaftVersionFeature(Struct):
            """The value of ``kraft_version_feature``."""

            min_supported_version: int = int16()
            max_supported_version: int = int16()

        voter_id: int = int32()
        voter_directory_id: Uuid = uuid()
        endpoints: list[Endpoint] = array(Endpoint)
        kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, kafka="KRaftVersionFeature")

    version: int = int16()
    voters: list[Voter] = array(Voter)
