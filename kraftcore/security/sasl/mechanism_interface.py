"""What a SASL mechanism is: one object for one authentication, a call for each message (RFC 4422)."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from kraftcore.errors import AuthenticationError

__all__ = ["OAUTHBEARER", "AuthenticationError", "ClientMechanism", "Identity", "ServerMechanism"]

OAUTHBEARER: Final = "OAUTHBEARER"


class Identity(NamedTuple):
    """Who authenticated.

    Attributes:
        name: of the user; of a delegation token its owner.
        expires_ms: when it ends to be so, by the clock that sessions end by (`ServerSession.take`); None: never.
        is_by_token: it was proven with a delegation token (KIP-48).
        kind: of the principal: ``User``.
    """

    name: str
    expires_ms: int | None = None
    is_by_token: bool = False
    kind: str = "User"


class ServerMechanism(Protocol):
    """The side that asks for proof."""

    @property
    def identity(self) -> Identity | None:
        """Who it is; None until that is proven."""
        ...

    def respond(self, message: bytes) -> bytes:
        """The answer to a client's message; the last one when ``identity`` is known.

        Raises:
            AuthenticationError: it is not who it says, or what it sends has no meaning.
        """
        ...


class ClientMechanism(Protocol):
    """The side that proves who it is."""

    @property
    def name(self) -> str:
        """As in SaslHandshake."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is expected of the server."""
        ...

    def first(self) -> bytes:
        """The first message."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to a server's message; None: there is nothing more to say.

        Raises:
            AuthenticationError: the server did not prove what it has to, or what it sends has no meaning.
        """
        ...
