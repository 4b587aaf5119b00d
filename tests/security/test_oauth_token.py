"""Access tokens and keys: what is taken, and what is not."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import jwt
import oauth_kit as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftcore.errors import RemoteProtocolError
from kraftcore.security.sasl.oauth_keys import parse_keys
from kraftcore.security.sasl.oauth_token import (
    AccessToken,
    TokenError,
    TokenRules,
    UnknownKeyError,
    check_token,
    read_claims,
)

NOW = int(time.time())
RULES = TokenRules(audiences=(kit.AUDIENCE, "other"), issuer=kit.ISSUER, clock_skew_s=3600)
EVERY = [kit.public_jwk(kind) for kind in ("RSA", "P-256", "P-384", "Ed25519")]
KEYS = parse_keys(kit.key_set(*EVERY, kit.secret_jwk()), with_secrets=True)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        *(("RSA", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        *(("oct", name) for name in ("HS256", "HS384", "HS512")),
        ("P-256", "ES256"),
        ("P-384", "ES384"),
        ("Ed25519", "EdDSA"),
    ],
)
def test_every_algorithm_of_a_key_is_taken(kind, algorithm):
    text = kit.token(kit.claims(NOW), kind, algorithm)
    assert check_token(text, KEYS, RULES) == AccessToken(text, "alice", (NOW + 3600) * 1000, (NOW - 600) * 1000)


GOOD = {
    "expired within the skew": {"exp": NOW - 10},
    "begins within the skew": {"nbf": NOW + 600},
    "issued by a clock that is ahead": {"iat": NOW + 600},
    "one of several audiences": {"aud": ["x", "other"]},
    "fractions of a second": {"exp": NOW + 100.9, "iat": NOW - 600.5},
    "one scope": {"scope": "read write"},
    "several scopes": {"scope": ["read", "write"]},
    "no scopes": {"scope": []},
    "a scope that is no text": {"scope": 7},
    "blanks around a name": {"sub": "  alice "},
    "other claims of any kind": {"amr": [None, {}], "nonce": {"a": 1}},
}
BAD = {
    "expired": {"iat": NOW - 9000, "exp": NOW - 3601},
    "never ends": {"exp": None},
    "ends far away": {"exp": 10**12},
    "ends before it begins": {"iat": NOW + 7200},
    "its end is a text": {"exp": str(NOW + 100)},
    "its end is true": {"exp": True},
    "its end is infinite": {"exp": float("inf")},
    "its end is no number": {"exp": float("nan")},
    "its end is a huge number": {"exp": 10**400},
    "it does not say when it was issued": {"iat": None},
    "issued before 1970": {"iat": -1},
    "begins later": {"nbf": NOW + 7200, "exp": NOW + 9000},
    "another audience": {"aud": "somebody"},
    "no audience": {"aud": None},
    "an audience that is a number": {"aud": 7},
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "no user": {"sub": None},
    "an empty user": {"sub": " "},
    "a user that is a number": {"sub": 7},
    "an id that is a number": {"jti": 7},
    "a scope twice": {"scope": ["read", "read "]},
    "an empty scope": {"scope": ""},
    "a scope that is a list": {"scope": [["read"]]},
}


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_a_good_token(changes):
    assert check_token(kit.token(kit.claims(NOW, **changes)), KEYS, RULES).user == "alice"


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_a_bad_token(changes):
    with pytest.raises(TokenError):
        check_token(kit.token(kit.claims(NOW, **changes)), KEYS, RULES)


def test_the_claims_may_have_other_names():
    rules = TokenRules(subject_claim="email", scope_claim="roles")
    text = kit.token(kit.claims(NOW, aud=None, email="bob", scope=["a", "a"], roles="x"))
    assert check_token(text, KEYS, rules).user == "bob"


def test_without_an_expected_audience_a_token_may_have_none():
    rules = TokenRules()
    assert check_token(kit.token(kit.claims(NOW, aud=None, iss=None)), KEYS, rules).user == "alice"
    for audience in (kit.AUDIENCE, [], ""):
        with pytest.raises(TokenError, match="audience"):
            check_token(kit.token(kit.claims(NOW, aud=audience)), KEYS, rules)


@pytest.mark.parametrize("name", ["none", "None", "NONE"])
def test_a_token_must_be_signed(name):
    head, body, _ = kit.unsigned(kit.claims(NOW)).split(".")
    head = kit.b64(json.dumps({"alg": name}).encode())
    for signature in ("", "AAAA"):
        with pytest.raises(TokenError):
            check_token(f"{head}.{body}.{signature}", KEYS, RULES)


def test_a_public_key_is_never_taken_for_a_secret():
    """RFC 8725, 2.1: HS256 with the text of an RSA key."""
    public = kit.private_key("RSA").public_key()
    for secret in (kit.public_jwk("RSA")["n"].encode(), str(public.public_numbers().n).encode()):
        text = jwt.PyJWS().encode(json.dumps(kit.claims(NOW)).encode(), secret, "HS256", {"kid": "RSA"})
        with pytest.raises(UnknownKeyError):
            check_token(text, KEYS, RULES)


def test_a_key_may_bind_its_algorithm():
    keys = parse_keys(kit.key_set(kit.public_jwk("RSA", alg="RS512")), with_secrets=False)
    assert check_token(kit.token(kit.claims(NOW), algorithm="RS512"), keys, RULES).user == "alice"
    with pytest.raises(UnknownKeyError):
        check_token(kit.token(kit.claims(NOW)), keys, RULES)


def test_which_key():
    other = {**kit.public_jwk("RSA-other"), "kid": "other"}
    keys = parse_keys(kit.key_set(other, kit.public_jwk("RSA")), with_secrets=False)
    assert check_token(kit.token(kit.claims(NOW), kid=None), keys, RULES).user == "alice"
    with pytest.raises(TokenError, match="signature"):
        check_token(kit.token(kit.claims(NOW), kid="other"), keys, RULES)
    with pytest.raises(UnknownKeyError, match="'new'"):
        check_token(kit.token(kit.claims(NOW), kid="new"), keys, RULES)
    with pytest.raises(TokenError, match="signature"):
        check_token(kit.token(kit.claims(NOW), kid=None), keys[:1], RULES)


def test_keys_that_cannot_be_used_are_left_out():
    entries = [
        kit.public_jwk("RSA", use="enc"),
        kit.public_jwk("RSA", key_ops=["encrypt"]),
        kit.public_jwk("RSA", kid=7),
        kit.public_jwk("RSA", alg="RSA-OAEP"),
        {**kit.public_jwk("RSA"), "n": "!"},
        {**kit.public_jwk("P-256"), "x": "AAAA"},
        {**kit.public_jwk("P-256"), "crv": "P-999"},
        {**kit.public_jwk("P-256"), "crv": ["P-256"]},
        {"kty": "new"},
        {},
        "text",
        {"kty": "oct", "kid": "without its secret"},
        None,
    ]
    assert [key.key_id for key in parse_keys(kit.key_set(*entries, EVERY[1]), with_secrets=True)] == ["P-256"]
    with pytest.raises(RemoteProtocolError, match="none of its 13 keys"):
        parse_keys(kit.key_set(*entries), with_secrets=True)


def test_secrets_are_taken_only_from_where_nobody_reads_them():
    document = kit.key_set(kit.secret_jwk())
    assert parse_keys(document, with_secrets=True)[0].key_id == "oct"
    with pytest.raises(RemoteProtocolError):
        parse_keys(document, with_secrets=False)


def test_short_keys_are_not_taken():
    keys = parse_keys(kit.key_set(kit.public_jwk("RSA-short"), kit.secret_jwk(k=kit.b64(b"short"))), with_secrets=True)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        text = kit.token(kit.claims(NOW), "RSA-short")
    with pytest.raises(TokenError, match="below"):
        check_token(text, keys, RULES)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        text = jwt.PyJWS().encode(json.dumps(kit.claims(NOW)).encode(), b"short", "HS256", {"kid": "oct"})
    with pytest.raises(TokenError, match="below"):
        check_token(text, keys, RULES)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b"\xff",
        b"[" * 100_000,
        b'{"keys": %s}' % json.dumps([{}] * 101).encode(),
        b"null",
    ],
)
def test_documents_that_are_no_key_sets(document):
    with pytest.raises(RemoteProtocolError):
        parse_keys(document, with_secrets=True)


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "e30.e30.", "bnVsbA.e30.AA", "W10.e30.AA"]
    + [f"{kit.b64(head)}.e30.AA" for head in (b"[" * 50_000, b'{"alg": 5}', b'{"alg": "RS256", "kid": 5}')]
    + [f"{kit.b64(json.dumps({'alg': 'RS256', 'kid': 'RSA', 'crit': crit}).encode())}.e30.AA" for crit in (["x"], 5)],
)
def test_texts_that_are_no_tokens(text):
    with pytest.raises(TokenError):
        check_token(text, KEYS, RULES)
    with pytest.raises(TokenError):
        read_claims(text, RULES)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b"\xff", b"[" * 50_000, b'{"exp": NaN, "iat": 1}'])
def test_signed_nonsense(body):
    with pytest.raises(TokenError):
        check_token(kit.token(body), KEYS, RULES)


@settings(max_examples=300)
@given(st.data())
def test_a_changed_token_is_never_taken(data):
    whole = kit.token(kit.claims(NOW), "P-256", "ES256")
    at = data.draw(st.integers(0, len(whole) - 1))
    put = data.draw(st.text("ABCwxyz019-_.=~\x00é", max_size=3))
    text = whole[:at] + put + whole[at + data.draw(st.integers(0, 3)) :]
    if text != whole:
        with pytest.raises(TokenError):
            check_token(text, KEYS, RULES)


def test_what_its_owner_reads():
    text = kit.token(kit.claims(NOW, iat=None), "RSA-other")
    assert read_claims(text, RULES) == AccessToken(text, "alice", (NOW + 3600) * 1000, None)
    for changes in ({"exp": None}, {"sub": ""}):
        with pytest.raises(TokenError):
            read_claims(kit.token(kit.claims(NOW, **changes)), RULES)


def test_secrets_are_not_printed():
    text = kit.token(kit.claims(NOW))
    shown = repr(check_token(text, KEYS, RULES)) + repr(KEYS)
    assert text not in shown
    assert kit.SECRET.decode()[:10] not in shown
    with pytest.raises(TokenError) as caught:
        check_token(text[:-8] + "AAAAAAAA", KEYS, RULES)
    assert text[-40:-8] not in str(caught.value)


def test_without_the_library_the_error_names_the_extra():
    program = """
import sys
sys.modules["jwt"] = None
from kraftcore.errors import MissingDependencyError
from kraftcore.security.sasl.oauth_token import TokenRules, check_token
try:
    check_token("", (), TokenRules())
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'kraftcore[oauth]'" in done.stdout
