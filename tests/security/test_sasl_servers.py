"""PLAIN and SCRAM, accepting: the exchanges of the RFCs, what is refused, and that nobody learns who is known."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.admin import ScramMechanism
from kraftcore.errors import AuthenticationError
from kraftcore.metadata.scram import ScramCredential
from kraftcore.security.sasl import credentials as credentials_module
from kraftcore.security.sasl import plain_server, scram_server
from kraftcore.security.sasl.credentials import Passwords, TokenCredential, credential_of, salt_of
from kraftcore.security.sasl.mechanism_interface import Identity
from kraftcore.security.sasl.mechanism_table import MECHANISMS, Known, MechanismName
from kraftcore.security.sasl.oauth_client import OAuthBearerClient
from kraftcore.security.sasl.oauth_token import AccessToken
from kraftcore.security.sasl.plain_server import PlainServer
from kraftcore.security.sasl.scram_client import Password, ScramClient
from kraftcore.security.sasl.scram_server import ACTING_FOR_ANOTHER, ScramServer
from kraftcore.storage.scram import NUMBERS, derive_keys

SECRET = b"s" * 32
USERS = {"alice": "wonderland", "b=o,b": "pw", "empty": ""}
HASHES = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
KNOWN = Passwords.of({"alice": "wonderland", "b=o,b": "pw"}, tuple(HASHES), SECRET)


class Tokens:
    def scram(self, mechanism, user):
        return None

    def iterations(self, mechanism):
        return {8192: 1}

    def token(self, mechanism, token_id):
        if token_id != "id":
            return None
        return TokenCredential(credential_of("hmac", b"salt", mechanism), "Robot:r2d2", 77)


def server(mechanism="SCRAM-SHA-256", credentials=KNOWN, nonce="server"):
    return ScramServer(mechanism, credentials, SECRET, lambda: nonce)


def client(name="alice", password="wonderland", mechanism="SCRAM-SHA-256", nonce="client", **more):
    return ScramClient(mechanism, name, Password(password), nonce=nonce, **more)


def exchange(asks, proves):
    """The four messages; the client has checked the server's signature."""
    first = proves.first()
    challenge = asks.respond(first)
    final = proves.respond(challenge)
    end = asks.respond(final)
    assert proves.respond(end) is None
    assert proves.is_complete
    return first, challenge, final, end


# --- PLAIN


@pytest.mark.parametrize("acting_for", ["", "alice"])
def test_plain(acting_for):
    asks = PlainServer(USERS, SECRET)
    assert asks.identity is None
    assert asks.respond(f"{acting_for}\0alice\0wonderland".encode()) == b""
    assert asks.identity == Identity("alice")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\0alice\0Wonderland", "Authentication failed: Invalid username or password"),
        (b"\0alice\0wonderlan", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wonderland", "Authentication failed: Invalid username or password"),
        (b"\0alice\0wonder\xff", "Authentication failed: Invalid username or password"),
        (b"\0empty\0x", "Authentication failed: Invalid username or password"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0wonderland", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0wonderland\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"bob\0alice\0wonderland", ACTING_FOR_ANOTHER),
        (b"bob\0alice\0wrong", "Authentication failed: Invalid username or password"),
    ],
)
def test_plain_refuses(message, text):
    asks = PlainServer(USERS, SECRET)
    with pytest.raises(AuthenticationError) as caught:
        asks.respond(message)
    assert caught.value.text == text
    assert asks.identity is None
    assert b"wonderland" not in str(caught.value).encode()


# --- SCRAM


