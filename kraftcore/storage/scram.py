"""SCRAM credentials for the bootstrap records, from the texts that ``format --add-scram`` takes.

The records keep what RFC 5802 derives from a password, never the password. Source: KIP-900; RFC 5802, section 3;
messages as Kafka 4.3.1 prints them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kraftcore.errors import LocalError
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384

_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class _Mechanism(NamedTuple):
    number: int
    label: str
    digest: str


_MECHANISMS = {
    "SCRAM-SHA-256": _Mechanism(1, "SCRAM_SHA_256", "sha256"),
    "SCRAM-SHA-512": _Mechanism(2, "SCRAM_SHA_512", "sha512"),
}

NUMBERS = {name: each.number for name, each in _MECHANISMS.items()}
"""The mechanism's number in records and requests, by its name."""
DIGESTS = {each.number: each.digest for each in _MECHANISMS.values()}
"""Hash function by the mechanism's number."""
HASHES = {name: each.digest for name, each in _MECHANISMS.items()}
"""Hash function by the mechanism's name (RFC 7677)."""


def parse_scram(text: str, randbytes: Callable[[int], bytes] = os.urandom) -> UserScramCredentialRecord:
    """Make a record of ``SCRAM-SHA-256=[name=alice,password=secret]``.

    Further entries: ``iterations`` (4096 to 16384, default 4096), ``salt`` and ``saltedpassword`` (base64; the latter
    instead of ``password``). Values may stand in double quotes.

    Args:
        text: the credential.
        randbytes: draws the salt when none is given.

    Raises:
        LocalError: the mechanism or an entry is unknown, missing or cannot be read.
    """
    mechanism, entries = _split(text.strip())
    name = entries.pop("name", None)
    if name is None:
        raise LocalError("You must supply 'name' to add-scram")
    salt_text = entries.pop("salt", None)
    salt = None if salt_text is None else _decode(salt_text, "salt")
    iterations_text = entries.pop("iterations", str(ITERATIONS_MIN))
    if not _INTEGER.fullmatch(iterations_text) or abs(int(iterations_text)) >= 1 << 31:
        raise LocalError(f"Failed to parse iterations count: {iterations_text}")
    password = entries.pop("password", None)
    salted_text = entries.pop("saltedpassword", None)
    salted = None
    if password is None:
        if salted_text is None:
            raise LocalError("You must supply one of 'password' or 'saltedpassword' to add-scram")
        if salt is None:
            raise LocalError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _decode(salted_text, "saltedPassword")
    if entries:
        raise LocalError(f"Unknown SCRAM configurations: {', '.join(sorted(entries))}")
    iterations = int(iterations_text)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        limit = f">= {ITERATIONS_MIN}" if iterations < ITERATIONS_MIN else f"<= {ITERATIONS_MAX}"
        raise LocalError(f"The 'iterations' value must be {limit} for add-scram using {mechanism.label}")
    if salt is None:
        salt = random_salt(randbytes)
    if salted is None:
        salted = hashlib.pbkdf2_hmac(mechanism.digest, (password or "").encode(), salt, iterations)
    return _record(name, mechanism.number, salt, salted, iterations)


def credential(name: str, mechanism: str, password: str) -> UserScramCredentialRecord:
    """Make a record of a user's password, with a salt of its own and the fewest iterations.

    Args:
        name: of the user.
        mechanism: one of ``NUMBERS``.
        password: >= 1 character.
    """
    salt = random_salt(os.urandom)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, ITERATIONS_MIN)
    return _record(name, NUMBERS[mechanism], salt, salted, ITERATIONS_MIN)


def _record(name: str, mechanism: int, salt: bytes, salted: bytes, iterations: int) -> UserScramCredentialRecord:
    stored_key, server_key = derive_keys(mechanism, salted)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )


def derive_keys(mechanism: int, salted_password: bytes) -> tuple[bytes, bytes]:
    """The stored key and the server key that follow from a salted password (RFC 5802, section 3).

    Args:
        mechanism: one of ``DIGESTS``.
        salted_password: hashed with the credential's number of iterations.
    """
    digest = DIGESTS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    return hashlib.new(digest, client_key).digest(), hmac.digest(salted_password, b"Server Key", digest)


def _split(text: str) -> tuple[_Mechanism, dict[str, str]]:
    name, equals, settings = text.partition("=")
    if not equals:
        raise LocalError(f"Failed to find equals sign in SCRAM argument '{text}'")
    if name not in _MECHANISMS:
        raise LocalError(f"The add-scram mechanism {name} is not supported.")
    if not settings.startswith("["):
        raise LocalError("Expected configuration string to start with [")
    if not settings.endswith("]"):
        raise LocalError("Expected configuration string to end with ]")
    entries = {}
    for entry in _java_split(settings[1:-1]):
        key, equals, value = entry.partition("=")
        if not equals:
            raise LocalError(f"No equals sign found in SCRAM component: {entry}")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        entries[key] = value
    return _MECHANISMS[name], entries


def _java_split(text: str) -> Iterable[str]:
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _decode(text: str, name: str) -> bytes:
    try:
        # As in Java, the padding of base64 may be missing.
        return base64.b64decode(text + "=" * (-len(text) % 4) if "=" not in text else text, validate=True)
    except binascii.Error:
        raise LocalError(f"Failed to decode given {name}: {text}") from None


def random_salt(randbytes: Callable[[int], bytes]) -> bytes:
    """A salt as Kafka draws it: text, so that it can be printed.

    Args:
        randbytes: draws a number of bytes.
    """
    number = int.from_bytes(randbytes(_SALT_BITS // 8 + 1)) >> (8 - _SALT_BITS % 8)
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return (digits or "0").encode()
