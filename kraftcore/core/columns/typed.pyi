from typing import Any, final

from kraftcore.core.columns.chunks import BufferPool

__all__ = ["RecordColumns"]

@final
class RecordColumns:
    @property
    def message_class(self) -> Any: ...
    @property
    def schema(self) -> Any: ...
    def __init__(self, message_class: Any, *, framed: bool = True, pool: BufferPool | None = None) -> None: ...
    def decode(self, values: Any, rows: Any = None) -> tuple[Any, list[int]]: ...
