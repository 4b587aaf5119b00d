from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

__all__ = ["FrameInParts"]

@final
class FrameInParts:
    size: int
    filled: int
    @property
    def room(self) -> int: ...
    def __init__(self, first: Buffer, size: int) -> None: ...
    def fill(self, receive: Callable[[memoryview], int]) -> int: ...
    def take(self) -> bytes: ...
