from collections.abc import Iterable

from typing_extensions import Buffer

from kraftcore.core.batch.record import Record

__all__ = ["build_batch", "build_records_batch"]

_Headers = Iterable[tuple[str | Buffer, Buffer | None]]
_RecordLike = (
    Record
    | tuple[Buffer | None, Buffer | None]
    | tuple[Buffer | None, Buffer | None, _Headers | None]
    | tuple[Buffer | None, Buffer | None, _Headers | None, int | None]
)

def build_batch(
    values: Iterable[Buffer | None],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    timestamp_type: int = 0,
) -> bytearray: ...
def build_records_batch(
    records: Iterable[_RecordLike],
    *,
    timestamp_ms: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
    delete_horizon_ms: int | None = None,
) -> bytearray: ...
