"""SCRAM, the side that asks for proof (RFC 5802, RFC 7677; KIP-48 for delegation tokens).

Who is not known, or has no credential for the mechanism, is asked like anybody else, with a salt that stays the same:
Kafka says at once that there is no such user. Either learns after its proof only that something was wrong.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from enum import Enum, auto

from kraftcore.metadata.scram import ScramCredential
from kraftcore.security.sasl.credentials import Credentials, TokenCredential, salt_of
from kraftcore.security.sasl.mechanism import AuthenticationError, Identity
from kraftcore.security.sasl.scram_messages import (
    HASHES,
    NONCE_BYTES,
    ClientFirst,
    ServerFirst,
    exclusive_or,
    hashed,
    make_server_final,
    make_server_first,
    read_client_final,
    read_client_first,
    sign,
    signed_text,
)
from kraftcore.storage.scram import ITERATIONS_MIN

ACTING_FOR_ANOTHER = "Authentication failed: Client requested an authorization id that is different from username"


class _Stage(Enum):
    FIRST = auto()
    FINAL = auto()
    OVER = auto()


class ScramServer:
    """One authentication.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        credentials: of those who may come.
        secret: the salts of those who may not are made from it.
        draw_nonce: makes the server's part of the nonce: printable, without commas, never twice the same.

    Attributes:
        identity: see `ServerMechanism`.
    """

    def __init__(
        self,
        mechanism: str,
        credentials: Credentials,
        secret: bytes,
        draw_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(NONCE_BYTES),
    ) -> None:
        self.identity: Identity | None = None
        self._mechanism = mechanism
        self._credentials = credentials
        self._secret = secret
        self._draw_nonce = draw_nonce
        self._stage = _Stage.FIRST
        self._first: ClientFirst
        self._challenge: ServerFirst
        self._credential: ScramCredential
        self._claimed: Identity | None = None

    def respond(self, message: bytes) -> bytes:
        """See `ServerMechanism`. After an error, or the end, there are only errors."""
        stage, self._stage = self._stage, _Stage.OVER
        try:
            if stage is _Stage.FIRST:
                answer = self._challenge_for(read_client_first(message))
                self._stage = _Stage.FINAL
                return answer
            if stage is _Stage.FINAL:
                return self._verify(message)
        except AuthenticationError as error:
            raise AuthenticationError(error.text if error.text == ACTING_FOR_ANOTHER else "", str(error)) from error
        raise AuthenticationError("", "the exchange of SCRAM is over")

    def _challenge_for(self, first: ClientFirst) -> bytes:
        if first.authorization_id and first.authorization_id != first.name:
            raise AuthenticationError(ACTING_FOR_ANOTHER)
        found = self._find(first)
        self._credential, self._claimed = self._nobody(first.name), None  # always: it takes its time
        if found is not None and found[0].iterations >= ITERATIONS_MIN:
            self._credential, self._claimed = found
        self._first = first
        nonce = first.nonce + self._draw_nonce()
        self._challenge = make_server_first(nonce, self._credential.salt, self._credential.iterations)
        return self._challenge.text.encode()

    def _find(self, first: ClientFirst) -> tuple[ScramCredential, Identity] | None:
        if first.is_by_token:
            token = self._credentials.token(self._mechanism, first.name)
            return None if token is None else (token.credential, _owner(token))
        credential = self._credentials.scram(self._mechanism, first.name)
        return None if credential is None else (credential, Identity(first.name))

    def _nobody(self, name: str) -> ScramCredential:
        """A credential that no proof fits."""
        key = hmac.digest(self._secret, name.encode(), HASHES[self._mechanism])
        salt = salt_of(self._secret, self._mechanism, name)
        return ScramCredential(salt, key, key, ITERATIONS_MIN)

    def _verify(self, message: bytes) -> bytes:
        final = read_client_final(message)
        text = signed_text(self._first, self._challenge, final.unsigned)
        key = sign(self._credential.stored_key, text, self._mechanism)
        sent = final.proof if len(final.proof) == len(key) else bytes(len(key))
        is_right = hmac.compare_digest(
            hashed(exclusive_or(sent, key), self._mechanism), self._credential.stored_key
        ) and hmac.compare_digest(sent, final.proof)
        is_same = final.nonce == self._challenge.nonce and final.channel_binding == self._first.header.encode()
        answer = make_server_final(sign(self._credential.server_key, text, self._mechanism))
        if not (is_right and is_same) or self._claimed is None:
            raise AuthenticationError("the credentials are wrong")
        self.identity = self._claimed
        return answer


def _owner(token: TokenCredential) -> Identity:
    kind, _, name = token.owner.partition(":")
    return Identity(name, token.expires_ms, is_by_token=True, kind=kind)
