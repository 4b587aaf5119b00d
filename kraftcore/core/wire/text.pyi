from typing import final

from kraftcore.core.wire.struct import Struct

@final
class JsonForm: ...

def java_double(value: float) -> str: ...
def to_json_text(message: Struct, version: int) -> bytes: ...

__pyx_capi__: dict[str, object]
