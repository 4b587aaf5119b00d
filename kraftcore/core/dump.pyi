from collections.abc import Callable, Mapping
from typing import Any, Final, final

FRAME_PARTS: Final[tuple[str, str, str]]

@final
class BatchPrinter:
    def __init__(
        self,
        write: Callable[[bytes], Any],
        *,
        deep: bool = False,
        contents: bool = False,
        skip_metadata: bool = False,
        as_json: bool = False,
        metadata_records: Callable[[int], tuple[str, type]] | None = None,
        control_records: Mapping[int, tuple[str, str, type]] | None = None,
        max_decompressed_bytes: int = ...,
    ) -> None: ...
    @property
    def batches(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def jumps(self) -> dict[int, int]: ...
    def feed(self, data: bytes, position: int, end: int) -> tuple[int, int]: ...
