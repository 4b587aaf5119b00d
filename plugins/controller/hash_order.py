"""The order of Java's hash tables, where it shows: which of several errors is told, which record comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K", str, int)


def in_hash_order(names: Iterable[str]) -> list[str]:
    """Distinct names in the order in which a Java HashMap of the default size walks them."""
    return _walked(names, _spread)


def ids_in_hash_order(ids: Iterable[int]) -> list[int]:
    """Distinct numbers, not negative, in the order in which a Java HashSet walks them."""
    return _walked(ids, lambda number: number ^ number >> 16)


def _walked(keys: Iterable[K], spread: Callable[[K], int]) -> list[K]:
    distinct = list(dict.fromkeys(keys))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2
    return sorted(distinct, key=lambda key: spread(key) & buckets - 1)


def _spread(name: str) -> int:
    code = 0
    data = name.encode("utf-16-le", "surrogatepass")
    for place in range(0, len(data), 2):
        code = 31 * code + data[place] + (data[place + 1] << 8) & 0xFFFFFFFF
    return code ^ code >> 16
