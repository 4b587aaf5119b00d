from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, final

from typing_extensions import Buffer

from kraftcore.core.columns.chunks import BufferPool, ColumnChunk

__all__ = ["CHUNK_BYTES_MAX", "ColumnReader", "Damage", "DecodedColumns", "decode_columns"]

CHUNK_BYTES_MAX: int

class Damage(NamedTuple):
    position: int
    size: int
    reason: str

@final
class ColumnReader:
    def __init__(
        self,
        data: Buffer | Sequence[Buffer],
        *,
        columns: Iterable[str] | None = None,
        position: int = 0,
        end: int | None = None,
        base_position: int = 0,
        offsets: tuple[int, int] | None = None,
        types: Iterable[int] | None = None,
        verify: bool = True,
        errors: str = "raise",
        timestamp_unit: str = "ms",
        chunk_bytes: int = ...,
        max_decompressed_bytes: int = ...,
        pool: BufferPool | None = None,
    ) -> None: ...
    @property
    def damage(self) -> list[Damage]: ...
    def __iter__(self) -> ColumnReader: ...
    def __next__(self) -> ColumnChunk: ...

@final
class DecodedColumns:
    @property
    def chunks(self) -> tuple[ColumnChunk, ...]: ...
    @property
    def damage(self) -> tuple[Damage, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def timestamp_unit(self) -> str: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> NoReturn: ...
    def to_arrow(self) -> Any: ...

def decode_columns(
    data: Buffer | Sequence[Buffer],
    *,
    columns: Iterable[str] | None = None,
    position: int = 0,
    end: int | None = None,
    base_position: int = 0,
    offsets: tuple[int, int] | None = None,
    types: Iterable[int] | None = None,
    verify: bool = True,
    errors: str = "raise",
    timestamp_unit: str = "ms",
    chunk_bytes: int = ...,
    max_decompressed_bytes: int = ...,
) -> DecodedColumns: ...
