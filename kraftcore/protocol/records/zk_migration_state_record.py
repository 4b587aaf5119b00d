"""ZkMigrationStateRecord, record type 21 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int8


class ZkMigrationStateRecord(MetadataRecord, api_key=21, versions=(0, 0), flexible_from=0):
    """How far the migration from ZooKeeper is (KIP-866)."""

    zk_migration_state: int = int8()
