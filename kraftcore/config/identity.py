"""Reads a node's id, roles, listeners and log directories from its properties."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kraftcore.config.addresses import parse_endpoint
from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.properties import Properties
from kraftcore.config.settings import Number
from kraftcore.raft.quorum import Endpoint

ROLES = ("broker", "controller")
NODE_ID = Number("node.id", "The node's id.")


def read_node_id(properties: Properties) -> int | None:
    """``node.id``, or ``broker.id``, its other name in Kafka; None if both are missing.

    Raises:
        ConfigError: the text is not an id, or the two differ.
    """
    found = {key: NODE_ID.read_as(properties, key) for key in (NODE_ID.key, "broker.id") if key in properties}
    if len(set(found.values())) > 1:
        raise properties.error(
            f"node.id is {found['node.id']}, broker.id {found['broker.id']}: one is wrong", NODE_ID.key, "broker.id"
        )
    return next(iter(found.values()), None)


def read_log_dirs(properties: Properties) -> list[str]:
    """``log.dirs``, or ``log.dir`` if that is missing; empty if both are.

    Raises:
        ConfigError: an entry is empty, which would be the working directory.
    """
    key = "log.dirs" if "log.dirs" in properties else "log.dir"
    found = properties.list(key)
    if not all(found):
        raise properties.error(f"{key} is {properties.get(key)!r}: an entry is empty", key)
    return found


def read_listeners(properties: Properties, key: str) -> list[Endpoint]:
    """``listeners`` or ``advertised.listeners``; empty if it is missing.

    Raises:
        ConfigError: a listener cannot be read, or two have one name.
    """
    try:
        found = [parse_endpoint(text) for text in properties.list(key)]
    except ConfigError as error:
        raise properties.error(f"{key}: {error.reason}", key) from None
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise properties.error(f"{key}: two listeners are called {twice}", key)
    return found


def read_roles(properties: Properties) -> tuple[str, ...]:
    """``process.roles``, each once; empty if it is missing. ``ConfigError`` for an unknown role."""
    roles = tuple(dict.fromkeys(properties.list("process.roles")))
    for role in roles:
        if role not in ROLES:
            close = suggestion(role, ROLES)
            raise properties.error(
                f"process.roles has {role!r}: it may have broker and controller{close}", "process.roles"
            )
    return roles


def check_listener_names(properties: Properties, names: Iterable[str], bound: Collection[str]) -> None:
    """``ConfigError`` if ``controller.listener.names`` has a name that ``listeners`` does not have."""
    missing = [name for name in names if name not in bound]
    if missing:
        raise properties.error(
            f"controller.listener.names has {', '.join(missing)}, but listeners has only "
            f"{', '.join(bound) or 'none'}{suggestion(missing[0], bound)}",
            "controller.listener.names",
            "listeners",
        )
