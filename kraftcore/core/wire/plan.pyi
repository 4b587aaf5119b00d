from typing import Any, final

__all__ = ["Codec"]

@final
class Codec:
    @property
    def message_class(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...

__pyx_capi__: dict[str, object]
