"""Tells a cluster's metadata from an application's own records."""

from __future__ import annotations

from kraftcore.core.batch import iter_batches
from kraftcore.errors import CorruptDataError, RemoteProtocolError, StorageError
from kraftcore.plugins.spark.stores import Source
from kraftcore.protocol.log_contents import ContentsJudge
from kraftcore.storage.snapshots import SUFFIX

LOOK_BYTES = 1 << 18


def holds_metadata(path: str) -> bool:
    """Whether the first records of a segment or snapshot are metadata; True for a file without records."""
    try:
        with Source(path) as source:
            data = source.read(0, LOOK_BYTES)
    except StorageError:  # the reader of the file will raise it
        return True
    return judge(data, is_snapshot=path.endswith(SUFFIX)) is not False


def judge(data: bytes, *, is_snapshot: bool = False) -> bool | None:
    """Whether the first data records of some batches are metadata records.

    Args:
        data: batches; the last one may be torn.
        is_snapshot: True: batches with a producer id hold sessions of clients and are skipped.

    Returns:
        None if there is no data record.
    """
    contents = ContentsJudge()
    try:
        for batch in iter_batches(data, verify=False, allow_partial=True):
            if not batch.is_control and not (is_snapshot and batch.producer_id >= 0):
                contents.look(batch.values())
    except (CorruptDataError, RemoteProtocolError):
        pass  # the reader of the file will report the damage
    if contents.is_metadata is None and contents.seen:
        return False
    return contents.is_metadata
