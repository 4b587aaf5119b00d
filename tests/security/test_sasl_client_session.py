"""One connection's login, against a server whose every answer is chosen here."""

from __future__ import annotations

import pytest
import trio

from kraftcore.errors import AuthenticationError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kraftcore.protocol.schema import Response
from kraftcore.security.sasl.client_session import SaslClientSession
from kraftcore.security.sasl.mechanism_interface import ClientMechanism
from kraftcore.security.sasl.plain_client import PlainClient

PLACE = "127.0.0.1:9093"
OFFERED = {17: (0, 1), 36: (0, 2)}


class TwoSteps:
    """Asks the server for ``b`` after ``a``, and for nothing after that."""

    name = "TWO-STEPS"

    def __init__(self) -> None:
        self.is_complete = False

    def first(self) -> bytes:
        return b"a"

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge == b"b":
            return b"c"
        if challenge == b"d":
            self.is_complete = True
        elif challenge == b"no":
            raise AuthenticationError("it cheats")
        return None


class Conversation:
    """A session, and what its last frame was."""

    def __init__(self, make=TwoSteps) -> None:
        async def mechanism() -> ClientMechanism:
            return make()

        self.session = SaslClientSession(mechanism, PLACE, "tester")
        trio.run(self.session.prepare)
        self.frame(self.session.begin())

    def frame(self, parts) -> None:
        self.header, self.request = decode_request(b"".join(parts))
        assert self.header.client_id == "tester"
        assert self.header.correlation_id < 0

    def answer(self, response: Response, correlation_id: int | None = None) -> bool:
        """Whether the session wants to say more."""
        given = self.header.correlation_id if correlation_id is None else correlation_id
        parts = self.session.take(encode_response(response, self.header.request_api_version, given))
        if parts is not None:
            self.frame(parts)
        return parts is not None

    def offer(self, versions=OFFERED) -> None:
        assert isinstance(self.request, ApiVersionsRequest)
        assert self.header.request_api_version == 0
        entry = ApiVersionsResponse.ApiVersion
        keys = [entry(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()]
        self.answer(ApiVersionsResponse(api_keys=keys))

    def shake_hands(self) -> None:
        assert isinstance(self.request, SaslHandshakeRequest)
        assert self.header.request_api_version == 1
        self.answer(SaslHandshakeResponse(mechanisms=[self.request.mechanism]))

    def token(self, token: bytes, lifetime_ms: int = 0) -> bool:
        assert isinstance(self.request, SaslAuthenticateRequest)
        return self.answer(SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms))


def test_a_login_of_several_steps():
    talk = Conversation()
    talk.offer()
    assert talk.request.mechanism == "TWO-STEPS"
    talk.shake_hands()
    assert talk.header.request_api_version == 2
    assert talk.request.auth_bytes == b"a"
    assert talk.token(b"b")
    assert talk.request.auth_bytes == b"c"
    assert not talk.token(b"d", 5000)
    assert talk.session.lifetime_ms == 5000


def test_the_highest_version_that_both_speak_is_spoken():
    talk = Conversation()
    talk.offer({17: (0, 7), 36: (0, 1)})
    talk.shake_hands()
    assert talk.header.request_api_version == 1


def test_the_mechanism_may_be_complete_before_the_server_says_so():
    talk = Conversation(lambda: PlainClient("alice", "secret"))
    talk.offer()
    talk.shake_hands()
    assert talk.request.auth_bytes == b"\0alice\0secret"
    assert not talk.token(b"")
    assert talk.session.lifetime_ms is None


def test_a_renewal_begins_with_the_handshake_and_a_mechanism_of_its_own():
    made = []

    def make() -> ClientMechanism:
        made.append(TwoSteps())
        return made[-1]

    talk = Conversation(make)
    talk.offer()
    talk.shake_hands()
    talk.token(b"b")
    talk.token(b"d", 5000)
    for _ in range(5):  # longer than the range of its correlation ids
        trio.run(talk.session.prepare)
        talk.frame(talk.session.renew())
        talk.shake_hands()
        talk.token(b"b")
        assert not talk.token(b"d")
    assert len(made) == 6
    assert talk.session.lifetime_ms is None


def _refused(answer) -> str:
    with pytest.raises(AuthenticationError) as caught:
        answer()
    text = str(caught.value)
    assert text == caught.value.text
    assert text.startswith(f"login at {PLACE} with SASL mechanism TWO-STEPS failed: ")
    return text.split("failed: ")[1]


def test_what_the_server_refuses_is_said_with_its_words():
    talk = Conversation()
    offer = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    assert _refused(lambda: talk.answer(offer)) == "it does not say what it speaks: INVALID_REQUEST"
    talk = Conversation()
    assert "no SaslHandshakeRequest of version 1" in _refused(lambda: talk.offer({17: (0, 0), 36: (0, 2)}))
    talk = Conversation()
    talk.offer({17: (0, 1)})
    assert "no SaslAuthenticateRequest of version 0" in _refused(talk.shake_hands)
    talk = Conversation()
    talk.offer()
    other = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN", "A\n"])
    assert _refused(lambda: talk.answer(other)) == "it does not offer this mechanism; it offers A?, PLAIN"
    talk = Conversation()
    talk.offer()
    other = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    assert "the listener has no SASL" in _refused(lambda: talk.answer(other))
    talk = Conversation()
    talk.offer()
    other = SaslHandshakeResponse(error_code=ErrorCode.INVALID_REQUEST)
    assert _refused(lambda: talk.answer(other)) == "it refuses the handshake: INVALID_REQUEST"


@pytest.mark.parametrize(
    ("code", "message", "text"),
    [
        (ErrorCode.SASL_AUTHENTICATION_FAILED, "Wrong\npassword", "it says Wrong?password"),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, None, "it says SASL Authentication failed."),
        (ErrorCode.REQUEST_TIMED_OUT, "slow", "it says REQUEST_TIMED_OUT slow"),
    ],
)
def test_a_failed_authentication(code, message, text):
    talk = Conversation()
    talk.offer()
    talk.shake_hands()
    assert _refused(lambda: talk.answer(SaslAuthenticateResponse(error_code=code, error_message=message))) == text


def test_a_server_that_proves_nothing_is_refused():
    talk = Conversation()
    talk.offer()
    talk.shake_hands()
    assert "before it had proven who it is" in _refused(lambda: talk.token(b""))
    talk = Conversation()
    talk.offer()
    talk.shake_hands()
    assert _refused(lambda: talk.token(b"no")) == "it cheats"


def test_what_nobody_asked_is_refused():
    talk = Conversation()
    offer = ApiVersionsResponse()
    wrong = talk.header.correlation_id - 1
    assert "something else than it was asked" in _refused(lambda: talk.answer(offer, wrong))
    assert "nobody asked" in _refused(lambda: talk.answer(offer))
    talk = Conversation()
    assert "cannot be read" in _refused(lambda: talk.session.take(b"\0\0\0\1garbage"))
    talk = Conversation()
    talk.offer()
    talk.shake_hands()
    talk.token(b"b")
    talk.token(b"d")
    with pytest.raises(AuthenticationError, match="nobody asked"):
        talk.token(b"d")


def test_nothing_to_log_in_with():
    async def make() -> ClientMechanism:
        raise AuthenticationError("there is no token yet")

    session = SaslClientSession(make, PLACE)
    with pytest.raises(AuthenticationError, match=f"login at {PLACE} with SASL failed: there is no token yet"):
        trio.run(session.prepare)
