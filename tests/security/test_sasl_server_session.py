"""One accepted connection: what is answered, refused and closed in which state; sessions that are begun anew."""

from __future__ import annotations

from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.errors import AuthenticationError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kraftcore.protocol.registry import ApiKey, api_of, request_class
from kraftcore.security.sasl.credentials import NotReadyError, Passwords
from kraftcore.security.sasl.mechanism_interface import Identity
from kraftcore.security.sasl.plain_client import PlainClient
from kraftcore.security.sasl.plain_server import PlainServer
from kraftcore.security.sasl.scram_client import Password, ScramClient
from kraftcore.security.sasl.scram_server import ScramServer
from kraftcore.security.sasl.server_session import RENEWAL_PAUSE_MS, Answer, ServerSession, TellVersions, TurnAway

NOW = 1_000_000
SECRET = b"s" * 32
USERS = {"alice": "pw", "bob": "pw"}
SCRAM = "SCRAM-SHA-256"
KNOWN = Passwords.of(USERS, (SCRAM,), SECRET)
ENABLED = ["PLAIN", SCRAM, "TWO"]
GOOD = b"\0alice\0pw"
Who = namedtuple("Who", "kind name")


class TwoSteps:
    """Who it is says the second message, until when the first."""

    def __init__(self):
        self.identity = None
        self._until = None

    def respond(self, message):
        if message == b"bug":
            raise ZeroDivisionError("secret")
        if message == b"not ready":
            raise NotReadyError("nothing is loaded")
        if self._until is None:
            self._until = int(message)
            return b"and?"
        self.identity = Identity(message.decode(), self._until or None)
        return b"ok"


def refuse(request, version, error, text):
    if isinstance(request, ApiVersionsRequest):
        return ApiVersionsResponse(error_code=error)
    if isinstance(request, DescribeQuorumRequest):
        return DescribeQuorumResponse(error_code=error, error_message=text)
    return None


def make(lifetimes=None, principal_of=lambda identity: Who(identity.kind, identity.name)):
    mechanisms = {
        "PLAIN": lambda: PlainServer(USERS, SECRET),
        SCRAM: lambda: ScramServer(SCRAM, KNOWN, SECRET),
        "TWO": TwoSteps,
    }
    return ServerSession(mechanisms, lifetimes or {}, principal_of, refuse)


def shake(mechanism="PLAIN", version=1):
    return encode_request(SaslHandshakeRequest(mechanism=mechanism), version, 5)


def token(data=GOOD, version=2):
    return encode_request(SaslAuthenticateRequest(auth_bytes=data), version, 6)


def answer(step, frame):
    """The response in a step, which answers ``frame``."""
    assert isinstance(step, Answer | TurnAway)
    header, response = decode_response(step.frame, int.from_bytes(frame[:2]), int.from_bytes(frame[2:4]))
    assert header.correlation_id == int.from_bytes(frame[4:8])
    return response


def say(session, frame, now=NOW):
    return answer(session.take(frame, now), frame)


def log_in(session, data=GOOD, mechanism="PLAIN", now=NOW):
    say(session, shake(mechanism), now)
    response = say(session, token(data), now)
    assert (response.error_code, response.error_message) == (0, "")
    return response


# --- until the proof


def test_versions_handshake_tokens():
    session = make()
    step = session.take(encode_request(ApiVersionsRequest(), 0, 1), NOW)
    assert isinstance(step, TellVersions)
    assert step.header.correlation_id == 1
    session.told_versions()
    response = say(session, shake())
    assert (response.error_code, response.mechanisms) == (0, ENABLED)
    assert not session.is_done
    response = say(session, token())
    assert (response.error_code, response.error_message, response.auth_bytes, response.session_lifetime_ms) == (
        *(0, "", b"", 0),
    )
    assert session.is_done
    assert (session.principal, session.identity) == (Who("User", "alice"), Identity("alice"))
    assert (session.mechanism, session.ends_ms) == ("PLAIN", None)


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
@pytest.mark.parametrize("version", [0, 1])
def test_with_and_without_headers(mechanism, version):
    session = make()
    client = PlainClient("bob", "pw") if mechanism == "PLAIN" else ScramClient(mechanism, "bob", Password("pw"))
    say(session, shake(mechanism, version))
    message = client.first()
    while message is not None:
        if version == 0:
            step = session.take(message, NOW)
            assert isinstance(step, Answer)
            data = step.frame
        else:
            data = say(session, token(message, 1)).auth_bytes
        message = None if client.is_complete else client.respond(data)
    assert client.is_complete
    assert session.principal == Who("User", "bob")


