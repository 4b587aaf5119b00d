"""FenceBrokerRecord, record type 7 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int32, int64


class FenceBrokerRecord(MetadataRecord, api_key=7, versions=(0, 0), flexible_from=0):
    """A broker was fenced; older form of BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()
