from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Final, Literal, final

from kraftcore.core.disk.files import File, Files

SECTOR_BYTES: Final = 512
CRASH_MODES: Final[tuple[str, ...]]

class Fault:
    operation: str
    after: int
    times: int
    code: int
    path: str
    hits: int
    def __init__(self, operation: str, after: int, times: int, code: int, path: str) -> None: ...
    def strikes(self, operation: str, path: str) -> bool: ...

@final
class SimulatedFile(File):
    def __init__(self, *args: object, **kwargs: object) -> None: ...

@final
class SimulatedDisk(Files):
    capacity: int | None
    sync_latency_ms: Callable[[str], float] | None
    latency_ms: float
    @property
    def operations(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def crashed(self) -> bool: ...
    @property
    def trace(self) -> list[tuple[Any, ...]] | None: ...
    def __init__(self, rng: Random, *, capacity: int | None = None, record: bool = False) -> None: ...
    def inject(self, operation: str, *, after: int = 0, times: int = 1, code: int = ..., path: str = "") -> Fault: ...
    def clear_faults(self) -> None: ...
    def without_faults(self) -> AbstractContextManager[None]: ...
    def crash(self, mode: Literal["lost", "kept", "torn", "reordered", "mixed"] = "mixed") -> SimulatedDisk: ...
    @staticmethod
    def replay(trace: Sequence[tuple[Any, ...]], rng: Random, *, count: int | None = None) -> SimulatedDisk: ...
