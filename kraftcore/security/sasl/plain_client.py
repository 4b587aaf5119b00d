"""PLAIN, the side that has a password (RFC 4616): only for encrypted connections, as the server reads the password."""

from __future__ import annotations

from kraftcore.errors import LocalError
from kraftcore.security.sasl.mechanism_interface import AuthenticationError

PLAIN = "PLAIN"


class PlainClient:
    """One authentication.

    Args:
        username: who logs in.
        password: sent as it is.

    Raises:
        LocalError: one of them is empty or holds a NUL.
    """

    name = PLAIN

    def __init__(self, username: str, password: str) -> None:
        for what, value in (("name", username), ("password", password)):
            if not value or "\0" in value:
                raise LocalError(f"{PLAIN}: the user's {what} must not be empty nor hold a NUL character")
        self._message = f"\0{username}\0{password}".encode()
        self._is_begun = False

    @property
    def is_complete(self) -> bool:
        """See ``ClientMechanism``."""
        return self._is_begun

    def first(self) -> bytes:
        """See ``ClientMechanism``."""
        if self._is_begun:
            raise LocalError("an authentication begins once")
        self._is_begun = True
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        """See ``ClientMechanism``: no challenge has a meaning here."""
        raise AuthenticationError("the server says more than it was asked")