def every_request():
    for key in ApiKey:
        try:
            kind = request_class(key)
            _, low, high = api_of(kind)
        except Exception:
            continue
        for version in range(low, high + 1):
            yield pytest.param(key, version, id=f"{key.name}-{version}")


@pytest.mark.parametrize(("key", "version"), list(every_request()))
def test_nothing_but_versions_and_the_handshake_comes_first(key, version):
    frame = key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\1\xff\xff" + bytes(40)
    if key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
        frame = encode_request(request_class(key)(), version, 1)
    session = make()
    step = session.take(frame, NOW)
    if key == ApiKey.API_VERSIONS:
        assert isinstance(step, TellVersions)
    elif key == ApiKey.SASL_HANDSHAKE:
        assert answer(step, frame).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM  # of no name
    else:
        assert step == TurnAway(None, f"it sent {key.name} without proving who it is")
        assert session.take(shake(), NOW) is None
    assert not session.is_done


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", b"\0\x12", b"\0\x11\0\1\0\0\0\1", shake(version=1)[:-1], b"\x7f\xff" + bytes(20)],
)
def test_what_cannot_be_read(frame):
    session = make()
    step = session.take(frame, NOW)
    assert isinstance(step, TurnAway)
    assert step.frame is None
    assert session.take(shake(), NOW) is None


def test_versions_are_told_once():
    session, frame = make(), encode_request(ApiVersionsRequest(), 0, 1)
    assert isinstance(session.take(frame, NOW), TellVersions)  # not told yet: it was no good request
    assert isinstance(session.take(frame, NOW), TellVersions)
    session.told_versions()
    assert session.take(frame, NOW) == TurnAway(None, "it asked for versions where the handshake was due")


def test_versions_of_the_future():
    frame = b"\0\x12\0\x63\0\0\0\1\xff\xff\0"
    step = make().take(frame, NOW)
    assert isinstance(step, TellVersions)
    assert step.request is None
    session = make()
    say(session, shake())
    step = session.take(frame, NOW)
    assert decode_response(step.frame, 18, 0)[1].error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "PLAIN "])
def test_mechanisms_that_are_not_enabled(mechanism):
    session = make()
    step = session.take(shake(mechanism), NOW)
    assert isinstance(step, TurnAway)
    response = answer(step, shake(mechanism))
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ENABLED)
    assert session.take(shake(), NOW) is None


def test_requests_in_place_of_tokens():
    text = "Unexpected Kafka request of type {} during SASL authentication."
    for frame, name in (
        (encode_request(DescribeQuorumRequest(), 2, 9), "DESCRIBE_QUORUM"),
        (encode_request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 9), None),
    ):
        session = make()
        say(session, shake())
        step = session.take(frame, NOW)
        assert isinstance(step, TurnAway)
        response = answer(step, frame)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        if name is not None:
            assert response.error_message == text.format(name)
        assert session.take(token(), NOW) is None
        assert not session.is_done
    session = make()
    say(session, shake())
    step = session.take(shake(), NOW)  # it cannot be said how to refuse it
    assert step == TurnAway(None, "it sent SASL_HANDSHAKE in place of a token")
    session = make()
    say(session, shake())
    assert session.take(b"\0\x24\0\x63" + bytes(20), NOW).frame is None


