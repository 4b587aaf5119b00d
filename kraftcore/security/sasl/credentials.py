"""What the accepting side knows of those who may come."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kraftcore.errors import KraftError
from kraftcore.metadata.scram import ScramCredential
from kraftcore.storage.scram import HASHES, ITERATIONS_MIN, NUMBERS, derive_keys, random_salt


class TokenCredential(NamedTuple):
    """What a delegation token comes to (KIP-48).

    Attributes:
        credential: as if its secret were a password.
        owner: whom it stands for, ``User:alice``.
        expires_ms: when it expires, milliseconds since 1970.
    """

    credential: ScramCredential
    owner: str
    expires_ms: int


class NotReadyError(KraftError):
    """What is known of those who may come is not loaded yet: the connection is closed, and may be made again."""


class Credentials(Protocol):
    """Who may log in with SCRAM; asked at each login, so that what changed counts at once.

    Each call raises `NotReadyError` while the answer is not known.
    """

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """A user's credential for ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``; None without one."""
        ...

    def iterations(self, mechanism: str) -> Mapping[int, int]:
        """How many users' credentials of a mechanism have how many iterations."""
        ...

    def token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """A delegation token, unless it is unknown or has expired."""
        ...


@dataclass(frozen=True, slots=True)
class Passwords:
    """`Credentials` of users whose passwords are at hand; there are no tokens among them.

    Args:
        found: by mechanism and user.
    """

    found: Mapping[tuple[str, str], ScramCredential] = field(repr=False)

    @classmethod
    def of(cls, users: Mapping[str, str], mechanisms: tuple[str, ...], secret: bytes) -> Passwords:
        """Hash each user's password for each mechanism of SCRAM: about 2 ms of a core each.

        Args:
            users: passwords by name.
            mechanisms: others are passed over.
            secret: the salts are made from it.
        """
        return cls(
            {
                (mechanism, user): credential_of(password, salt_of(secret, mechanism, user), mechanism)
                for mechanism in mechanisms
                if mechanism in HASHES
                for user, password in users.items()
            }
        )

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """See `Credentials`."""
        return self.found.get((mechanism, user))

    def iterations(self, mechanism: str) -> Mapping[int, int]:
        """See `Credentials`."""
        return Counter(known.iterations for (of, _), known in self.found.items() if of == mechanism)

    def token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """See `Credentials`."""
        return None


def credential_of(password: str, salt: bytes, mechanism: str) -> ScramCredential:
    """What a server keeps of a password, hashed as often as must be (RFC 5802, section 3)."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, ITERATIONS_MIN)
    return ScramCredential(salt, *derive_keys(NUMBERS[mechanism], salted), ITERATIONS_MIN)


def salt_of(secret: bytes, mechanism: str, user: str) -> bytes:
    """A salt that is always the same for somebody, and looks like any other.

    Args:
        secret: nobody else knows it.
        mechanism: it differs by this, and by
        user: the name.
    """
    drawn = hmac.digest(secret, f"{mechanism}\0{user}".encode(), "sha256")
    return random_salt(lambda count: drawn[:count])


def drawn_iterations(in_use: Mapping[int, int], secret: bytes, mechanism: str, user: str) -> int:
    """A number of iterations for a user that is not known, as likely as it is among those that are.

    It stays the same for as long as the others have theirs, and hardly ever changes when a few of them change (weighted
    rendezvous hashing).

    Args:
        in_use: how many users have how many iterations; numbers below the least that may be are left out.
        secret: nobody else knows it.
        mechanism: it differs by this, and by
        user: the name.
    """

    def draw(number: int) -> float:
        drawn = hmac.digest(secret, f"{mechanism}\0{number}\0{user}".encode(), "sha256")
        uniform = (int.from_bytes(drawn[:8]) + 1) / (2**64 + 1)
        return in_use[number] / -math.log(uniform)

    return max((number for number in in_use if number >= ITERATIONS_MIN), key=draw, default=ITERATIONS_MIN)
