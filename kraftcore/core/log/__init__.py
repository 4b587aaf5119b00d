"""The log on disk: `Log` over its `segments`, each a file with its `index` files; `epochs`, `listing`, `recovery`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftcore.core.log.append_info import AppendInfo as AppendInfo
    from kraftcore.core.log.log import Log as Log

# Imported when first asked for: some who name an offset and its epoch have no log.
_HOMES = {"AppendInfo": "kraftcore.core.log.append_info", "Log": "kraftcore.core.log.log"}
__all__ = ["AppendInfo", "Log"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kraftcore.core.log' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