def test_wrong_credentials():
    session = make()
    say(session, shake())
    step = session.take(token(b"\0alice\0no"), NOW)
    response = answer(step, token())
    assert (response.error_code, response.error_message, response.auth_bytes) == (
        *(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password", b""),
    )
    assert session.take(token(), NOW) is None  # the channel is not used again
    assert session.take(shake(), NOW) is None
    assert (session.principal, session.is_done) == (None, False)
    session = make()
    say(session, shake(SCRAM))
    step = session.take(token(b"garbage"), NOW)
    text = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {SCRAM}"
    assert answer(step, token()).error_message == text
    assert "garbage" not in step.reason
    raw = make()
    say(raw, shake(version=0))
    assert raw.take(b"\0alice\0no", NOW).frame is None


def test_mechanisms_and_builders_that_raise():
    session = make()
    say(session, shake("TWO"))
    step = session.take(token(b"bug"), NOW)
    assert answer(step, token()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert step.reason == "TWO raised ZeroDivisionError"
    session = make()
    say(session, shake("TWO"))
    step = session.take(token(b"not ready"), NOW)
    expected = TurnAway(None, "nothing is loaded", is_failure=False)
    assert step == expected  # it may come again: nobody says that its password is wrong

    def nobody(identity):
        raise AuthenticationError("nobody here is called that")

    for builder, error in ((nobody, "nobody here is called that"), (lambda identity: 1 // 0, None)):
        session = make(principal_of=builder)
        say(session, shake())
        step = session.take(token(), NOW)
        assert (
            answer(step, token()).error_message == error or "invalid credentials" in answer(step, token()).error_message
        )
        assert not session.is_done


# --- sessions that end


@pytest.mark.parametrize(
    ("lifetime", "expires", "expected"),
    [(0, 0, 0), (500, 0, 500), (0, NOW + 700, 700), (500, NOW + 700, 500), (900, NOW + 700, 700), (9, NOW - 1, 0)],
)
def test_how_long_a_session_lasts(lifetime, expires, expected):
    session = make({"TWO": lifetime} if lifetime else {})
    say(session, shake("TWO"))
    say(session, token(b"%d" % expires))
    response = say(session, token(b"carol"))
    assert response.session_lifetime_ms == expected
    ends = bool(lifetime or expires)
    assert session.ends_ms == (NOW + expected if ends else None)
    assert not session.is_over(NOW + expected)
    assert session.is_over(NOW + expected + 1) == ends
    assert session.may_renew(NOW) == ends


def test_a_session_is_begun_anew():
    session = make({"PLAIN": 5000})
    log_in(session)
    later = NOW + 4000
    assert session.may_renew(later)
    step = session.renew(shake(), later)
    assert answer(step, shake()).error_code == 0
    assert not session.is_done
    assert session.principal == Who("User", "alice")
    assert say(session, token(), later).session_lifetime_ms == 5000
    assert session.is_done
    assert session.ends_ms == later + 5000
    assert not session.may_renew(later + RENEWAL_PAUSE_MS - 1)
    assert session.may_renew(later + RENEWAL_PAUSE_MS)


def test_it_begins_anew_as_the_same():
    session = make({"PLAIN": 5000})
    log_in(session)
    session.renew(shake(), NOW)
    step = session.take(token(b"\0bob\0pw"), NOW)
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert answer(step, token()).error_message == text
    assert session.principal == Who("User", "alice")
    assert not session.is_done
    assert session.take(token(), NOW) is None
    session = make({"PLAIN": 5000})
    log_in(session)
    session.renew(shake(), NOW)
    step = session.take(token(b"\0alice\0no"), NOW)
    assert answer(step, token()).error_message == "Authentication failed: Invalid username or password"


def test_it_begins_anew_by_the_same_mechanism():
    session = make({"PLAIN": 5000})
    log_in(session)
    assert answer(session.renew(shake(SCRAM), NOW), shake()).error_code == 0  # as Kafka: refused with the first token
    step = session.take(token(), NOW)
    assert step == TurnAway(None, "it wants to prove anew who it is by another mechanism")


def test_requests_while_it_begins_anew():
    session = make({"PLAIN": 5000})
    log_in(session)
    session.renew(shake(), NOW)
    frame = encode_request(DescribeQuorumRequest(), 2, 9)
    assert answer(session.take(frame, NOW), frame).error_code == ErrorCode.ILLEGAL_SASL_STATE
    words = make({SCRAM: 5000})
    client = ScramClient(SCRAM, "alice", Password("pw"))
    say(words, shake(SCRAM))
    say(words, token(client.respond(say(words, token(client.first())).auth_bytes)))
    words.renew(shake(SCRAM), NOW)
    assert "during re-authentication" in answer(words.take(token(b"x"), NOW), token()).error_message


MOVES = {
    "versions": encode_request(ApiVersionsRequest(), 0, 1),
    "plain": shake(),
    "plain-0": shake(version=0),
    "scram": shake(SCRAM),
    "good": token(),
    "bad": token(b"\0alice\0no"),
    "raw": GOOD,
    "other": encode_request(DescribeQuorumRequest(), 2, 9),
    "garbage": b"\xff" * 20,
}


@given(st.lists(st.sampled_from(sorted(MOVES)), max_size=6))
def test_any_order_of_frames(moves):
    """Whoever is in has sent a handshake and then, next, what belongs to it; and nothing before that was refused."""
    session = make()
    model, is_in = "start", False
    for move in moves:
        if is_in:
            break
        step = session.take(MOVES[move], NOW)
        if isinstance(step, TellVersions):
            session.told_versions()
        match model, move:
            case "start", "versions":
                model = "told"
            case (("start" | "told"), ("plain" | "plain-0" | "scram")):
                model = move
            case ("plain", "good") | ("plain-0", "raw"):
                is_in = True
            case "plain-0", "bad" | "good":
                model = "over"
            case _:
                model = "over"
        assert session.is_done == is_in
        if model == "over":
            assert step is None or isinstance(step, TurnAway)
    assert (session.principal is not None) == is_in
