"""UnfenceBrokerRecord, record type 8 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int32, int64


class UnfenceBrokerRecord(MetadataRecord, api_key=8, versions=(0, 0), flexible_from=0):
    """A broker was unfenced; older form of BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()
