"""The mechanisms' sides that prove who they are: RFC 5802's and RFC 7677's examples, and servers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kraftcore.errors import AuthenticationError, LocalError
from kraftcore.security.sasl.plain_client import PlainClient
from kraftcore.security.sasl.scram_client import Password, ScramClient
from kraftcore.storage.scram import HASHES

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _client(name: str = "SCRAM-SHA-256", user: str = "user", **more) -> ScramClient:
    return ScramClient(name, user, Password("pencil"), nonce=NONCE, **more)


def _begun() -> ScramClient:
    client = _client()
    client.first()
    return client


def test_the_example_of_rfc_7677():
    client = _client()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert not client.is_complete
    assert client.respond(SERVER_FINAL) is None
    assert client.is_complete


@pytest.mark.parametrize("name", HASHES)
def test_both_digests_prove_the_password_and_check_the_servers_proof(name):
    digest, salt, count = HASHES[name], b"salt", 5000
    client = _client(name)
    first = client.first()
    server_first = b"r=%sxyz,s=%s,i=%d,ext=1" % (NONCE.encode(), base64.b64encode(salt), count)
    final = client.respond(server_first)
    assert final is not None
    bare, proof = final.split(b",p=")
    salted = hashlib.pbkdf2_hmac(digest, b"pencil", salt, count)
    stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    told = b",".join((first[3:], server_first, bare))
    signature = hmac.digest(stored, told, digest)
    key = bytes(one ^ other for one, other in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(digest, key).digest() == stored
    server = hmac.digest(hmac.digest(salted, b"Server Key", digest), told, digest)
    assert client.respond(b"v=" + base64.b64encode(server) + b",ext=1") is None
    assert client.is_complete


def test_names_are_escaped_and_tokens_say_so():
    assert _client(user="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"
    assert _client(is_token=True).first().endswith(b",r=rOprNGfwEbeRWgbNEkqO,tokenauth=true")


def test_nonces_differ():
    first = {ScramClient("SCRAM-SHA-512", "a", Password("b")).first() for _ in range(10)}
    assert len(first) == 10


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (SERVER_FIRST.replace(b"4096", b"4095"), "4095 iterations: 4096 to 16384 are safe"),
        (SERVER_FIRST.replace(b"4096", b"16385"), "16385 iterations"),
        (SERVER_FIRST.replace(b"4096", b"4294967296"), "none of RFC 5802"),
        (SERVER_FIRST.replace(b"4096", b"-1"), "none of RFC 5802"),
        (SERVER_FIRST.replace(b"r=r", b"r=s"), "nonce does not begin with ours"),
        (SERVER_FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""), "adds nothing to it"),
        (SERVER_FIRST.replace(b"gQ==", b"gQ"), "none of RFC 5802"),
        (b"m=must," + SERVER_FIRST, "demands what is not known here"),
        (SERVER_FIRST[:-7], "none of RFC 5802"),
        (b"", "none of RFC 5802"),
        (b"\xff\xfe", "none of RFC 5802"),
        (b"e=other-error", "the server says other-error"),
        (SERVER_FINAL, "none of RFC 5802"),
    ],
)
def test_a_servers_first_message_that_is_not_safe_is_refused_and_nothing_can_follow(challenge, text):
    client = _begun()
    with pytest.raises(AuthenticationError) as caught:
        client.respond(challenge)
    assert text in str(caught.value)
    with pytest.raises(AuthenticationError, match="out of turn"):
        client.respond(SERVER_FIRST)
    assert not client.is_complete


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "did not prove that it knows the password"),
        (b"v=", "did not prove that it knows the password"),
        (b"", "none of RFC 5802"),
        (SERVER_FIRST, "none of RFC 5802"),
        (b"e=invalid-proof", "the server says invalid-proof"),
    ],
)
def test_a_server_that_does_not_prove_itself_is_refused(challenge, text):
    client = _begun()
    client.respond(SERVER_FIRST)
    with pytest.raises(AuthenticationError) as caught:
        client.respond(challenge)
    assert text in str(caught.value)
    with pytest.raises(AuthenticationError, match="out of turn"):
        client.respond(SERVER_FINAL)
    assert not client.is_complete


def test_messages_out_of_turn_are_refused():
    with pytest.raises(AuthenticationError, match="out of turn"):
        _client().respond(SERVER_FIRST)
    client = _begun()
    with pytest.raises(LocalError):
        client.first()
    client.respond(SERVER_FIRST)
    client.respond(SERVER_FINAL)
    with pytest.raises(AuthenticationError, match="out of turn"):
        client.respond(SERVER_FINAL)


def test_a_password_is_hashed_once_for_a_salt_and_never_printed(monkeypatch):
    calls = []
    real = hashlib.pbkdf2_hmac
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *given: calls.append(given) or real(*given))
    password = Password("pencil")
    assert password.salted("sha256", b"s", 4096) == password.salted("sha256", b"s", 4096)
    password.salted("sha256", b"t", 4096)
    assert len(calls) == 2
    assert "pencil" not in repr(password)


def test_plain_sends_name_and_password_and_takes_no_challenge():
    client = PlainClient("älice", "s e=c,ret")
    assert not client.is_complete
    assert client.first() == "\0älice\0s e=c,ret".encode()
    assert client.is_complete
    with pytest.raises(AuthenticationError):
        client.respond(b"more")
    with pytest.raises(LocalError):
        client.first()


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlainClient("", "hunter2"),
        lambda: PlainClient("a", ""),
        lambda: PlainClient("a\0b", "hunter2"),
        lambda: PlainClient("a", "hunter2\0"),
        lambda: ScramClient("SCRAM-SHA-1", "a", Password("hunter2")),
        lambda: ScramClient("SCRAM-SHA-256", "", Password("hunter2")),
        lambda: ScramClient("SCRAM-SHA-256", "a\0", Password("hunter2")),
    ],
)
def test_what_cannot_be_sent_is_refused_without_the_password(make):
    with pytest.raises(LocalError) as caught:
        make()
    assert "hunter2" not in str(caught.value)
