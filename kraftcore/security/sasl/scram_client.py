"""SCRAM, the side that has a password (RFC 5802): neither side tells the other one what it knows.

Channel binding is not used (``n``), as in Kafka. Passwords are taken as UTF-8, without SASLprep, as in Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from kraftcore.errors import LocalError
from kraftcore.security.sasl.mechanism_interface import AuthenticationError
from kraftcore.storage.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN

_NONCE_BYTES: Final = 24
_HEADER: Final = b"n,,"
_VALUE: Final = rb"[\x01-\x2b\x2d-\x7f]+"
_EXTENSIONS: Final = rb"(?:,[A-Za-z]+=" + _VALUE + rb")*"
_BASE64: Final = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_FIRST: Final = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]+),s=(" + _BASE64 + rb"),i=([0-9]{1,9})" + _EXTENSIONS)
_FINAL: Final = re.compile(rb"v=(" + _BASE64 + rb")" + _EXTENSIONS)
_ERROR: Final = re.compile(rb"e=([\x20-\x2b\x2d-\x3c\x3e-\x7e]+)" + _EXTENSIONS)


class Password:
    """A password, and what the last salts made of it: connections to the same cluster need not hash it anew."""

    __slots__ = ("_password", "salted")

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self.salted: Callable[[str, bytes, int], bytes] = lru_cache(4)(self._salted)
        """From a digest's name, a salt and the number of iterations to the salted password."""

    def _salted(self, digest: str, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(digest, self._password, salt, iterations)


class ScramClient:
    """One authentication.

    Args:
        name: one of ``HASHES``.
        username: who logs in; of a delegation token its id.
        password: of the user; of a token its HMAC in base64.
        is_token: they are a delegation token's (KIP-48).
        nonce: printable ASCII without commas, never used before; None: drawn at random.

    Raises:
        LocalError: there is no such mechanism, or no name.
    """

    def __init__(
        self, name: str, username: str, password: Password, *, is_token: bool = False, nonce: str | None = None
    ) -> None:
        if name not in HASHES:
            raise LocalError(f"{name} is none of {', '.join(HASHES)}")
        if not username or "\0" in username:
            raise LocalError(f"{name}: the user's name must not be empty nor hold a NUL character")
        self.name = name
        self._digest = HASHES[name]
        self._password = password
        self._nonce = (secrets.token_urlsafe(_NONCE_BYTES) if nonce is None else nonce).encode("ascii")
        escaped = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=%s,r=%s" % (escaped, self._nonce) + (b",tokenauth=true" if is_token else b"")
        self._server_signature: bytes | None = None
        self._next: Callable[[bytes], bytes | None] | None = None
        self._is_begun = False
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """See ``ClientMechanism``: the server proved that it knows the password, too."""
        return self._is_complete

    def first(self) -> bytes:
        """See ``ClientMechanism``."""
        if self._is_begun:
            raise LocalError("an authentication begins once")
        self._is_begun = True
        self._next = self._prove
        return _HEADER + self._bare

    def respond(self, challenge: bytes) -> bytes | None:
        """See ``ClientMechanism``. After an error there is no going on."""
        step, self._next = self._next, None
        if step is None:
            raise AuthenticationError("the server's message comes out of turn")
        return step(challenge)

    def _prove(self, challenge: bytes) -> bytes:
        found = _FIRST.fullmatch(challenge)
        if found is None:
            raise self._refusal(challenge)
        nonce, salt, iterations = found[1], base64.b64decode(found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the server's nonce does not begin with ours, or adds nothing to it")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationError(
                f"the server wants {iterations} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are safe"
            )
        salted = self._password.salted(self._digest, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        stored_key = hashlib.new(self._digest, client_key).digest()
        without_proof = b"c=%s,r=%s" % (base64.b64encode(_HEADER), nonce)
        told = b"%s,%s,%s" % (self._bare, challenge, without_proof)
        signature = hmac.digest(stored_key, told, self._digest)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), told, self._digest)
        self._next = self._check
        return b"%s,p=%s" % (without_proof, base64.b64encode(proof))

    def _check(self, challenge: bytes) -> None:
        found = _FINAL.fullmatch(challenge)
        if found is None:
            raise self._refusal(challenge)
        if not hmac.compare_digest(base64.b64decode(found[1]), self._server_signature or b""):
            raise AuthenticationError("the server did not prove that it knows the password")
        self._is_complete = True

    def _refusal(self, challenge: bytes) -> AuthenticationError:
        error = _ERROR.fullmatch(challenge)
        if error is not None:
            return AuthenticationError(f"the server says {error[1].decode()}")
        return AuthenticationError("the server's message is none of RFC 5802, or demands what is not known here")
