"""Access tokens: JSON Web Tokens (RFC 7519), checked as Kafka 4.3.1's BrokerJwtValidator does, by PyJWT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraftcore.errors import KraftError, LocalError
from kraftcore.forms import check_fields
from kraftcore.security.sasl.oauth_keys import VerificationKey, jwt_library

_EXPIRES_S_MAX = 253_402_300_799  # the end of year 9999


class TokenError(KraftError):
    """A token is not valid. The message says why, for those who run the server; the token is not in it."""


class UnknownKeyError(TokenError):
    """A token was signed with a key that is not among the known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must be like.

    Attributes:
        audiences: ``sasl.oauthbearer.expected.audience``: it must be for one of them; empty: it must not say for whom.
        issuer: ``sasl.oauthbearer.expected.issuer``; None: any.
        clock_skew_s: ``sasl.oauthbearer.clock.skew.seconds``: how much the issuer's clock may differ.
        scope_claim: ``sasl.oauthbearer.scope.claim.name``: may be missing; if not, a text or a list of different ones.
        subject_claim: ``sasl.oauthbearer.sub.claim.name``: holds the user's name.

    Raises:
        LocalError: a value is not of its type.
    """

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"

    def __post_init__(self) -> None:
        if (wrong := check_fields(self)) is not None:
            raise LocalError(wrong[1])


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token and what it says.

    Attributes:
        text: itself; never printed.
        user: whose it is.
        expires_ms: when it ends to be valid, milliseconds since 1970.
        issued_ms: when it was made; None if it does not say.
    """

    text: str = field(repr=False)
    user: str
    expires_ms: int
    issued_ms: int | None


def check_token(text: str, keys: Sequence[VerificationKey], rules: TokenRules) -> AccessToken:
    """Check signature, time, audience and issuer of a token.

    Without a key id in its header every key that its algorithm fits is tried.

    Raises:
        UnknownKeyError: none of the keys is the one it names, or fits its algorithm.
        TokenError: anything else is wrong with it.
        MissingDependencyError: PyJWT is not installed.
    """
    jwt = jwt_library()
    try:
        header = jwt.get_unverified_header(text.partition(".")[0] + "..")  # the rest is decoded once, below
    except jwt.PyJWTError as error:
        raise TokenError(f"it is no JSON Web Token: {error}") from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm.lower() == "none":
        raise TokenError("it is not signed")
    fitting = [key for key in keys if algorithm in key.algorithms and (key_id is None or key.key_id == key_id)]
    if not fitting:
        raise UnknownKeyError(
            f"there is no key {str(key_id)[:100]!r} for {algorithm[:20]!r} among the {len(keys)} known"
        )
    claims = _verified_claims(jwt, text, algorithm, fitting, rules)
    return _token_of(text, claims, rules)


def read_claims(text: str, rules: TokenRules) -> AccessToken:
    """What a token says, as its owner reads it: nothing is verified (Kafka's ClientJwtValidator).

    Raises:
        TokenError: it is no token, or lacks what a token must have.
        MissingDependencyError: PyJWT is not installed.
    """
    jwt = jwt_library()
    try:
        claims: Mapping[str, Any] = jwt.decode(text, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, OverflowError) as error:
        raise TokenError(f"it is no JSON Web Token: {error}") from error
    return _token_of(text, claims, rules)


def _verified_claims(
    jwt: Any, text: str, algorithm: str, keys: Sequence[VerificationKey], rules: TokenRules
) -> Mapping[str, Any]:
    options = {
        "require": ["exp", "iat"],
        "verify_iat": False,  # as in Kafka an issuer's clock may be ahead
        "enforce_minimum_key_length": True,
    }
    for place, key in enumerate(keys, 1):
        try:
            claims: Mapping[str, Any] = jwt.decode(
                text,
                key.key,
                [algorithm],  # which the key allows, see `fitting`
                options,
                audience=list(rules.audiences) or None,
                issuer=rules.issuer,
                leeway=rules.clock_skew_s,
            )
        except jwt.InvalidSignatureError as error:
            if place == len(keys):
                raise TokenError("its signature is wrong") from error
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise TokenError(str(error) or type(error).__name__) from error
        else:
            if not rules.audiences and "aud" in claims:  # of an empty one PyJWT makes none
                raise TokenError("it is for an audience, and none is expected")
            return claims
    raise TokenError("there is no key")


def _token_of(text: str, claims: Mapping[str, Any], rules: TokenRules) -> AccessToken:
    expires_s = _seconds(claims, "exp")
    issued_s = _seconds(claims, "iat")
    not_before_s = _seconds(claims, "nbf")
    if expires_s is None:
        raise TokenError("exp is missing")
    if any(other is not None and other > expires_s for other in (issued_s, not_before_s)):
        raise TokenError("exp is before iat or nbf")
    _check_scopes(claims.get(rules.scope_claim), rules.scope_claim)
    user = _text(claims.get(rules.subject_claim), rules.subject_claim)
    return AccessToken(text, user, expires_s * 1000, None if issued_s is None else issued_s * 1000)


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"{name} is no number")
    if not 0 <= value <= _EXPIRES_S_MAX:
        raise TokenError(f"{name} is out of range")
    return int(value)


def _check_scopes(value: object, name: str) -> None:
    # A text is one scope, as in Kafka, whatever blanks are in it.
    scopes = [
        _text(each, name) for each in (value if isinstance(value, list) else [value] if isinstance(value, str) else [])
    ]
    if len(set(scopes)) < len(scopes):
        raise TokenError(f"{name} has one twice")


def _text(value: object, name: str) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        raise TokenError(f"{name} is missing, or no text")
    return text
