"""SCRAM, the side that asks for proof (RFC 5802, RFC 7677; KIP-48 for delegation tokens).

Who is not known, or has no credential for the mechanism, is asked like anybody else, with a salt and a number of
iterations that stay the same: Kafka says at once that there is no such user. Here either learns after its proof that
something was wrong, no more.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from kraftcore.metadata.scram import ScramCredential
from kraftcore.security.sasl.credentials import Credentials, drawn_iterations, salt_of
from kraftcore.security.sasl.mechanism_interface import AuthenticationError, Identity
from kraftcore.security.sasl.scram_messages import (
    ClientFirst,
    read_client_final,
    read_client_first,
    server_final,
    server_first,
)
from kraftcore.storage.scram import HASHES, ITERATIONS_MIN

ACTING_FOR_ANOTHER: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
_NONCE_BYTES: Final = 24


class _Stage(Enum):
    FIRST = auto()
    FINAL = auto()
    OVER = auto()


class ScramServer:
    """One authentication.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        credentials: of those who may come.
        secret: salts and iterations of those who may not are made from it.
        draw_nonce: makes the server's part of the nonce: printable, without commas, never twice the same.

    Attributes:
        identity: see `ServerMechanism`.
    """

    def __init__(
        self,
        mechanism: str,
        credentials: Credentials,
        secret: bytes,
        draw_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self.identity: Identity | None = None
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._credentials = credentials
        self._secret = secret
        self._draw_nonce = draw_nonce
        self._stage = _Stage.FIRST
        self._first: ClientFirst
        self._nonce: str
        self._challenge: str
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
        nobody = self._nobody(first)  # always made: it takes its time
        found, identity = self._find(first)
        is_known = found is not None and found.iterations >= ITERATIONS_MIN
        self._credential = found if found is not None and is_known else nobody
        self._claimed = identity if is_known else None
        self._first = first
        self._nonce = first.nonce + self._draw_nonce()
        self._challenge = server_first(self._nonce, self._credential.salt, self._credential.iterations)
        return self._challenge.encode()

    def _find(self, first: ClientFirst) -> tuple[ScramCredential | None, Identity]:
        if first.is_by_token:
            token = self._credentials.token(self._mechanism, first.name)
            if token is not None:
                kind, _, name = token.owner.partition(":")
                return token.credential, Identity(name, token.expires_ms, is_by_token=True, kind=kind)
            return None, Identity(first.name)
        return self._credentials.scram(self._mechanism, first.name), Identity(first.name)

    def _nobody(self, first: ClientFirst) -> ScramCredential:
        """A credential that no proof fits."""
        name, iterations = first.name, ITERATIONS_MIN  # which every token has
        if not first.is_by_token:
            in_use = self._credentials.iterations(self._mechanism)
            iterations = drawn_iterations(in_use, self._secret, self._mechanism, name)
        key = hmac.digest(self._secret, name.encode(), self._hash)
        return ScramCredential(salt_of(self._secret, self._mechanism, name), key, key, iterations)

    def _verify(self, message: bytes) -> bytes:
        final, credential = read_client_final(message), self._credential
        text = f"{self._first.bare},{self._challenge},{final.unsigned}".encode()
        signature = hmac.digest(credential.stored_key, text, self._hash)
        proof = final.proof if len(final.proof) == len(signature) else bytes(len(signature))
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        is_same = final.nonce == self._nonce and final.channel_binding == self._first.header.encode()
        answer = server_final(hmac.digest(credential.server_key, text, self._hash))
        if not (is_right and is_same) or self._claimed is None:
            raise AuthenticationError("the credentials are wrong")
        self.identity = self._claimed
        return answer
