"""Whether a log holds a cluster's metadata, or an application's own records: name and topic id may be the same."""

from __future__ import annotations

from kraftcore.core.batch import iter_batches
from kraftcore.errors import CorruptDataError, RemoteProtocolError, StorageError
from kraftcore.plugins.spark.stores import Source
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.storage.snapshots import SUFFIX

LOOK_BYTES = 1 << 18
_RECORDS_MAX = 64


def holds_metadata(path: str) -> bool:
    """Judge by the first records of a segment or snapshot; one without any counts as metadata."""
    try:
        with Source(path) as source:
            data = source.read(0, LOOK_BYTES)
    except StorageError:  # whoever reads it tells
        return True
    return judge(data, is_snapshot=path.endswith(SUFFIX)) is not False


def judge(data: bytes, *, is_snapshot: bool = False) -> bool | None:
    """Judge by the first records of some batches.

    Args:
        data: batches; the last one may be torn.
        is_snapshot: numbered batches are what nodes remember of clients.

    Returns:
        Whether one of the first data records is a metadata record; None where there is no data record to judge by.
    """
    seen = 0
    try:
        for batch in iter_batches(data, verify=False, allow_partial=True):
            if batch.is_control or (is_snapshot and batch.producer_id >= 0):
                continue
            for value in batch.values():
                seen += 1
                if _is_metadata(value):
                    return True
                if seen == _RECORDS_MAX:
                    return False
    except (CorruptDataError, RemoteProtocolError):
        pass  # what is damaged is told when it is read
    return False if seen else None


def _is_metadata(value: bytes | None) -> bool:
    try:
        return value is not None and decode_metadata_record(value) is not None
    except RemoteProtocolError:
        return False