def test_the_example_of_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    known = Passwords({("SCRAM-SHA-256", "user"): ScramCredential(salt, *derive_keys(1, salted), 4096)})
    asks = server(credentials=known, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert asks.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert asks.identity is None
    assert (
        asks.respond(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert asks.identity == Identity("user")


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("name", "password"), [("alice", "wonderland"), ("b=o,b", "pw")])
def test_scram(mechanism, name, password):
    asks = server(mechanism)
    exchange(asks, client(name, password, mechanism))
    assert asks.identity == Identity(name)


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_delegation_token(mechanism):
    asks = server(mechanism, Tokens())
    exchange(asks, client("id", "hmac", mechanism, is_token=True))
    assert asks.identity == Identity("r2d2", 77, is_by_token=True, kind="Robot")
    with pytest.raises(AuthenticationError):  # a token is no user
        exchange(server(mechanism, Tokens()), client("id", "hmac", mechanism))
    with pytest.raises(AuthenticationError):
        exchange(server(mechanism), client("alice", "wonderland", mechanism, is_token=True))


def failing(asks, proves):
    """The challenge and the error of an exchange that comes to nothing."""
    challenge = asks.respond(proves.first())
    with pytest.raises(AuthenticationError) as caught:
        asks.respond(proves.respond(challenge))
    assert asks.identity is None
    return challenge, caught.value


@pytest.mark.parametrize("mechanism", HASHES)
def test_unknown_users_and_wrong_passwords_look_the_same(mechanism):
    unknown, one = failing(server(mechanism), client("nobody", "x", mechanism))
    wrong, other = failing(server(mechanism), client("alice", "x", mechanism))
    assert one.text == other.text == ""
    assert str(one) == str(other)
    fields = [dict(part.split("=", 1) for part in each.decode().split(",")) for each in (unknown, wrong)]
    assert [sorted(each) for each in fields] == [["i", "r", "s"]] * 2
    assert fields[0]["i"] == fields[1]["i"]
    lengths = {len(salt_of(SECRET, mechanism, f"user{number}")) for number in range(200)}
    assert {len(base64.b64decode(each["s"])) for each in fields} <= lengths
    assert failing(server(mechanism), client("nobody", "y", mechanism))[0] == unknown  # the same salt each time
    assert failing(server(mechanism), client("nobody2", "x", mechanism))[0] != unknown
    assert ScramServer(mechanism, KNOWN, b"o" * 32, lambda: "server").respond(client("nobody").first()) != unknown


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES])
def test_they_are_the_same_work(mechanism, monkeypatch):
    """Every keyed hash, digest and comparison, counted."""
    done = Counter()

    def counted(module, name):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: (done.update([name]), real(*given))[1])

    counted(hmac, "digest")
    counted(hmac, "compare_digest")
    counted(hashlib, "new")
    counted(hashlib, "pbkdf2_hmac")
    for module in (plain_server, scram_server, credentials_module):
        assert module.hmac is hmac

    def work(name, password):
        proves = None if mechanism == "PLAIN" else client(name, password, mechanism)
        asks = PlainServer(USERS, SECRET) if proves is None else server(mechanism)
        messages = [f"\0{name}\0{password}".encode()] if proves is None else None
        if messages is None:
            challenge = server(mechanism).respond(proves.first())
            messages = [client(name, password, mechanism).first(), proves.respond(challenge)]
        done.clear()
        with pytest.raises(AuthenticationError):
            for message in messages:
                asks.respond(message)
        return dict(done)

    unknown, wrong = work("nobody", "x"), work("alice", "x")
    assert unknown == wrong
    assert "pbkdf2_hmac" not in unknown  # a stranger does not make the server hash a password
    assert unknown["compare_digest"] >= 1


def iterations_shown(asks, name, **more):
    challenge = asks.respond(client(name, **more).first()).decode()
    return int(dict(part.split("=", 1) for part in challenge.split(","))["i"])


