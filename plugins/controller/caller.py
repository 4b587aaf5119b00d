"""Who sends a request, as far as decisions look at it."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftcore.config.security import SecurityProtocol
from kraftcore.node.registry import Asker
from kraftcore.security.principals import ANONYMOUS


class Caller(NamedTuple):
    """Who sends a request.

    Attributes:
        principal: ``User:alice``; of a forwarded request the one inside the envelope.
        security_protocol: of the connection.
        is_forwarded: a broker passed the request on in an envelope (KIP-590).
        is_by_token: it logged in with a delegation token.
    """

    principal: str = str(ANONYMOUS)
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    is_forwarded: bool = False
    is_by_token: bool = False

    @property
    def may_handle_tokens(self) -> bool:
        """Delegation tokens are for those who proved who they are, by other means than a token (KIP-48)."""
        if self.is_by_token:
            return False
        if self.is_forwarded:
            return True
        if self.security_protocol is SecurityProtocol.SSL:
            return self.principal != str(ANONYMOUS)
        return self.security_protocol is not SecurityProtocol.PLAINTEXT


UNKNOWN_CALLER: Final = Caller()
"""Who comes without authentication."""


def caller_of(asker: Asker) -> Caller:
    """Who sent a request that came in."""
    return Caller(str(asker.principal), asker.security_protocol, asker.is_forwarded, asker.is_by_token)
