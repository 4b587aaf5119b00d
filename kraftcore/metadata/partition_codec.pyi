from typing import final

from kraftcore.metadata.rows import Rows

@final
class PartitionCodec:
    def __new__(cls, rows: Rows) -> PartitionCodec: ...

__pyx_capi__: dict[str, object]
