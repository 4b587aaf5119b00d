"""Networks that fall apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

from kraftcore.errors import LocalError
from kraftcore.transports.memory import MemoryNetwork


def cut_apart(network: MemoryNetwork, names: Iterable[str], groups: Sequence[Sequence[str]]) -> None:
    """Let nothing pass between groups of nodes any more; the nodes that are in none of them are one more group.

    Raises:
        LocalError: a node is in two groups; nothing is cut.
    """
    counts = Counter(name for group in groups for name in set(group))
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise LocalError(f"{', '.join(twice)} in two groups: name each node once")
    grouped = counts.keys()
    others = [name for name in names if name not in grouped]
    for one, other in combinations((*groups, others), 2):
        network.cut(one, other)
