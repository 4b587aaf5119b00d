"""A client metrics subscription's configuration (KIP-714): what is refused.

Source: Kafka 4.3.1, ``ClientMetricsConfigs.validate``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kraftcore.configdef.keys import definitions
from kraftcore.configdef.topics import not_null
from kraftcore.configdef.types import ConfigValueError
from kraftcore.errors import LocalError

_INTERVAL, _MATCH = "interval.ms", "match"
_LEAST_MS, _MOST_MS = 100, 3_600_000
_SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class UnknownMetricsConfigError(LocalError):
    """An unknown key or an interval out of range: Kafka answers INVALID_REQUEST where others get INVALID_CONFIG."""


def validate_client_metrics(configs: Mapping[str, str | None]) -> None:
    """Check all values that a subscription is to have.

    Patterns are checked as Python's regular expressions, Kafka's are Java's: a few exotic ones differ.

    Raises:
        ConfigValueError: a value is refused, with Kafka's message.
        UnknownMetricsConfigError: an unknown key, or an interval out of range, with Kafka's message.
    """
    given = not_null(configs, "client metrics")
    known = definitions("client-metrics")
    for name in given:
        if name not in known:
            raise UnknownMetricsConfigError(f"Unknown client metrics configuration: {name}")
    read: dict[str, Any] = known.read(given)
    if _INTERVAL in read and not _LEAST_MS <= read[_INTERVAL] <= _MOST_MS:
        raise UnknownMetricsConfigError(
            f"Invalid value {read[_INTERVAL]} for {_INTERVAL}, interval must be between {_LEAST_MS} and {_MOST_MS} "
            "(1 hour)"
        )
    for pattern in read.get(_MATCH, ()):
        if not _is_selection(pattern):
            raise ConfigValueError(f"Illegal client matching pattern: {pattern}")


def _is_selection(pattern: str) -> bool:
    parts = pattern.split("=")
    while len(parts) > 1 and not parts[-1]:  # Java's split drops what is empty at the end
        parts.pop()
    if len(parts) != 2 or parts[0].strip() not in _SELECTORS:
        return False
    try:
        re.compile(parts[1].strip())
    except (re.error, OverflowError, RecursionError):
        return False
    return True
