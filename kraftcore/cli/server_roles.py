"""Chooses by a server's properties what to run: a controller, a broker, both, or a broker that obeys requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kraftcore.config.properties import load_properties, read_flag
from kraftcore.plugins.broker.config import BrokerConfig, has_broker_role, is_broker

_OFFERS_LOG = "kraftcore.offers.log"


class RunsServer(Protocol):
    """Runs a server until a signal, or its failure, ends it: `run_server` or `run_broker` with their settings."""

    def __call__(self, *, as_json: bool) -> str | None:
        """Run; returns why the server could not start or had to stop; None if it was told to stop."""
        ...


def load_server(file: str, properties: Mapping[str, str]) -> RunsServer:
    """Read a server's file.

    Args:
        file: path of the file.
        properties: override those in the file.

    Raises:
        ConfigError: a property is missing, cannot be read, or is not supported; the error names file and line.
        CorruptDataError: the file holds a broken escape.
        StorageError: the file cannot be read.
    """
    all_of_it = load_properties(file, properties)
    if is_broker(all_of_it):
        from kraftcore.cli.broker_run import run_broker

        return partial(run_broker, BrokerConfig.read(all_of_it))
    from kraftcore.cli.node_run import run_server
    from kraftcore.config import NodeConfig

    config = NodeConfig.read(all_of_it, with_broker=True)
    broker = BrokerConfig.read(all_of_it) if has_broker_role(all_of_it) else None
    offers_log = _OFFERS_LOG in all_of_it and read_flag(all_of_it, _OFFERS_LOG)
    return partial(run_server, config, all_of_it.all, offers_log=offers_log, broker=broker)
