"""OAUTHBEARER, the side that has a token (RFC 7628), as Kafka 4.3.1's OAuthBearerSaslClient."""

from __future__ import annotations

from collections.abc import Mapping

from kraftcore.errors import AuthenticationError, LocalError
from kraftcore.security.sasl.mechanism_interface import OAUTHBEARER
from kraftcore.security.sasl.oauth_messages import DUMMY_RESPONSE, make_client_message


class OAuthBearerClient:
    """One authentication.

    Args:
        token: the access token, as it is sent.
        extensions: sent beside it (KIP-342): letters, and ASCII texts.

    Raises:
        LocalError: either cannot be sent.
    """

    name = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self._first = make_client_message(token, extensions or {})
        self._is_begun = False
        self._error: str | None = None
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """See ``ClientMechanism``."""
        return self._is_complete

    def first(self) -> bytes:
        """See ``ClientMechanism``."""
        if self._is_begun:
            raise LocalError("an authentication begins once")
        self._is_begun = True
        return self._first

    def respond(self, challenge: bytes) -> bytes | None:
        """See ``ClientMechanism``."""
        if self._error is not None:
            raise AuthenticationError(f"the token was refused: {self._error}")
        if not self._is_begun or self._is_complete:
            raise AuthenticationError("the server says more than it was asked")
        if challenge:
            self._error = challenge[:1000].decode(errors="replace")
            return DUMMY_RESPONSE
        self._is_complete = True
        return None
