from collections.abc import Iterable
from typing import final

from typing_extensions import TypedDict, Unpack

from kraftcore.core.uuid import Uuid

NO_LEADER: int
RECOVERED: int
RECOVERING: int

class _Fields(TypedDict, total=False):
    replicas: Iterable[int]
    directories: Iterable[Uuid] | None
    isr: Iterable[int]
    elr: Iterable[int]
    last_known_elr: Iterable[int]
    removing: Iterable[int]
    adding: Iterable[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int

@final
class Partition:
    def __init__(
        self,
        replicas: Iterable[int] = (),
        *,
        directories: Iterable[Uuid] | None = None,
        isr: Iterable[int] = (),
        elr: Iterable[int] = (),
        last_known_elr: Iterable[int] = (),
        removing: Iterable[int] = (),
        adding: Iterable[int] = (),
        leader: int = -1,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        recovery_state: int = 0,
    ) -> None: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def directories(self) -> tuple[Uuid, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def elr(self) -> tuple[int, ...]: ...
    @property
    def last_known_elr(self) -> tuple[int, ...]: ...
    @property
    def removing(self) -> tuple[int, ...]: ...
    @property
    def adding(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def recovery_state(self) -> int: ...
    @property
    def has_leader(self) -> bool: ...
    @property
    def preferred_leader(self) -> int: ...
    @property
    def is_led_by_preferred(self) -> bool: ...
    @property
    def is_reassigning(self) -> bool: ...
    def directory_of(self, broker_id: int) -> Uuid: ...
    def replace(self, **changes: Unpack[_Fields]) -> Partition: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[object, ...]: ...
