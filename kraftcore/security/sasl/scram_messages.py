"""The four messages of SCRAM, as either side reads and writes them (RFC 5802, section 7).

Only what Kafka's patterns take is read: user names are printable ASCII, the GS2 header is ``n`` (no channel binding),
and a reserved ``m=`` extension, which RFC 5802 has refused, is refused. What is signed is the text as it came, never
one that was put together again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final

from kraftcore.security.sasl.mechanism import AuthenticationError
from kraftcore.storage.scram import DIGESTS, NUMBERS

HASHES: Final = {name: DIGESTS[number] for name, number in NUMBERS.items()}
"""Hash function by name of the mechanism: SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 7677)."""
TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105  the name of an extension
"""``tokenauth=true`` in a client's first message: the name is a delegation token's id (KIP-48)."""
NONCE_BYTES: Final = 24
"""Random bytes in a nonce of ours."""

_GS2_HEADER: Final = b"n,,"
_SAFE: Final = r"[\x01-\x2B\x2D-\x7F]"  # all but the comma
_NAME: Final = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_NONCE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64: Final = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"((?:,[A-Za-z]+={_SAFE}+)*)"
_CLIENT_FIRST: Final = re.compile(rf"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE}){_EXTENSIONS})")
_SERVER_FIRST: Final = re.compile(rf"r=({_NONCE}),s=({_BASE64}),i=([0-9]{{1,10}}){_EXTENSIONS}")
_CLIENT_FINAL: Final = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")
_SERVER_FINAL: Final = re.compile(rf"(?:e=({_SAFE}+)|v=({_BASE64})){_EXTENSIONS}")
_PIECE: Final = 1 << 16  # longer messages are refused unread


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """What a client begins with.

    Attributes:
        header: the GS2 header, as it came: ``n,,`` or ``n,a=NAME,``.
        bare: the rest as it came; it is signed.
        name: of the user, or id of a delegation token.
        authorization_id: whom it wants to act as; empty: itself.
        nonce: the client's.
        extensions: by name, ``tokenauth`` among them.
    """

    header: str
    bare: str
    name: str
    authorization_id: str
    nonce: str
    extensions: dict[str, str] = field(default_factory=dict)

    @property
    def is_by_token(self) -> bool:
        """Whether the name is a delegation token's id."""
        return self.extensions.get(TOKEN_EXTENSION, "").lower() == "true"

    @property
    def encoded(self) -> bytes:
        """As it is sent."""
        return (self.header + self.bare).encode()


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The server's challenge.

    Attributes:
        text: as it came; it is signed.
        nonce: the client's with the server's behind it.
        salt: of the credential.
        iterations: how often the password was hashed.
    """

    text: str
    nonce: str
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's proof.

    Attributes:
        unsigned: the message as it came, without its proof; it is signed.
        channel_binding: the GS2 header again.
        nonce: the server's, again.
        proof: the client's key, hidden by its signature.
    """

    unsigned: str
    channel_binding: bytes
    nonce: str
    proof: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServerFinal:
    """How it ended.

    Attributes:
        error: the server's word for what is wrong; None: nothing.
        signature: what the server proves itself with; empty with an error.
    """

    error: str | None
    signature: bytes = field(repr=False)


# --- reading -----------------------------------------------------------------------------------------------------------


def read_client_first(message: bytes) -> ClientFirst:
    """Read a client's first message.

    Raises:
        AuthenticationError: it is none, wants channel binding, or names an extension twice.
    """
    header, authorization_id, bare, name, nonce, extensions = _match(_CLIENT_FIRST, message, "client's first")
    return ClientFirst(header, bare, unescape(name), unescape(authorization_id or ""), nonce, _read(extensions))


def read_server_first(message: bytes) -> ServerFirst:
    """Read a server's challenge.

    Raises:
        AuthenticationError: it is none.
    """
    nonce, salt, iterations, _ = _match(_SERVER_FIRST, message, "server's first")
    return ServerFirst(message.decode(), nonce, base64.b64decode(salt), int(iterations))


def read_client_final(message: bytes) -> ClientFinal:
    """Read a client's proof.

    Raises:
        AuthenticationError: it is none.
    """
    unsigned, binding, nonce, _, proof = _match(_CLIENT_FINAL, message, "client's final")
    return ClientFinal(unsigned, base64.b64decode(binding), nonce, base64.b64decode(proof))


def read_server_final(message: bytes) -> ServerFinal:
    """Read a server's last message.

    Raises:
        AuthenticationError: it is none.
    """
    error, signature, _ = _match(_SERVER_FINAL, message, "server's final")
    return ServerFinal(error, base64.b64decode(signature or ""))


def _match(pattern: re.Pattern[str], message: bytes, whose: str) -> tuple[str, ...]:
    try:
        found = pattern.fullmatch(message.decode("ascii")) if len(message) <= _PIECE else None
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationError(f"this is no {whose} message of SCRAM")
    return found.groups()


def _read(extensions: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in filter(None, extensions.split(",")):
        name, _, value = each.partition("=")
        if name in found:
            raise AuthenticationError(f"the extension {name} stands twice in a message of SCRAM")
        found[name] = value
    return found


# --- writing -----------------------------------------------------------------------------------------------------------


def make_client_first(name: str, nonce: str, *, is_by_token: bool = False) -> ClientFirst:
    """A client's first message.

    Args:
        name: of the user, or id of a delegation token.
        nonce: random, printable, without commas.
        is_by_token: say that it is a token's.
    """
    extensions = {TOKEN_EXTENSION: "true"} if is_by_token else {}
    rest = "".join(f",{key}={value}" for key, value in extensions.items())
    return ClientFirst(_GS2_HEADER.decode(), f"n={escape(name)},r={nonce}{rest}", name, "", nonce, extensions)


def make_server_first(nonce: str, salt: bytes, iterations: int) -> ServerFirst:
    """A server's challenge; ``nonce`` is the client's with the server's behind it."""
    return ServerFirst(f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}", nonce, salt, iterations)


def make_client_final(unsigned: str, proof: bytes) -> bytes:
    """A client's proof behind ``unsigned``, which is ``c=biws,r=NONCE``."""
    return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()


def make_server_final(signature: bytes) -> bytes:
    """A server's last message."""
    return b"v=" + base64.b64encode(signature)


def escape(name: str) -> str:
    """A name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    """The name that stands in a message."""
    return name.replace("=2C", ",").replace("=3D", "=")


# --- what is signed ----------------------------------------------------------------------------------------------------


def signed_text(first: ClientFirst, challenge: ServerFirst, unsigned: str) -> bytes:
    """What both sides sign: the three messages so far, without the header and the proof."""
    return f"{first.bare},{challenge.text},{unsigned}".encode()


def sign(key: bytes, text: bytes, mechanism: str) -> bytes:
    """A signature over ``text``: HMAC with the mechanism's hash."""
    return hmac.digest(key, text, HASHES[mechanism])


def hashed(key: bytes, mechanism: str) -> bytes:
    """A key's hash: StoredKey of ClientKey."""
    return hashlib.new(HASHES[mechanism], key).digest()


def exclusive_or(one: bytes, other: bytes) -> bytes:
    """Bytes of equal length, combined."""
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
