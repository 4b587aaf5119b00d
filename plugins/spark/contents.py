"""Whether a file holds a cluster's metadata, or an application's own records."""

from __future__ import annotations

from kraftcore.core.batch import iter_batches
from kraftcore.errors import CorruptDataError, RemoteProtocolError, StorageError
from kraftcore.plugins.spark.stores import Source
from kraftcore.protocol.log_contents import ContentsJudge
from kraftcore.storage.snapshots import SUFFIX

LOOK_BYTES = 1 << 18


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
    contents = ContentsJudge()
    try:
        for batch in iter_batches(data, verify=False, allow_partial=True):
            if not batch.is_control and not (is_snapshot and batch.producer_id >= 0):
                contents.look(batch.values())
    except (CorruptDataError, RemoteProtocolError):
        pass  # what is damaged is told when it is read
    if contents.is_metadata is None and contents.seen:
        return False
    return contents.is_metadata
