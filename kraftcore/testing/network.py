"""Networks that fall apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from kraftcore.transports.memory import MemoryNetwork


def cut_apart(network: MemoryNetwork, names: Iterable[str], groups: Sequence[Sequence[str]]) -> None:
    """Let nothing pass between groups of nodes any more; the nodes that are in none of them are one more group."""
    grouped = {name for group in groups for name in group}
    others = [name for name in names if name not in grouped]
    for one, other in combinations((*groups, others), 2):
        network.cut(one, other)
