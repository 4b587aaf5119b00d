from typing import Any, Final, NamedTuple

__all__ = ["BAD_FRAME", "CONTROL_BASE", "RecordTypes", "record_types", "rows_of_types"]

BAD_FRAME: Final[int]
CONTROL_BASE: Final[int]

class RecordTypes(NamedTuple):
    code: Any
    version: Any

def record_types(key: Any, value: Any, is_control: Any) -> RecordTypes: ...
def rows_of_types(codes: Any) -> list[tuple[int, Any]]: ...
