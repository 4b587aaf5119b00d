import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, final

from typing_extensions import Buffer

__all__ = [
    "CHUNK_BYTES_MAX",
    "COLUMNS",
    "ColumnBuffer",
    "ColumnChunk",
    "ColumnReader",
    "Damage",
    "DecodedColumns",
    "arrow_schema",
    "decode_columns",
]

COLUMNS: tuple[str, ...]
CHUNK_BYTES_MAX: int

class Damage(NamedTuple):
    position: int
    size: int
    reason: str

@final
class ColumnBuffer:
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

    def __len__(self) -> int: ...
    def __reduce__(self) -> NoReturn: ...

@final
class ColumnChunk:
    @property
    def count(self) -> int: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def buffers(self) -> dict[str, tuple[Any, ...]]: ...
    @property
    def timestamp_unit(self) -> str: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> NoReturn: ...
    def to_arrow(self) -> Any: ...

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
        verify: bool = True,
        errors: str = "raise",
        timestamp_unit: str = "ms",
        chunk_bytes: int = ...,
        max_decompressed_bytes: int = ...,
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

def arrow_schema(columns: Iterable[str] | None = None, *, timestamp_unit: str = "ms") -> Any: ...
def decode_columns(
    data: Buffer | Sequence[Buffer],
    *,
    columns: Iterable[str] | None = None,
    position: int = 0,
    end: int | None = None,
    base_position: int = 0,
    offsets: tuple[int, int] | None = None,
    verify: bool = True,
    errors: str = "raise",
    timestamp_unit: str = "ms",
    chunk_bytes: int = ...,
    max_decompressed_bytes: int = ...,
) -> DecodedColumns: ...
