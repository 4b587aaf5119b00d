"""The messages of OAUTHBEARER (RFC 7628, KIP-255, KIP-342)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftcore.errors import AuthenticationError, LocalError
from kraftcore.security.sasl.mechanism_interface import OAUTHBEARER

KVSEP = "\x01"
DUMMY_RESPONSE = KVSEP.encode()
"""What a client says when it was told an error, so that the server can end the exchange (RFC 7628, 3.2.3)."""

TOKEN_CHARACTERS_MAX = 1 << 14
"""Longer tokens are refused before they are decoded, which costs more than to send them. HTTP servers take none that
are longer either. Kafka's bound is the whole message's."""

_NAME = "[A-Za-z]+"
_VALUE = "[\\x21-\\x7E \t\r\n]+"
_MESSAGE = re.compile(
    f"n,(?:a=(?P<user>(?:[\\x01-\\x2B\\x2D-\\x3C\\x3E-\\x7F]|=2C|=3D)+))?,{KVSEP}"
    f"(?P<pairs>(?:{_NAME}={_VALUE}{KVSEP})*){KVSEP}",
    re.ASCII,
)
_B64TOKEN = "[-_~+/.a-zA-Z0-9]+=*"  # b64token of RFC 6750, 2.1
_AUTH = re.compile(f"(?P<scheme>\\w+) +(?P<token>{_B64TOKEN})", re.ASCII)
_PATTERN_OF_NAME, _PATTERN_OF_VALUE, _PATTERN_OF_BEARER = (re.compile(each) for each in (_NAME, _VALUE, _B64TOKEN))


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """What a client sends first.

    Attributes:
        token: the access token; never printed.
        user: who it wants to be, where it says so (authzid).
    """

    token: str = field(repr=False)
    user: str | None = None


def parse_client_message(message: bytes) -> ClientMessage:
    """Take a client's first message apart. Extensions (KIP-342) are checked for their form; nobody asks for them.

    Raises:
        AuthenticationError: it is no such message.
    """
    found = _MESSAGE.fullmatch(message.decode("ascii", errors="replace"))
    if found is None:
        raise AuthenticationError("", f"what it sent is no message of {OAUTHBEARER}")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split(KVSEP)[:-1])
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer" or len(auth["token"]) > TOKEN_CHARACTERS_MAX:
        raise AuthenticationError("", "what it sent holds no bearer token")
    user = found["user"]
    return ClientMessage(auth["token"], None if user is None else user.replace("=2C", ",").replace("=3D", "="))


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Check what a client wants to send beside its token.

    Raises:
        LocalError: a name or a value that the message cannot hold.
    """
    for name, value in extensions.items():
        if not _PATTERN_OF_NAME.fullmatch(name) or name == "auth":
            raise LocalError(f"the name of a SASL extension is {name!r}: it must be letters, and not auth")
        if not _PATTERN_OF_VALUE.fullmatch(value):
            raise LocalError(f"the SASL extension {name} has no value, or one with characters that are not ASCII")


def make_client_message(token: str, extensions: Mapping[str, str]) -> bytes:
    """A client's first message.

    Raises:
        LocalError: the token, or an extension, is none that the message can hold; the token is not repeated.
    """
    if not _PATTERN_OF_BEARER.fullmatch(token):
        raise LocalError("the access token has characters that no bearer token has (RFC 6750, 2.1)")
    check_extensions(extensions)
    pairs = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
    return f"n,,{KVSEP}{KVSEP.join(pairs)}{KVSEP}{KVSEP}".encode()


def make_error(status: str) -> bytes:
    """What a server says when it does not take a token: ``status`` is RFC 6750's name of the error."""
    return json.dumps({"status": status}, separators=(",", ":")).encode()
