"""ProducerIdsRecord, record type 15 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int32, int64


class ProducerIdsRecord(MetadataRecord, api_key=15, versions=(0, 0), flexible_from=0):
    """A block of producer ids was handed to a broker."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()
