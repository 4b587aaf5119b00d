from typing import Any

__all__ = ["partition_order"]

def partition_order(values: Any, rows: Any, buckets: int, step: int) -> tuple[Any, Any]: ...
