"""OAUTHBEARER, the side that asks for a token (RFC 7628), as Kafka 4.3.1's OAuthBearerSaslServer."""

from __future__ import annotations

from collections.abc import Callable

from kraftcore.errors import AuthenticationError
from kraftcore.security.sasl.mechanism_interface import Identity
from kraftcore.security.sasl.oauth_keys import Keys
from kraftcore.security.sasl.oauth_messages import DUMMY_RESPONSE, make_error, parse_client_message
from kraftcore.security.sasl.oauth_token import AccessToken, TokenError, TokenRules, UnknownKeyError, check_token


class TokenCheck:
    """What one listener asks of tokens.

    Args:
        keys: whose signatures count.
        rules: what else a token must be like.
        note: takes a line about each token that was refused; it names no secret.
    """

    def __init__(self, keys: Keys, rules: TokenRules, note: Callable[[str], None]) -> None:
        self._keys = keys
        self._rules = rules
        self._note = note

    def __call__(self, text: str) -> AccessToken | None:
        """The token, if it is valid; else None."""
        try:
            return check_token(text, self._keys.current(), self._rules)
        except UnknownKeyError as error:
            self._note(f"a token was refused: {error}")
            self._keys.look_again()
        except TokenError as error:
            self._note(f"a token was refused: {error}")
        return None


class OAuthBearerServer:
    """One authentication. A token that is refused is answered with an error; the client's next message ends it.

    Args:
        check: the token, if it is valid; else None.
        ends_ms: from a time on the wall, which tokens name, to that of the clock that sessions end by; default: it is
            the same one.
    """

    def __init__(
        self, check: Callable[[str], AccessToken | None], ends_ms: Callable[[int], int] = lambda ms: ms
    ) -> None:
        self._check = check
        self._ends_ms = ends_ms
        self._identity: Identity | None = None
        self._error: bytes | None = None

    @property
    def identity(self) -> Identity | None:
        """See ``ServerMechanism``. It ends when the token does."""
        return self._identity

    def respond(self, message: bytes) -> bytes:
        """See ``ServerMechanism``."""
        if self._error is not None:
            text = self._error.decode() if message == DUMMY_RESPONSE else ""
            raise AuthenticationError(text, "its token was refused")
        if self._identity is not None:
            raise AuthenticationError("", "it goes on after it has proven who it is")
        asked = parse_client_message(message)
        token = self._check(asked.token)
        if token is None:
            self._error = make_error("invalid_token")
            return self._error
        if asked.user not in (None, token.user):
            raise AuthenticationError(
                f"Authentication failed: Client requested an authorization id ({asked.user}) that is different from "
                f"the token's principal name ({token.user})"
            )
        self._identity = Identity(token.user, self._ends_ms(token.expires_ms))
        return b""
