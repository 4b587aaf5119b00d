"""Reads a Kafka server's properties file for the storage commands, by Kafka's rules.

Types and ranges of values are checked as for a server's start. ``NodeConfig`` is stricter about properties that a node
does not use, for these commands format directories for Kafka as well.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from kraftcore.config.addresses import ALL_INTERFACES, parse_voters
from kraftcore.config.errors import ConfigError
from kraftcore.config.identity import (
    check_listener_names,
    read_listeners,
    read_log_dirs,
    read_node_id,
    read_roles,
)
from kraftcore.config.properties import Properties, load_properties, read_flag
from kraftcore.config.value_checks import check_values
from kraftcore.raft.quorum import Endpoint

DEFAULT_LOG_DIR = "/tmp/kafka-logs"  # noqa: S108  # Kafka's


@dataclass(frozen=True, kw_only=True)
class ServerFile:
    """A broker's or controller's file.

    Attributes:
        node_id: ``node.id``, or ``broker.id``.
        roles: ``process.roles``; at least one.
        directories: ``log.dirs`` (or ``log.dir``) and the metadata directory, sorted, each once.
        metadata_directory: ``metadata.log.dir``, else the first of ``log.dirs``.
        static_voters: whether ``controller.quorum.voters`` has any.
        listener: first of ``controller.listener.names``, the one that voters are reached by.
        endpoint: that a controller advertises for it; None on a pure broker. An empty host becomes ``localhost``.
        unstable_features: ``unstable.feature.versions.enable``.
    """

    node_id: int
    roles: tuple[str, ...]
    directories: tuple[str, ...]
    metadata_directory: str
    static_voters: bool
    listener: str
    endpoint: Endpoint | None
    unstable_features: bool


def load_server_file(path: str) -> ServerFile:
    """Read a file; all other properties in it are checked for type and range (`check_values`).

    Raises:
        ConfigError: a property is missing, cannot be read, or contradicts another one.
        CorruptDataError: the file holds a broken escape.
        StorageError: it cannot be read.
    """
    properties = load_properties(path, {})
    node_id = read_node_id(properties)
    if node_id is None:
        raise properties.error("node.id is missing", "node.id")
    for key in ("process.roles", "controller.listener.names"):
        if not properties.get(key):
            raise properties.error(f"{key} is missing", key)
    roles = read_roles(properties)
    voters = _static_voters(properties)
    _check_voters(properties, node_id, roles, voters)
    logs = read_log_dirs(properties)
    if not logs and ("log.dirs" in properties or "log.dir" in properties):
        raise properties.error("log.dirs is empty: name at least one directory", "log.dirs", "log.dir")
    logs = [os.path.normpath(path) for path in logs or [DEFAULT_LOG_DIR]]  # repeated paths count once
    metadata = os.path.normpath(properties.get("metadata.log.dir") or logs[0])
    names = properties.list("controller.listener.names")
    endpoint = _endpoint(properties, names) if "controller" in roles else None
    check_values(properties)
    return ServerFile(
        node_id=node_id,
        roles=roles,
        directories=tuple(sorted({*logs, metadata})),
        metadata_directory=metadata,
        static_voters=bool(voters),
        listener=names[0],
        endpoint=endpoint,
        unstable_features=read_flag(properties, "unstable.feature.versions.enable")
        if "unstable.feature.versions.enable" in properties
        else False,
    )


def _static_voters(properties: Properties) -> frozenset[int]:
    key = "controller.quorum.voters"
    try:
        return parse_voters(properties.list(key)).ids
    except ConfigError as error:
        raise properties.error(f"{key}: {error.reason}", key) from None


def _check_voters(properties: Properties, node_id: int, roles: tuple[str, ...], voters: frozenset[int]) -> None:
    if not voters and not properties.list("controller.quorum.bootstrap.servers"):
        raise properties.error(
            "neither controller.quorum.bootstrap.servers nor controller.quorum.voters is there: name the controllers "
            "in one of them",
            "controller.quorum.bootstrap.servers",
            "controller.quorum.voters",
        )
    if voters and ("controller" in roles) != (node_id in voters):
        what = "is a controller but not among" if "controller" in roles else "is a broker but among"
        raise properties.error(
            f"node.id {node_id} {what} controller.quorum.voters {sorted(voters)}", "controller.quorum.voters"
        )


def _endpoint(properties: Properties, names: list[str]) -> Endpoint:
    wanted = [name.upper() for name in names]
    found: dict[str, Endpoint] = {}
    for key in ("listeners", "advertised.listeners"):
        for endpoint in read_listeners(properties, key):
            if key == "advertised.listeners" and endpoint.host == ALL_INTERFACES:
                raise properties.error(f"{key} has {endpoint}: nobody can connect to {ALL_INTERFACES}", key)
            found[endpoint.name] = endpoint
        if key == "listeners":
            check_listener_names(properties, wanted, found)
    first = found[wanted[0]]
    return Endpoint(first.name, "localhost" if first.host in ("", ALL_INTERFACES) else first.host, first.port)
