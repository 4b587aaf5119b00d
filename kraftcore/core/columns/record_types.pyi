from typing import Any, Final, NamedTuple

from kraftcore.core.columns.chunks import BufferPool

__all__ = ["BAD_FRAME", "CONTROL_BASE", "RecordTypes", "record_types", "rows_of_types"]

BAD_FRAME: Final[int]
CONTROL_BASE: Final[int]

class RecordTypes(NamedTuple):
    code: Any
    version: Any

def record_types(key: Any, value: Any, is_control: Any, pool: BufferPool | None = None) -> RecordTypes: ...
def rows_of_types(codes: Any, pool: BufferPool | None = None) -> list[tuple[int, Any]]: ...
