from collections.abc import Sequence
from typing import Any

from kraftcore.core.columns.chunks import BufferPool

__all__ = ["take_rows"]

def take_rows(columns: Sequence[Any], rows: Any, pool: BufferPool | None = None) -> list[Any]: ...
