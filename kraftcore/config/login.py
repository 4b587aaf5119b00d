"""Login on connections that a program makes, with Kafka's ``sasl.*`` names."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field

from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.jaas import parse_single_jaas
from kraftcore.config.oauth import read_token_request
from kraftcore.config.properties import Properties
from kraftcore.config.sasl_keys import (
    BROKER_MECHANISM_KEY,
    CLIENT_MECHANISM_KEY,
    JAAS_KEY,
    NODE_MECHANISM_KEY,
    listener_prefix,
    mechanism_key,
)
from kraftcore.config.security import is_mechanism
from kraftcore.config.settings import settings
from kraftcore.errors import LocalError
from kraftcore.ports.login import ClientSession, Login
from kraftcore.ports.transport import Address
from kraftcore.security.sasl.client_session import SaslClientSession
from kraftcore.security.sasl.mechanism_interface import ClientMechanism
from kraftcore.security.sasl.mechanism_table import MECHANISMS, MechanismName
from kraftcore.security.sasl.oauth_settings import TokenRequest


@settings(place="sasl")
class SaslLogin:
    """Mechanism and credentials for logging in on connections that a program makes.

    Attributes:
        mechanism: ``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512`` or ``OAUTHBEARER``.
        username: the user, or a delegation token's id; empty for OAUTHBEARER.
        password: the password, or a delegation token's HMAC in base64; never printed.
        is_token: whether name and password are a delegation token's (KIP-48); for the SCRAM mechanisms.
        token_request: source of the tokens for OAUTHBEARER; None for all other mechanisms.

    Raises:
        ConfigError: the mechanism is not known, or an attribute is missing, contradicts it or cannot be sent.
    """

    mechanism: MechanismName
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    is_token: bool = False
    token_request: TokenRequest | None = None

    def __post_init__(self) -> None:
        name, mechanism = self.mechanism, MECHANISMS[self.mechanism]
        if (mechanism.client is None) is (self.token_request is None):
            raise _error("sasl.token_request belongs to OAUTHBEARER: give both")
        if mechanism.client is None:
            if self.username is not None or self.password is not None:
                raise _error(f"{name} takes no name and password, but tokens (sasl.token_request)")
        elif self.username is None or self.password is None:
            raise _error(f"{name} needs sasl.username and sasl.password, both texts")
        if self.is_token and not mechanism.takes_delegation_tokens:
            raise _error(f"{name} takes no delegation tokens (tokenauth): the SCRAM mechanisms do")
        try:
            _mechanisms(self)
        except ConfigError:
            raise
        except LocalError as error:
            raise _error(str(error)) from None


def make_login(settings: SaslLogin, client_id: str = "kraftcore") -> Login:
    """Make the login of a transport, for every connection that it makes.

    Args:
        settings: mechanism and credentials.
        client_id: goes into the frames of the login, for the other side's logs.
    """
    make = _mechanisms(settings)

    def login(address: Address) -> ClientSession:
        return SaslClientSession(make, str(address), client_id)

    return login


def _mechanisms(settings: SaslLogin) -> Callable[[], Awaitable[ClientMechanism]]:
    client = MECHANISMS[settings.mechanism].client
    if settings.token_request is not None:
        # Imports HTTP, so only for this mechanism.
        from kraftcore.transports.oauth import TokenLogin

        return TokenLogin(settings.token_request, lambda: time.time_ns() // 1_000_000).mechanism
    if client is None:
        raise _error(f"{settings.mechanism} needs sasl.token_request")
    make = client(settings.username or "", settings.password or "", settings.is_token)
    make()  # raises now if the credentials cannot be sent

    async def make_later() -> ClientMechanism:
        return make()

    return make_later


def read_node_login(properties: Properties, listener: str) -> SaslLogin | None:
    """Read how a server logs in at other servers' listener of this name; None: no mechanism is given.

    As in Kafka the mechanism is ``sasl.mechanism.controller.protocol``, and the login module is in
    ``listener.name.LISTENER.MECHANISM.sasl.jaas.config``. If that is missing, it is in ``sasl.jaas.config``, where
    Kafka reads a file of its own.

    Raises:
        ConfigError: the mechanism is not known, or its login module is missing or cannot be used.
    """
    mechanism = properties.get(NODE_MECHANISM_KEY)
    if not mechanism:
        return None
    prefixes = (mechanism_key(listener, mechanism, ""), listener_prefix(listener), "")
    return _read(properties, mechanism, NODE_MECHANISM_KEY, (prefixes[0] + JAAS_KEY, JAAS_KEY), prefixes)


def read_broker_login(properties: Properties, listener: str) -> SaslLogin:
    """Read how a broker logs in at other brokers' listener of this name: ``sasl.mechanism.inter.broker.protocol``.

    Raises:
        ConfigError: as ``read_node_login``; or the mechanism is missing.
    """
    mechanism = properties.get(BROKER_MECHANISM_KEY)
    if not mechanism:
        raise properties.error(
            f"{BROKER_MECHANISM_KEY} is missing: {listener} wants a login, and Kafka's default, GSSAPI, is not known "
            f"here; there are {', '.join(MECHANISMS)}",
            BROKER_MECHANISM_KEY,
        )
    prefixes = (mechanism_key(listener, mechanism, ""), listener_prefix(listener), "")
    return _read(properties, mechanism, BROKER_MECHANISM_KEY, (prefixes[0] + JAAS_KEY, JAAS_KEY), prefixes)


def read_client_login(properties: Properties) -> SaslLogin:
    """Read how a client logs in: ``sasl.mechanism`` and ``sasl.jaas.config``.

    Raises:
        ConfigError: as ``read_node_login``; or the mechanism is missing.
    """
    mechanism = properties.get(CLIENT_MECHANISM_KEY)
    if not mechanism:
        raise properties.error(
            f"{CLIENT_MECHANISM_KEY} is missing: Kafka's default, GSSAPI, is not known here; there are "
            f"{', '.join(MECHANISMS)}",
            CLIENT_MECHANISM_KEY,
        )
    return _read(properties, mechanism, CLIENT_MECHANISM_KEY, (JAAS_KEY,), ("",))


def _read(
    properties: Properties, mechanism: str, mechanism_place: str, jaas_keys: Sequence[str], prefixes: Sequence[str]
) -> SaslLogin:
    if not is_mechanism(mechanism):
        raise properties.error(
            f"{mechanism_place} is {mechanism!r}: it may be {', '.join(MECHANISMS)}{suggestion(mechanism, MECHANISMS)}",
            mechanism_place,
        )
    key = next((key for key in jaas_keys if key in properties), None)
    known = MECHANISMS[mechanism]
    module, has_password = known.module, known.client is not None
    if key is None:
        example = ' username="..." password="..."' if has_password else ""
        raise properties.error(
            f"{jaas_keys[0]} is missing: {mechanism} logs in with {module} required{example};", *jaas_keys
        )
    try:
        entry = parse_single_jaas(properties.get(key) or "", key)
    except ConfigError as error:
        raise properties.error(error.reason, key) from None
    if entry.module != module:
        raise properties.error(f"{key} names {entry.module}: {mechanism} has {module}", key)
    if not has_password:
        return SaslLogin(mechanism=mechanism, token_request=read_token_request(properties, prefixes, entry.options))
    try:
        return SaslLogin(
            mechanism=mechanism,
            username=_option(entry.options, "username"),
            password=_option(entry.options, "password"),
            is_token=known.takes_delegation_tokens and entry.options.get("tokenauth", "").lower() == "true",
        )
    except ConfigError as error:
        raise properties.error(f"{key}: {error.reason}", key) from None


def _option(options: Mapping[str, str], name: str) -> str:
    found = options.get(name)
    if not found:
        raise ConfigError(f"the login module needs the option {name}, and not empty")
    return found


def _error(reason: str) -> ConfigError:
    return ConfigError(reason, ["sasl"])
