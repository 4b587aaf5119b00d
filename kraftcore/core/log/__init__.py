"""The log on disk: `Log` over its `segments`, each a file with its `index` files; `epochs`, `listing`, `recovery`."""

from kraftcore.core.log.append_info import AppendInfo
from kraftcore.core.log.log import Log

__all__ = ["AppendInfo", "Log"]
