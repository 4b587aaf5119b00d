"""Which listeners of a node authenticate their clients, and the rules for listeners that do not."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from kraftcore.config.node import NodeConfig
from kraftcore.node.registry import Priority, RequestContext, RequestHandler
from kraftcore.ports.transport import Admission
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kraftcore.raft.quorum import Endpoint
from kraftcore.security.principals import PrincipalBuilder, StandardPrincipalBuilder


def has_authentication(config: NodeConfig, listener: str) -> bool:
    """Whether clients of a listener are authenticated: by SASL, by certificate, or by the application's builder."""
    tls = config.listener_tls.get(listener, config.tls)
    has_certificate = tls is not None and tls.client_auth != "none"
    return listener in config.listener_sasl or has_certificate or config.principal_builder is not None


def principal_builder(config: NodeConfig) -> PrincipalBuilder:
    """The maker of principals: the application's builder, or Kafka's rules."""
    if config.principal_builder is not None:
        return config.principal_builder
    rules = {}
    for endpoint in config.all_listeners:
        tls = config.listener_tls.get(endpoint.name, config.tls)
        if tls is not None and tls.principal_mapping_rules is not None:
            rules[endpoint.name] = tls.principal_mapping_rules
    return StandardPrincipalBuilder(rules)


def open_to_strangers(config: NodeConfig, bound: Iterable[Endpoint]) -> list[Endpoint]:
    """Listeners that other machines can reach, and on which clients are not authenticated.

    Args:
        config: of the node.
        bound: endpoints of its listeners.
    """
    if config.principal_builder is not None:
        return []
    found = []
    for endpoint in bound:
        tls = config.listener_tls.get(endpoint.name, config.tls)
        wants_proof = endpoint.name in config.listener_sasl or (tls is not None and tls.client_auth == "required")
        if not wants_proof and not _is_loopback(endpoint.host):
            found.append(endpoint)
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def admission(config: NodeConfig, listener: str) -> Admission | None:
    """The bounds of a connection to a listener until its client has logged in; None where no login is needed."""
    sasl = config.listener_sasl.get(listener)
    return None if sasl is None else Admission(sasl.max_receive_bytes, config.handshake_timeout_ms)


def sasl_handlers() -> tuple[RequestHandler, ...]:
    """The answers to SASL requests on listeners without SASL, and after the login."""
    return (
        RequestHandler(SaslHandshakeRequest, _no_handshake, None, Priority.CONTROL, listener_type=None),
        RequestHandler(SaslAuthenticateRequest, _no_authentication, None, Priority.CONTROL, listener_type=None),
    )


def _no_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def _no_authentication(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    text = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text)
