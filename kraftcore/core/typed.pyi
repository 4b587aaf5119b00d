from typing import Any, Final, NamedTuple, final

__all__ = ["BAD_FRAME", "CONTROL_BASE", "RecordColumns", "RecordTypes", "record_types"]

BAD_FRAME: Final[int]
CONTROL_BASE: Final[int]

class RecordTypes(NamedTuple):
    code: Any
    version: Any

@final
class RecordColumns:
    @property
    def message_class(self) -> Any: ...
    @property
    def schema(self) -> Any: ...
    def __init__(self, message_class: Any, *, framed: bool = True) -> None: ...
    def decode(self, values: Any) -> tuple[Any, list[int]]: ...

def record_types(key: Any, value: Any, is_control: Any) -> RecordTypes: ...
