"""The order of Java's hash tables, which decides in Kafka which of several errors is told, or which record is first."""

from __future__ import annotations

from collections.abc import Iterable


def in_hash_order(names: Iterable[str]) -> list[str]:
    """Distinct names in the order in which a Java HashMap of the default size walks them."""
    distinct = list(dict.fromkeys(names))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2
    return sorted(distinct, key=lambda name: _spread(name) & buckets - 1)


def _spread(name: str) -> int:
    code = 0
    data = name.encode("utf-16-le", "surrogatepass")
    for place in range(0, len(data), 2):
        code = 31 * code + data[place] + (data[place + 1] << 8) & 0xFFFFFFFF
    return code ^ code >> 16
