"""The public keys of who issues tokens: a JSON Web Key Set (RFC 7517), by PyJWT.

A key says which algorithms may be used with it; a token's header only chooses among these (RFC 8725, 3.1 and 3.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kraftcore.errors import MissingDependencyError, RemoteProtocolError

KEYS_MAX = 100  # of one set

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_HMAC = ("HS256", "HS384", "HS512")


def jwt_library() -> Any:
    """PyJWT, with the library it needs for public keys.

    Raises:
        MissingDependencyError: one of them is not installed.
    """
    try:
        import cryptography  # noqa: F401  # without it PyJWT knows no public keys
        import jwt
    except ImportError as error:
        raise MissingDependencyError(
            "OAUTHBEARER needs PyJWT and cryptography: pip install 'kraftcore[oauth]'"
        ) from error
    return jwt


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One key.

    Attributes:
        key_id: ``kid``; None without one.
        algorithms: which signatures it may verify, as in RFC 7518.
        key: what PyJWT takes; never printed.
    """

    key_id: str | None
    algorithms: frozenset[str]
    key: Any = field(repr=False)


class Keys(Protocol):
    """Where keys come from."""

    def current(self) -> Sequence[VerificationKey]:
        """Those known now; none while nothing was read."""
        ...

    def look_again(self) -> None:
        """A token was signed with none of them: there may be new ones. Must not wait."""
        ...


def parse_keys(document: bytes, *, with_secrets: bool) -> tuple[VerificationKey, ...]:
    """The keys of a set that can verify signatures. Others are left out, as RFC 7517, 5 asks.

    Args:
        document: JSON.
        with_secrets: whether to take symmetric keys. Whoever can read one can issue tokens.

    Raises:
        RemoteProtocolError: it is no such set, or there is no usable key in it.
        MissingDependencyError: PyJWT is not installed.
    """
    try:
        found = json.loads(document)
        entries = found["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"it is no JSON Web Key Set: {type(error).__name__}: {error}") from error
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise RemoteProtocolError(f"it is no JSON Web Key Set of up to {KEYS_MAX} keys")
    keys = tuple(key for key in (_key(entry, with_secrets) for entry in entries) if key is not None)
    if not keys:
        raise RemoteProtocolError(f"none of its {len(entries)} keys can verify a signature")
    return keys


def _key(entry: object, with_secrets: bool) -> VerificationKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    key_id, kind, curve, only = (entry.get(name) for name in ("kid", "kty", "crv", "alg"))
    if not isinstance(key_id, str | None) or not isinstance(only, str | None):
        return None
    if kind == "RSA":
        algorithms: tuple[str, ...] = _RSA
    elif kind in ("EC", "OKP") and isinstance(curve, str) and curve in _BY_CURVE:
        algorithms = (_BY_CURVE[curve],)
    elif kind == "oct" and with_secrets:
        algorithms = _HMAC
    else:
        return None
    if only is not None:
        algorithms = tuple(name for name in algorithms if name == only)
    if not algorithms:
        return None
    jwt = jwt_library()
    try:
        key = jwt.PyJWK(entry, algorithm=algorithms[0]).key
    except (jwt.PyJWTError, LookupError, ValueError, TypeError, OverflowError):
        return None
    public: Callable[[], Any] | None = getattr(key, "public_key", None)  # a set may hold the private half as well
    return VerificationKey(key_id, frozenset(algorithms), key if public is None else public())
