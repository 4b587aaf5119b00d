"""OAUTHBEARER's settings from Kafka's properties and the options of a JAAS line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kraftcore.config.addresses import split_list
from kraftcore.config.errors import ConfigError
from kraftcore.config.properties import Properties, read_flag, read_integer
from kraftcore.errors import LocalError
from kraftcore.security.sasl.oauth_settings import TokenRequest, TokenValidation
from kraftcore.security.sasl.oauth_token import TokenRules

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_JWKS = "sasl.oauthbearer.jwks.endpoint."
_CLIENT = "sasl.oauthbearer.client.credentials.client."
_EXTENSION = "extension_"


def read_validation(properties: Properties, prefixes: Sequence[str], options: Mapping[str, str]) -> TokenValidation:
    """Read a listener's rules for tokens.

    Args:
        properties: of the server.
        prefixes: possible prefixes of a property's name, the strongest first, for example
            ``listener.name.outside.oauthbearer.``, ``listener.name.outside.`` and nothing.
        options: of the listener's OAuthBearerLoginModule.

    Raises:
        ConfigError: a setting is missing, out of range, or names a Java class without a counterpart here.
    """
    source = _Source(properties, prefixes)
    source.check_class("sasl.server.callback.handler.class", "OAuthBearerValidatorCallbackHandler")
    source.check_class("sasl.oauthbearer.jwt.validator.class", "DefaultJwtValidator", "BrokerJwtValidator")
    url = source.text(_JWKS + "url")
    if url is None:
        # Kafka's default accepts unsigned tokens (OAuthBearerUnsecuredValidatorCallbackHandler).
        raise source.error(
            f"{_JWKS}url is missing: OAUTHBEARER needs the keys that tokens are signed with", _JWKS + "url"
        )
    found = {
        "refresh_ms": source.number(_JWKS + "refresh.ms", 1, _INT64_MAX),
        "retry_backoff_ms": source.number(_JWKS + "retry.backoff.ms", 1, _INT64_MAX),
        "retry_backoff_max_ms": source.number(_JWKS + "retry.backoff.max.ms", 1, _INT64_MAX),
    }
    try:
        return TokenValidation(keys_url=url, rules=_rules(source), ca=_authorities(source, options), **_given(found))
    except ConfigError:
        raise
    except LocalError as error:
        raise source.error(str(error), _JWKS + "url") from None


def read_token_request(properties: Properties, prefixes: Sequence[str], options: Mapping[str, str]) -> TokenRequest:
    """Read where this side gets its own tokens; arguments and errors as of ``read_validation``.

    A property overrides the JAAS option with the same meaning, as in Kafka since 4.1.
    """
    source = _Source(properties, prefixes)
    source.check_class("sasl.login.callback.handler.class", "OAuthBearerLoginCallbackHandler")
    source.check_class(
        "sasl.oauthbearer.jwt.retriever.class",
        *("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"),
    )
    source.check_class("sasl.oauthbearer.jwt.validator.class", "DefaultJwtValidator", "ClientJwtValidator")
    for name in ("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.claim.iss"):
        if source.text(name) is not None:
            raise source.error(f"{name}: only files and client secrets are offered, no assertions", name)
    name = "sasl.oauthbearer.token.endpoint.url"
    url = source.text(name)
    if url is None:
        raise source.error(f"{name} is missing: OAUTHBEARER needs a place to get tokens from", name)
    login = "sasl.login."
    found = {
        "encode_header": source.flag("sasl.oauthbearer.header.urlencode"),
        "refresh_window_factor": source.fraction(login + "refresh.window.factor"),
        "refresh_window_jitter": source.fraction(login + "refresh.window.jitter"),
        "refresh_min_period_s": source.number(login + "refresh.min.period.seconds", 0, _INT32_MAX),
        "refresh_buffer_s": source.number(login + "refresh.buffer.seconds", 0, _INT32_MAX),
        "connect_timeout_ms": source.number(login + "connect.timeout.ms", 1, _INT32_MAX),
        "read_timeout_ms": source.number(login + "read.timeout.ms", 1, _INT32_MAX),
        "retry_backoff_ms": source.number(login + "retry.backoff.ms", 1, _INT64_MAX),
        "retry_backoff_max_ms": source.number(login + "retry.backoff.max.ms", 1, _INT64_MAX),
    }
    extensions = {key.removeprefix(_EXTENSION): text for key, text in options.items() if key.startswith(_EXTENSION)}
    try:
        return TokenRequest(
            token_url=url,
            client_id=source.text(_CLIENT + "id") or options.get("clientId"),
            client_secret=source.text(_CLIENT + "secret") or options.get("clientSecret"),
            scope=source.text("sasl.oauthbearer.scope") or options.get("scope"),
            rules=_rules(source),
            extensions=extensions,
            ca=_authorities(source, options),
            **_given(found),
        )
    except ConfigError:
        raise
    except LocalError as error:
        raise source.error(str(error), name) from None


class _Source:
    """Properties whose names may have a prefix."""

    def __init__(self, properties: Properties, prefixes: Sequence[str]) -> None:
        self._properties = properties
        self._prefixes = prefixes

    def key(self, name: str) -> str:
        """The property's name with the strongest prefix that is set; the name alone if none is."""
        return next((prefix + name for prefix in self._prefixes if prefix + name in self._properties), name)

    def text(self, name: str) -> str | None:
        return self._properties.get(self.key(name)) or None

    def number(self, name: str, low: int, high: int) -> int | None:
        return None if self.text(name) is None else read_integer(self._properties, self.key(name), low, high)

    def flag(self, name: str) -> bool | None:
        return None if self.text(name) is None else read_flag(self._properties, self.key(name))

    def fraction(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(f"{name} is {text!r}: it must be a number", name)
        return value

    def error(self, reason: str, name: str) -> ConfigError:
        return self._properties.error(reason, self.key(name))

    def check_class(self, name: str, *known: str) -> None:
        text = self.text(name)
        if text is not None and text not in [_PACKAGE + each for each in known]:
            raise self.error(
                f"{name} is {text!r}: a class of Java's cannot be loaded, and only {' and '.join(known)} of "
                f"{_PACKAGE[:-1]} have a counterpart",
                name,
            )


def _rules(source: _Source) -> TokenRules:
    audiences = split_list(source.text("sasl.oauthbearer.expected.audience") or "")
    found = {
        "issuer": source.text("sasl.oauthbearer.expected.issuer"),
        "clock_skew_s": source.number("sasl.oauthbearer.clock.skew.seconds", 0, _INT32_MAX),
        "scope_claim": source.text("sasl.oauthbearer.scope.claim.name"),
        "subject_claim": source.text("sasl.oauthbearer.sub.claim.name"),
    }
    return TokenRules(audiences=tuple(audiences), **_given(found))


def _authorities(source: _Source, options: Mapping[str, str]) -> str | None:
    """The PEM file in a JAAS line's ``ssl.truststore.location``: Kafka reads no other place for these connections."""
    name = "sasl.jaas.config"
    path = options.get("ssl.truststore.location")
    if path and options.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise source.error(f"{name}: ssl.truststore.type must be PEM", name)
    for option in options:
        if option.startswith("ssl.") and option not in (
            "ssl.truststore.location",
            "ssl.truststore.type",
            "ssl.protocol",
        ):
            raise source.error(f"{name}: {option} is not offered: ssl.truststore.location and .type are", name)
    return path


def _given(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}
