"""Names of Kafka's SASL properties and login modules, and of properties that are one listener's own."""

from __future__ import annotations

from typing import Final

ENABLED_KEY: Final = "sasl.enabled.mechanisms"
JAAS_KEY: Final = "sasl.jaas.config"
REAUTH_KEY: Final = "connections.max.reauth.ms"
RECEIVE_KEY: Final = "sasl.server.max.receive.size"
NODE_MECHANISM_KEY: Final = "sasl.mechanism.controller.protocol"
BROKER_MECHANISM_KEY: Final = "sasl.mechanism.inter.broker.protocol"
CLIENT_MECHANISM_KEY: Final = "sasl.mechanism"
_NAMES = """
sasl.login.callback.handler.class
sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms
sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.file
sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url
sasl.server.callback.handler.class
"""
OAUTH_READ: Final = frozenset(_NAMES.split())
"""Properties of OAUTHBEARER; each may be set for one listener, and for one listener's mechanism."""
SASL_READ: Final = frozenset({ENABLED_KEY, JAAS_KEY, REAUTH_KEY, RECEIVE_KEY}) | OAUTH_READ
"""Properties of listeners; each may be set for one, all but the first and fourth for one listener's mechanism."""


def listener_prefix(listener: str) -> str:
    """The prefix of one listener's properties."""
    return f"listener.name.{listener.lower()}."


def mechanism_key(listener: str, mechanism: str, key: str) -> str:
    """The name of a property of one listener's mechanism."""
    return f"{listener_prefix(listener)}{mechanism.lower()}.{key}"
