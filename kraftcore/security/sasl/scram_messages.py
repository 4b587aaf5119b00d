"""A client's messages of SCRAM, and the answers to them, as a server reads and writes them (RFC 5802, section 7).

Only what Kafka's patterns take is read: ASCII, the GS2 header ``n`` (no channel binding); and the reserved extension
``m=`` is refused, as RFC 5802 has it. What is signed is the text as it came, never one put together again.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Final

from kraftcore.security.sasl.mechanism_interface import AuthenticationError

_TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105  the name of an extension
_VALUE: Final = r"[\x01-\x2B\x2D-\x7F]+"  # all but the comma
_NAME: Final = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_NONCE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64: Final = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"((?:,[A-Za-z]+={_VALUE})*)"
_FIRST: Final = re.compile(rf"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE}){_EXTENSIONS})")
_FINAL: Final = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """What a client begins with.

    Attributes:
        header: the GS2 header, as it came: ``n,,`` or ``n,a=NAME,``.
        bare: the rest as it came; it is signed.
        name: of the user, or id of a delegation token.
        authorization_id: whom it wants to act as; empty: itself.
        nonce: the client's.
        is_by_token: the extension ``tokenauth=true``: the name is a delegation token's id (KIP-48).
    """

    header: str
    bare: str
    name: str
    authorization_id: str
    nonce: str
    is_by_token: bool


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


def read_client_first(message: bytes) -> ClientFirst:
    """Read a client's first message.

    Raises:
        AuthenticationError: it is none, wants channel binding, or names an extension twice.
    """
    header, authorization_id, bare, name, nonce, extensions = _match(_FIRST, message, "first")
    by_token = _read(extensions).get(_TOKEN_EXTENSION, "").lower() == "true"
    return ClientFirst(header, bare, _unescaped(name), _unescaped(authorization_id or ""), nonce, by_token)


def read_client_final(message: bytes) -> ClientFinal:
    """Read a client's proof.

    Raises:
        AuthenticationError: it is none.
    """
    unsigned, binding, nonce, _, proof = _match(_FINAL, message, "final")
    return ClientFinal(unsigned, base64.b64decode(binding), nonce, base64.b64decode(proof))


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    """The challenge; ``nonce`` is the client's with the server's behind it."""
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


def server_final(signature: bytes) -> bytes:
    """The last message, in which the server proves itself."""
    return b"v=" + base64.b64encode(signature)


def _match(pattern: re.Pattern[str], message: bytes, which: str) -> tuple[str, ...]:
    try:
        found = pattern.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationError(f"this is no client's {which} message of SCRAM")
    return found.groups()


def _read(extensions: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in filter(None, extensions.split(",")):
        name, _, value = each.partition("=")
        if name in found:
            raise AuthenticationError("an extension stands twice in a message of SCRAM")
        found[name] = value
    return found


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
