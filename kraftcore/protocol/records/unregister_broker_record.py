"""UnregisterBrokerRecord, record type 1 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int32, int64


class UnregisterBrokerRecord(MetadataRecord, api_key=1, versions=(0, 0), flexible_from=0):
    """A broker left the cluster for good."""

    broker_id: int = int32()
    broker_epoch: int = int64()
