"""Values of configs that nobody is to read: gold has a mark in their place."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from functools import cache

from kraftcore.configdef.keys import definitions

KEY_BYTES = 32
_DIGITS = 12
_NAME = re.compile(r"password|passphrase|secret|jaas|(?:^|\.)(?:key|token)$|api[._-]?key", re.IGNORECASE)
_VALUE = re.compile(r"(?:password|secret)\s*=", re.IGNORECASE)  # as in a JAAS configuration under another name


def is_secret(name: str, value: str) -> bool:
    """Whether a config's value is to be masked: Kafka's type of it is password, or its name or value looks like one."""
    return bool(_NAME.search(name) or name.endswith(_passwords()) or _VALUE.search(value))


@cache
def _passwords() -> tuple[str, ...]:
    # Kafka's keys of that type; a listener's own have a prefix.
    return tuple(key.name for key in definitions("broker").values() if key.type.is_sensitive)


def masked(value: str, key: Callable[[], bytes]) -> str:
    """A mark in place of a value: equal values have equal marks, so that clusters can be compared.

    Args:
        value: the secret.
        key: called for the key of the marks, without which a guess cannot be tried.
    """
    return f"hidden:{hmac.new(key(), value.encode(), 'sha256').hexdigest()[:_DIGITS]}"
