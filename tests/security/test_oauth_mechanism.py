"""OAUTHBEARER, both sides, message by message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftcore.errors import AuthenticationError, LocalError
from kraftcore.security.sasl.mechanism_interface import ClientMechanism, Identity, ServerMechanism
from kraftcore.security.sasl.oauth_client import OAuthBearerClient
from kraftcore.security.sasl.oauth_messages import ClientMessage, parse_client_message
from kraftcore.security.sasl.oauth_server import OAuthBearerServer
from kraftcore.security.sasl.oauth_token import AccessToken

GOOD = "good.token.x"
ERROR = b'{"status":"invalid_token"}'


def check(text):
    return AccessToken(text, "al=ice,", 5000, None) if text == GOOD else None


def server() -> ServerMechanism:
    return OAuthBearerServer(check)


def client(token=GOOD, **extensions) -> ClientMechanism:
    return OAuthBearerClient(token, extensions)


def test_a_good_token():
    one, other = client(traceId="a b"), server()
    assert (one.name, one.is_complete, other.identity) == ("OAUTHBEARER", False, None)
    first = one.first()
    assert first == b"n,,\x01auth=Bearer good.token.x\x01traceId=a b\x01\x01"
    answer = other.respond(first)
    assert (answer, other.identity) == (b"", Identity("al=ice,", 5000))
    assert one.respond(answer) is None
    assert one.is_complete
    for message in (first, b"\x01", b""):
        with pytest.raises(AuthenticationError):
            other.respond(message)
    with pytest.raises(AuthenticationError):
        one.respond(b"")
    with pytest.raises(LocalError):
        one.first()


def test_a_bad_token():
    one, other = client("bad"), server()
    error = other.respond(one.first())
    assert (error, other.identity) == (ERROR, None)
    assert one.respond(error) == b"\x01"
    assert not one.is_complete
    with pytest.raises(AuthenticationError) as caught:
        other.respond(b"\x01")
    assert caught.value.text == ERROR.decode()
    with pytest.raises(AuthenticationError, match="invalid_token"):
        one.respond(b"")
    assert not one.is_complete


def test_after_an_error_there_is_no_second_try():
    other = server()
    assert other.respond(client("bad").first()) == ERROR
    for message in (client().first(), b"", b"\x01\x01", b"\x01"):
        with pytest.raises(AuthenticationError):
            other.respond(message)
    assert other.identity is None


def test_a_client_expects_nothing_before_it_spoke():
    with pytest.raises(AuthenticationError):
        client().respond(b"")


def test_who_the_client_wants_to_be():
    for user in ("al=3Dice=2C", ""):
        other = server()
        assert other.respond(f"n,{user and 'a=' + user},\x01auth=bearer  {GOOD}\x01\x01".encode()) == b""
        assert other.identity is not None
    other = server()
    with pytest.raises(AuthenticationError, match="authorization id .bob. that is different"):
        other.respond(f"n,a=bob,\x01auth=Bearer {GOOD}\x01\x01".encode())
    assert other.identity is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good\x01\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01 ",
        b" n,,\x01auth=Bearer good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer good\x01\x01",
        b"n,\x01auth=Bearer good\x01\x01",
        b"n,a=,\x01auth=Bearer good\x01\x01",
        b"n,a==,\x01auth=Bearer good\x01\x01",
        b"n,a=b=4C,\x01auth=Bearer good\x01\x01",
        b"n,u=a,\x01auth=Bearer good\x01\x01",
        b"n,,\x01Auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearergood\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good=x\x01\x01",
        b"n,,\x01auth=Bearer go\xc3\xb6d\x01\x01",
        b"n,,\x01auth=Bearer good\x01key=\x01\x01",
        b"n,,\x01auth=Bearer good\x01key\x01\x01",
        b"n,,\x01auth=Bearer good\x01k1=v\x01\x01",
        b"n,,\x01auth=Bearer good\x01k=\x00\x01\x01",
        b"n,,\x01key=value\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 16385 + b"\x01\x01",
    ],
)
def test_messages_that_mean_nothing(message):
    with pytest.raises(AuthenticationError) as caught:
        parse_client_message(message)
    assert caught.value.text == ""


def test_a_token_and_an_authzid_as_long_as_they_may_be():
    message = b"n,a=" + b"u" * 100_000 + b",\x01auth=Bearer " + b"x" * 16384 + b"\x01" + b"k=v\x01" * 50_000 + b"\x01"
    assert parse_client_message(message) == ClientMessage("x" * 16384, "u" * 100_000)


@settings(max_examples=500)
@given(st.one_of(st.binary(max_size=60), st.text("na=,\x01 Bearuth.x2CD", max_size=60).map(str.encode)))
def test_no_message_does_harm(message):
    other = server()
    try:
        answer = other.respond(message)
    except AuthenticationError:
        assert other.identity is None
    else:
        assert (answer == b"") is (other.identity is not None)


@settings(max_examples=200)
@given(
    st.text("abcXYZ019-._~+/", min_size=1),
    st.dictionaries(
        st.text("abcXYZ", min_size=1).filter(lambda name: name != "auth"), st.text("!~ \t\r\n=,", min_size=1)
    ),
)
def test_what_a_client_makes_a_server_reads(token, extensions):
    assert parse_client_message(OAuthBearerClient(token, extensions).first()) == ClientMessage(token)


@pytest.mark.parametrize(
    ("token", "extensions"),
    [
        ("", {}),
        ("a b", {}),
        ("secret\x01auth=Bearer other", {}),
        ("tökén", {}),
        ("t", {"auth": "x"}),
        ("t", {"a1": "x"}),
        ("t", {"": "x"}),
        ("t", {"a": ""}),
        ("t", {"a": "b\x01c"}),
    ],
)
def test_what_a_client_cannot_send(token, extensions):
    with pytest.raises(LocalError) as caught:
        OAuthBearerClient(token, extensions)
    assert "secret" not in str(caught.value)


def test_secrets_are_not_printed():
    assert GOOD not in repr(parse_client_message(client().first()))
