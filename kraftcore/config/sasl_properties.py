"""SASL of a listener, from the properties of a server's file as Kafka 4.3.1 reads them (KIP-103, KIP-85, KIP-368)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftcore.config.errors import ConfigError
from kraftcore.config.jaas import parse_single_jaas
from kraftcore.config.oauth import read_validation
from kraftcore.config.properties import Properties, read_integer
from kraftcore.config.sasl_keys import (
    ENABLED_KEY,
    JAAS_KEY,
    REAUTH_KEY,
    RECEIVE_KEY,
    listener_prefix,
    mechanism_key,
)
from kraftcore.config.security import MAX_RECEIVE_BYTES, SaslConfig, check_mechanism
from kraftcore.config.settings import INT32_MAX, INT64_MAX
from kraftcore.security.sasl.mechanism_table import MECHANISMS, MechanismName
from kraftcore.security.sasl.oauth_settings import TokenValidation

_USER_PREFIX: Final = "user_"


def read_listener_sasl(properties: Properties, listener: str) -> SaslConfig:
    """Read how clients of a listener log in.

    Args:
        properties: of a server's file.
        listener: its name.

    Raises:
        ConfigError: no mechanism is enabled, or an unknown one; PLAIN has no users; a login module cannot be read, or
            is that of another mechanism.
    """
    enabled = _key(properties, listener, ENABLED_KEY)
    if not properties.list(enabled):
        raise properties.error(
            f"{ENABLED_KEY} is missing: listener {listener} wants SASL, and Kafka's default, GSSAPI, is not known here",
            enabled,
            "listener.security.protocol.map",
        )
    try:
        mechanisms = tuple(map(check_mechanism, properties.list(enabled)))
    except ConfigError as error:
        raise properties.error(f"{enabled}: {error.reason}", enabled) from None
    listing = next((each for each in mechanisms if MECHANISMS[each].lists_users), None)
    by_token = next((each for each in mechanisms if MECHANISMS[each].client is None), None)
    receive = _key(properties, listener, RECEIVE_KEY)
    return SaslConfig(
        mechanisms=mechanisms,
        users={} if listing is None else _users(properties, listener, listing),
        max_reauth_ms={
            mechanism: read_integer(properties, key, 0, INT64_MAX)
            for mechanism in mechanisms
            if (key := _reauth_key(properties, listener, mechanism)) in properties
        },
        tokens=None if by_token is None else _tokens(properties, listener, by_token),
        max_receive_bytes=read_integer(properties, receive, 1, INT32_MAX)
        if receive in properties
        else MAX_RECEIVE_BYTES,
    )


def _key(properties: Properties, listener: str, key: str) -> str:
    # A listener's own properties override those of all listeners.
    specific = listener_prefix(listener) + key
    return specific if specific in properties else key


def _reauth_key(properties: Properties, listener: str, mechanism: str) -> str:
    specific = mechanism_key(listener, mechanism, REAUTH_KEY)
    return specific if specific in properties else _key(properties, listener, REAUTH_KEY)


def _users(properties: Properties, listener: str, mechanism: MechanismName) -> dict[str, str]:
    key = mechanism_key(listener, mechanism, JAAS_KEY)
    options = _login_options(properties, key, mechanism)
    if options is None:
        example = f'{MECHANISMS[mechanism].module} required user_alice="...";'
        raise properties.error(f"{key} is missing: {mechanism} needs users, for example {example}", key)
    return {
        name.removeprefix(_USER_PREFIX): password
        for name, password in options.items()
        if name.startswith(_USER_PREFIX) and name != _USER_PREFIX and password
    }


def _tokens(properties: Properties, listener: str, mechanism: MechanismName) -> TokenValidation:
    options = _login_options(properties, mechanism_key(listener, mechanism, JAAS_KEY), mechanism)
    prefixes = (mechanism_key(listener, mechanism, ""), listener_prefix(listener), "")
    return read_validation(properties, prefixes, options or {})


def _login_options(properties: Properties, key: str, mechanism: MechanismName) -> Mapping[str, str] | None:
    """The options of a mechanism's login module; None without a module."""
    text = properties.get(key)
    if text is None:
        return None
    try:
        entry = parse_single_jaas(text, key)
    except ConfigError as error:
        raise properties.error(error.reason, key) from None
    module = MECHANISMS[mechanism].module
    if entry.module != module:
        raise properties.error(f"{key} names {entry.module}: {mechanism} has {module}", key)
    return entry.options
