"""The sender of a request, as decisions see it."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftcore.config.security import SecurityProtocol
from kraftcore.node.registry import Asker
from kraftcore.security.principals import ANONYMOUS


class Caller(NamedTuple):
    """The sender of a request.

    Attributes:
        principal: ``User:alice``; for a forwarded request the principal inside the envelope.
        security_protocol: of the connection.
        is_forwarded: whether a broker passed the request on in an envelope (KIP-590).
        is_by_token: whether the sender logged in with a delegation token.
    """

    principal: str = str(ANONYMOUS)
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    is_forwarded: bool = False
    is_by_token: bool = False

    @property
    def may_handle_tokens(self) -> bool:
        """Whether the sender may use delegation tokens: it is authenticated, and not by a token (KIP-48)."""
        if self.is_by_token:
            return False
        if self.is_forwarded:
            return True
        if self.security_protocol is SecurityProtocol.SSL:
            return self.principal != str(ANONYMOUS)
        return self.security_protocol is not SecurityProtocol.PLAINTEXT


UNKNOWN_CALLER: Final = Caller()
"""The sender on a listener without authentication."""


def caller_of(asker: Asker) -> Caller:
    """The sender that a request's asker stands for."""
    return Caller(str(asker.principal), asker.security_protocol, asker.is_forwarded, asker.is_by_token)
