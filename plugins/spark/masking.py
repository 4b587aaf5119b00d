"""Finds secret values of configs and makes the marks that gold has in their place."""

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
"""By resource type, the scopes of Kafka's config definitions."""
_VALUE = re.compile(r"(?:password|secret)\s*=", re.IGNORECASE)  # a JAAS configuration under any name


def is_secret(name: str, value: str, resource_type: int) -> bool:
    """Whether a config's value must be masked.

    As in Kafka (KafkaConfigSchema's ``isSensitive``), a config of type password and a config that Kafka does not define
    are secret; a listener's key is looked up without its prefix. Names and values that look like a secret are as well.

    Args:
        name: name of the config.
        value: value of the config.
        resource_type: as in ConfigRecord: 2 topic, 4 broker, 16 client metrics, 32 group; for other types the rule
            about undefined configs does not apply.
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
    # Names of Kafka's configs of type password; a listener's config ends with such a name.
    return tuple(key.name for key in definitions("broker").values() if key.type.is_sensitive)


def masked(value: str, key: Callable[[], bytes]) -> str:
    """The mark of a secret. Equal values have equal marks under one key, so that clusters can be compared.

    Args:
        value: the secret.
        key: returns the secret key of the marks, ``KEY_BYTES`` bytes; without the key no guess can be tried.
    """
    return f"hidden:{hmac.new(key(), value.encode(), 'sha256').hexdigest()[:_DIGITS]}"
