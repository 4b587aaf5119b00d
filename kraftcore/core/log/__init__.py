"""The log on disk: `Log` over its `segments`, each a file with its `index` files; `epochs`, `listing`, `recovery`."""

from typing import TYPE_CHECKING

from kraftcore.namespace import listing, loader, names_of

# Loaded when first used: some importers need only `OffsetAndEpoch`, and no log.
_HOMES = {
    "kraftcore.core.log.append_info": ("AppendInfo",),
    "kraftcore.core.log.config": ("LogConfig",),
    "kraftcore.core.log.epochs": ("EpochEntry", "OffsetAndEpoch"),
    "kraftcore.core.log.log": ("Log",),
}
if TYPE_CHECKING:
    from kraftcore.core.log.append_info import AppendInfo as AppendInfo
    from kraftcore.core.log.config import LogConfig as LogConfig
    from kraftcore.core.log.epochs import EpochEntry as EpochEntry
    from kraftcore.core.log.epochs import OffsetAndEpoch as OffsetAndEpoch
    from kraftcore.core.log.log import Log as Log
else:
    __all__ = names_of(_HOMES)
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__, _HOMES)
