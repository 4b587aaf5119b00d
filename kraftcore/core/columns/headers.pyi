from typing import Any, NamedTuple

from typing_extensions import Buffer

from kraftcore.core.columns.table import Damage

__all__ = ["BatchHeaders", "batch_headers"]

NAMES: tuple[tuple[str, int], ...]

class BatchHeaders(NamedTuple):
    batches: Any
    damage: list[Damage]
    end: int

def batch_headers(
    data: Buffer,
    *,
    position: int = 0,
    end: int | None = None,
    base_position: int = 0,
    verify: bool = True,
    count_max: int = -1,
) -> BatchHeaders: ...