@pytest.mark.parametrize("mechanism", HASHES)
def test_unknown_users_have_as_many_iterations_as_known_ones(mechanism):
    """A number of its own for each, always the same, as often as among those who are known."""
    counts = {4096: 6, 8192: 3, 16384: 1}
    keys = [count for count, times in counts.items() for _ in range(times)]
    known = {(mechanism, f"user{i}"): ScramCredential(b"salt", b"k", b"k", count) for i, count in enumerate(keys)}
    other = {
        ("SCRAM-SHA-256" if mechanism.endswith("512") else "SCRAM-SHA-512", "x"): ScramCredential(b"", b"", b"", 9999)
    }
    passwords = Passwords(known | other)
    shown = {
        name: iterations_shown(server(mechanism, passwords), name, mechanism=mechanism)
        for name in (f"nobody{number}" for number in range(1000))
    }
    frequent = Counter(shown.values())
    assert set(frequent) == set(counts)
    assert all(abs(frequent[count] - 100 * times) < 75 for count, times in counts.items())  # about five deviations
    again = {name: iterations_shown(server(mechanism, passwords), name, mechanism=mechanism) for name in shown}
    assert again == shown
    # A further user changes what a stranger is shown only to that user's number, and seldom.
    more = Passwords(known | other | {(mechanism, "new"): ScramCredential(b"salt", b"k", b"k", 8192)})
    changed = {
        name: count
        for name, before in shown.items()
        if (count := iterations_shown(server(mechanism, more), name, mechanism=mechanism)) != before
    }
    assert set(changed.values()) <= {8192}
    assert len(changed) < 150


def test_unknown_tokens_have_as_many_iterations_as_known_ones():
    for name in ("id", "other"):
        assert iterations_shown(server(credentials=Tokens()), name, is_token=True) == 4096


def test_without_any_user_there_are_as_few_iterations_as_may_be():
    assert iterations_shown(server(credentials=Passwords({})), "nobody") == 4096


def test_too_few_iterations_are_nobodys():
    weak = Passwords({("SCRAM-SHA-256", "alice"): ScramCredential(b"salt", b"k" * 32, b"k" * 32, 4095)})
    assert b"i=4096" in server(credentials=weak).respond(client().first())


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=ali=ce,r=x",
        b"n,,n=al\0ice,r=x",
        b"n,,n=\xc3\xa9,r=x",
        b"n,,r=x,n=alice",
        b"n,,m=x,n=alice,r=x",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=alice,n=alice,r=x,tokenauth=true,tokenauth=false",
        b"n,,n=alice,r=x y",
        b"n,,n=alice,r=x,tokenauth",
        b"n,,n=alice,r=x\n",
        b"c=biws,r=x,p=",
    ],
)
def test_first_messages_that_are_none(first):
    asks = server()
    with pytest.raises(AuthenticationError) as caught:
        asks.respond(first)
    assert caught.value.text == ""
    with pytest.raises(AuthenticationError):  # nor is there a second try
        asks.respond(client().first())


def test_acting_for_another():
    asks = server()
    with pytest.raises(AuthenticationError) as caught:
        asks.respond(b"n,a=bob,n=alice,r=x")
    assert caught.value.text == ACTING_FOR_ANOTHER
    assert server().respond(b"n,a=alice,n=alice,r=x").startswith(b"r=xserver,s=")


def spoilt(final, change):
    without, _, proof = final.rpartition(b",p=")
    return {
        "nonce": without.replace(b"r=clientserver", b"r=clientother") + b",p=" + proof,
        "client's nonce alone": without.replace(b"r=clientserver", b"r=client") + b",p=" + proof,
        "channel binding": without.replace(b"c=biws", b"c=eSws") + b",p=" + proof,
        "proof": without + b",p=" + base64.b64encode(bytes(32)),
        "short proof": without + b",p=" + base64.b64encode(base64.b64decode(proof)[:-1]),
        "long proof": without + b",p=" + base64.b64encode(base64.b64decode(proof) + b"\0"),
        "no proof": without + b",p=",
        "no p": without,
        "extension": without + b",x=y,p=" + proof,
        "garbage": b"\xff\0",
        "empty": b"",
    }[change]


@pytest.mark.parametrize(
    "change",
    [
        *("nonce", "client's nonce alone", "channel binding", "proof", "short proof", "long proof", "no proof", "no p"),
        *("extension", "garbage", "empty"),
    ],
)
def test_final_messages_that_prove_nothing(change):
    asks, proves = server(), client()
    final = proves.respond(asks.respond(proves.first()))
    with pytest.raises(AuthenticationError) as caught:
        asks.respond(spoilt(final, change))
    assert caught.value.text == ""
    assert asks.identity is None
    with pytest.raises(AuthenticationError):  # the right one comes too late
        asks.respond(final)
    assert asks.identity is None


