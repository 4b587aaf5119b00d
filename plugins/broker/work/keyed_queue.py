"""A queue between two parts of a broker of which one needs the other: made before both, and given to both.

So `Replicas`, which every part needs, hands on what a partition asks for without knowing who does it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView, Mapping
from typing import Generic, TypeVar

import trio

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeyedQueue(Generic[K, V]):
    """Values that wait to be taken, all at once; of each key only the newest one.

    Args:
        on_put: called after each value that was put, for a consumer that does not run on trio.
    """

    def __init__(self, on_put: Callable[[], object] | None = None) -> None:
        self._values: dict[K, V] = {}
        self._on_put = on_put
        self._filled = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._values)

    def items(self) -> ItemsView[K, V]:
        """Keys and values that wait."""
        return self._values.items()

    def put(self, key: K, value: V) -> None:
        """Add a value, in the place of an earlier one of the same key."""
        self._values[key] = value
        self._filled.set()
        if self._on_put is not None:
            self._on_put()

    def put_back(self, values: Mapping[K, V]) -> None:
        """Add values that were taken, except where a newer one of the same key came meanwhile."""
        for key, value in values.items():
            if key not in self._values:
                self.put(key, value)

    def take(self) -> dict[K, V]:
        """Remove and return all values, in the order in which their keys came."""
        taken, self._values = self._values, {}
        return taken

    async def wait(self) -> None:
        """Return when there is a value."""
        if not self._values:
            self._filled = trio.Event()
            await self._filled.wait()
