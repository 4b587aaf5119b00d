import sys
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, final

from kraftcore.core.compression import Compression as Compression
from kraftcore.core.record import Record as Record
from typing_extensions import Buffer

__all__ = [
    "BatchTotals",
    "Compression",
    "Record",
    "RecordBatch",
    "TimestampType",
    "build_batch",
    "build_records_batch",
    "iter_batches",
    "stamp_batch",
    "validate_batch",
    "validate_batches",
]

class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

class BatchTotals(NamedTuple):
    batches: int
    records: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int

_Headers = Iterable[tuple[str | Buffer, Buffer | None]]
_RecordLike = (
    Record
    | tuple[Buffer | None, Buffer | None]
    | tuple[Buffer | None, Buffer | None, _Headers | None]
    | tuple[Buffer | None, Buffer | None, _Headers | None, int | None]
)

@final
class RecordBatch:
    def __init__(
        self, data: Buffer, position: int = 0, *, verify: bool = True, max_decompressed_bytes: int = ...
    ) -> None: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def is_valid(self) -> bool: ...
    @property
    def attributes(self) -> int: ...
    @property
    def compression(self) -> Compression | int: ...
    @property
    def timestamp_type(self) -> TimestampType: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def base_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def raw(self) -> memoryview: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def to_bytes(self) -> bytes: ...
    def values(self) -> list[bytes | None]: ...
    def rebuild(self, records: Iterable[Record] | None = None, *, level: int | None = None) -> bytearray: ...

def iter_batches(
    data: Buffer,
    position: int = 0,
    *,
    verify: bool = True,
    allow_partial: bool = False,
    max_decompressed_bytes: int = ...,
) -> Iterator[RecordBatch]: ...
def validate_batch(data: Buffer, position: int = 0, *, max_decompressed_bytes: int = ...) -> RecordBatch: ...
def validate_batches(
    data: Buffer, position: int = 0, *, allow_partial: bool = False, max_decompressed_bytes: int = ...
) -> BatchTotals: ...
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
def stamp_batch(
    batch: Buffer, base_offset: int, leader_epoch: int, timestamp_ms: int | None = None, *, position: int = 0
) -> None: ...