@pytest.mark.parametrize(
    ("unsigned", "is_good"),
    [
        ("c=biws,r=clientserver", True),
        ("c=biws,r=clientother", False),  # not the nonce of this exchange
        ("c=biws,r=client", False),
        ("c=biws,r=xclientserver", False),
        ("c=eSws,r=clientserver", False),  # another header than the first message had: a downgrade
        ("c=,r=clientserver", False),
        ("c=biws,r=clientserver,x=y", True),
    ],
)
def test_a_right_proof_of_something_else(unsigned, is_good):
    asks, bare = server(), "n=alice,r=client"
    challenge = asks.respond(f"n,,{bare}".encode()).decode()
    salted = hashlib.pbkdf2_hmac("sha256", b"wonderland", salt_of(SECRET, "SCRAM-SHA-256", "alice"), 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{challenge},{unsigned}".encode(), "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    final = f"{unsigned},p={base64.b64encode(proof).decode()}".encode()
    if is_good:
        asks.respond(final)
    else:
        with pytest.raises(AuthenticationError):
            asks.respond(final)
    assert (asks.identity is not None) == is_good


def test_replayed_messages():
    """What one connection heard is worth nothing on another: the server's part of the nonce is new each time."""
    first, _, final, _ = exchange(server(nonce="one"), client())
    asks = server(nonce="two")
    asks.respond(first)
    with pytest.raises(AuthenticationError):
        asks.respond(final)
    assert asks.identity is None
    nonces = {ScramServer("SCRAM-SHA-256", KNOWN, SECRET).respond(first).split(b",")[0] for _ in range(100)}
    assert len(nonces) == 100


@given(st.lists(st.sampled_from(["first", "final", "other first", "other final", "empty"]), max_size=5))
def test_any_order_of_messages(order):
    """Only a first message and next the proof that belongs to it, at the beginning, prove anything."""
    first, challenge, final, _ = exchange(server(), client())
    other = client("b=o,b", "pw", nonce="client")
    messages = {
        "first": first,
        "final": final,
        "other first": other.first(),
        "other final": other.respond(server().respond(b"n,,n=b=3Do=2Cb,r=client")),
        "empty": b"",
    }
    asks = server()
    for name in order:
        with contextlib.suppress(AuthenticationError):
            asks.respond(messages[name])
    expected = None
    if order[:2] == ["first", "final"]:
        expected = Identity("alice")
    if order[:2] == ["other first", "other final"]:
        expected = Identity("b=o,b")
    assert asks.identity == expected
    assert challenge.startswith(b"r=clientserver,s=")


def test_nothing_secret_is_shown():
    shown = repr(KNOWN) + repr(TokenCredential(credential_of("pw", b"salt", HASHES[0]), "User:a", 1))
    for each in KNOWN.found.values():
        for secret in (each.salt, each.stored_key, each.server_key):
            assert repr(secret) not in shown
    assert "alice" not in repr(KNOWN)


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", get_args(MechanismName))
def test_both_sides_of_each_mechanism_understand_each_other(name):
    """OAUTHBEARER's client is made of a token."""
    mechanism = MECHANISMS[name]
    token = AccessToken("t", "alice", 9, None)
    known = Known({"alice": "wonderland"}, KNOWN, SECRET, lambda text: token if text == "t" else None, lambda ms: ms)
    asks = mechanism.server(known)
    proves = OAuthBearerClient("t") if mechanism.client is None else mechanism.client("alice", "wonderland", False)()
    assert proves.name == name
    message = proves.first()
    while message is not None:
        answer = asks.respond(message)
        message = None if proves.is_complete else proves.respond(answer)
    assert asks.identity.name == "alice"


def test_mechanisms_of_scram_are_those_that_have_a_number():
    assert {name for name, each in MECHANISMS.items() if each.takes_delegation_tokens} == set(NUMBERS)
    assert {each.label: int(each) for each in ScramMechanism} == NUMBERS
