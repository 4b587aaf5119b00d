"""The error of a configuration."""

from __future__ import annotations

from collections.abc import Iterable

from kraftcore.errors import LocalError
from kraftcore.forms import suggestion as suggestion


class ConfigError(LocalError):
    """A setting is unknown, out of range, or contradicts another one; nothing was started.

    Attributes:
        reason: what is wrong and what is allowed.
        settings: fields of ``NodeConfig``, or property names, that it is about; the first one is wrong.
        where: ``FILE:LINE`` or the environment variable of the setting; None for keyword arguments.
    """

    def __init__(self, reason: str, settings: Iterable[str] = (), where: str | None = None) -> None:
        self.reason = reason
        self.settings = tuple(settings)
        self.where = where
        super().__init__(reason if where is None else f"{where}: {reason}")
