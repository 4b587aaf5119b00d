"""BrokerRegistrationChangeRecord, record type 17 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, array, int8, int32, int64, uuid


class BrokerRegistrationChangeRecord(MetadataRecord, api_key=17, versions=(0, 3), flexible_from=0):
    """A broker was fenced or unfenced, started its shutdown, or changed log directories."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tagged="0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tagged="1+", tag=1)
    log_dirs: list[Uuid] = array(uuid, "2+", tagged="2+", tag=2)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "3+", nullable="3+", default=None, tagged="3+", tag=3)
