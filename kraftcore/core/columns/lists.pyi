from typing import Any

__all__ = ["except_lists"]

def except_lists(lists: Any, others: Any) -> Any: ...
