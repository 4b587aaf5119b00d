"""Values of configs that nobody is to read: gold has a mark in their place."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from functools import cache, lru_cache

from kraftcore.configdef.keys import definitions

KEY_BYTES = 32
_DIGITS = 12
_NAME = re.compile(r"password|passphrase|secret|jaas|(?:^|\.)(?:key|token)$|api[._-]?key", re.IGNORECASE)
_LISTENER = re.compile(r"^listener\.name\.[^.]+\.")
_MECHANISM = re.compile(r"^listener\.name\.[^.]+\.[^.]+\.(?=sasl\.)")
_SCOPES = {2: ("topic",), 4: ("broker", "broker-quota"), 16: ("client-metrics",), 32: ("group",)}
"""By type of resource, where its configs are defined."""
_VALUE = re.compile(r"(?:password|secret)\s*=", re.IGNORECASE)  # as in a JAAS configuration under another name


def is_secret(name: str, value: str, resource_type: int) -> bool:
    """Whether a config's value is to be masked.

    Kafka takes for a secret what its definitions say is a password, and what they do not know (KafkaConfigSchema's
    ``isSensitive``); so here, but that a listener's own key is known as the one without its prefix. Besides, names and
    values that look like a secret's are.

    Args:
        name: the config's.
        value: its value.
        resource_type: of ConfigRecord: 2 topic, 4 broker, 16 client metrics, 32 group; of others all names are known.
    """
    return _is_secret_name(name, resource_type) or bool(_VALUE.search(value))


@lru_cache(1 << 12)
def _is_secret_name(name: str, resource_type: int) -> bool:
    if _NAME.search(name) or name.endswith(_passwords()):
        return True
    scopes = _SCOPES.get(resource_type)
    names = {name, _LISTENER.sub("", name), _MECHANISM.sub("", name)}
    return scopes is not None and not any(one in definitions(scope) for scope in scopes for one in names)


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
