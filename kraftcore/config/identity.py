"""Which node a file is about: its id, its roles, its controller listeners."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kraftcore.config.errors import suggestion
from kraftcore.config.properties import Properties
from kraftcore.config.settings import Number

ROLES = ("broker", "controller")
NODE_ID = Number("node.id", "The node's id.")


def read_roles(properties: Properties) -> tuple[str, ...]:
    """``process.roles``, each once; none if it is missing. ``ConfigError`` for anything but a role."""
    roles = tuple(dict.fromkeys(properties.list("process.roles")))
    for role in roles:
        if role not in ROLES:
            close = suggestion(role, ROLES)
            raise properties.error(
                f"process.roles has {role!r}: it may have broker and controller{close}", "process.roles"
            )
    return roles


def check_listener_names(properties: Properties, names: Iterable[str], bound: Collection[str]) -> None:
    """``ConfigError`` if ``controller.listener.names`` has one that ``listeners`` has not."""
    missing = [name for name in names if name not in bound]
    if missing:
        raise properties.error(
            f"controller.listener.names has {', '.join(missing)}, but listeners has only "
            f"{', '.join(bound) or 'none'}{suggestion(missing[0], bound)}",
            "controller.listener.names",
            "listeners",
        )
