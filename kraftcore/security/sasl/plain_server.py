"""PLAIN, the side that asks for the password (RFC 4616). Source of the texts: Kafka 4.3.1 PlainSaslServer."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from kraftcore.security.sasl.mechanism_interface import AuthenticationError, Identity

_PARTS = 3
_NOBODYS = secrets.token_urlsafe()  # what an unknown user's password is compared with
_WRONG = "Authentication failed: Invalid username or password"


class PlainServer:
    """One authentication by user name and password.

    A password is compared by a keyed hash of it, and one of an unknown user with a hash that no password has: the time
    that takes tells neither how much of it was right nor who is known.

    Args:
        users: passwords by name.
        secret: the hash's key.

    Attributes:
        identity: see `ServerMechanism`.
    """

    def __init__(self, users: Mapping[str, str], secret: bytes) -> None:
        self.identity: Identity | None = None
        self._users = users
        self._secret = secret

    def respond(self, message: bytes) -> bytes:
        """See `ServerMechanism`."""
        try:
            parts = message.decode().split("\0", _PARTS)
        except UnicodeDecodeError:
            raise AuthenticationError(_WRONG) from None
        if len(parts) != _PARTS:
            raise AuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        acting_for, user, password = parts
        if not user:
            raise AuthenticationError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationError("Authentication failed: password not specified")
        wanted = hmac.digest(self._secret, self._users.get(user, _NOBODYS).encode(), "sha256")
        given = hmac.digest(self._secret, password.encode(), "sha256")
        if not hmac.compare_digest(wanted, given):
            raise AuthenticationError(_WRONG)
        if acting_for and acting_for != user:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.identity = Identity(user)
        return b""
