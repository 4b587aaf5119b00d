"""Logins out of order, replayed, mixed and changed: only the very messages of one exchange let anybody in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import oauth_kit as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftcore.errors import AuthenticationError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kraftcore.security.principals import Principal
from kraftcore.security.sasl import credentials, plain_server, scram_server
from kraftcore.security.sasl.credentials import Passwords
from kraftcore.security.sasl.oauth_keys import parse_keys
from kraftcore.security.sasl.oauth_server import OAuthBearerServer
from kraftcore.security.sasl.oauth_token import TokenError, TokenRules, check_token
from kraftcore.security.sasl.plain_server import PlainServer
from kraftcore.security.sasl.scram_client import Password, ScramClient
from kraftcore.security.sasl.scram_server import ScramServer
from kraftcore.security.sasl.server_session import Answer, ServerSession, TellVersions, TurnAway

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {"alice": "secret", "bob": "other"}
SECRET = b"the node's own"
KNOWN = Passwords.of(USERS, SCRAM, SECRET)
PASSWORD = Password("secret")  # hashed once for all
NOW_MS = 1_800_000_000_000
RULES = TokenRules()
KEYS = parse_keys(kit.key_set(kit.public_jwk("P-256")), with_secrets=False)
TOKEN = kit.token(kit.claims(int(time.time()), aud=None), "P-256", "ES256")


def check(text: str):
    try:
        return check_token(text, KEYS, RULES)
    except TokenError:
        return None


def session(max_reauth_ms: int = 0) -> ServerSession[Principal]:
    made: dict[str, Callable] = {name: lambda name=name: ScramServer(name, KNOWN, SECRET) for name in SCRAM}
    made["PLAIN"] = lambda: PlainServer(USERS, SECRET)
    made["OAUTHBEARER"] = lambda: OAuthBearerServer(check)
    lifetimes = dict.fromkeys(made, max_reauth_ms) if max_reauth_ms else {}
    return ServerSession(made, lifetimes, lambda each: Principal(each.kind, each.name), lambda *_: None)


def frame_of(kind: str, data: bytes | str = b"") -> bytes:
    if kind == "versions":
        return encode_request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4, 1)
    if kind == "handshake":
        return encode_request(SaslHandshakeRequest(mechanism=data), 1, 1)
    if kind == "request":
        return encode_request(DescribeClusterRequest(), 1, 1)
    return encode_request(SaslAuthenticateRequest(auth_bytes=data), 2, 1)


class Line:
    """One connection to a session, with a client of SCRAM that answers what it was asked last."""

    def __init__(self, max_reauth_ms: int = 0) -> None:
        self.session = session(max_reauth_ms)
        self.is_open = True
        self.heard = b""  # the last challenge
        self._scram = {name: ScramClient(name, "alice", PASSWORD) for name in SCRAM}

    def say(self, what: str) -> None:
        """One message of `ALPHABET`."""
        if self.is_open:
            self.send(self.frame(what))

    def frame(self, what: str) -> bytes:
        """One message of `ALPHABET`, as it is said now."""
        kind, _, rest = what.partition(" ")
        if kind in ("versions", "request", "handshake"):
            return frame_of(kind, rest)
        if kind == "first":
            self._scram[rest] = ScramClient(rest, "alice", PASSWORD)
            return frame_of("token", self._scram[rest].first())
        if kind == "final":
            try:
                return frame_of("token", self._scram[rest].respond(self.heard) or b"")
            except AuthenticationError:  # nothing to answer: a final of nobody's
                return frame_of("token", b"c=biws,r=abc,p=AAAA")
        return frame_of(
            "token",
            {
                "password": b"\0alice\0secret",
                "wrong": b"\0alice\0wrong",
                "token": kit.client_message(TOKEN),
                "forged": kit.client_message(TOKEN[:-4] + "AAAA"),
                "after": b"\x01",
            }[kind],
        )

    def send(self, frame: bytes, now_ms: int = NOW_MS) -> bytes | None:
        """What it answers in a SaslAuthenticate response, or whole."""
        if self.session.is_done and not self.session.may_renew(now_ms):
            return None  # served, and none of the session's business
        step = (self.session.renew if self.session.is_done else self.session.take)(frame, now_ms)
        if isinstance(step, TellVersions):
            self.session.told_versions()
            return encode_response(ApiVersionsResponse(), 0, step.header.correlation_id)
        if step is None or isinstance(step, TurnAway):
            self.is_open = False
            return None if step is None else step.frame
        assert isinstance(step, Answer)
        if frame[:2] == b"\0\x24":
            self.heard = bytes(decode_response(step.frame, 36, 2)[1].auth_bytes)
        return step.frame


ALPHABET = (
    "versions",
    "request",
    "handshake PLAIN",
    "handshake SCRAM-SHA-256",
    "handshake SCRAM-SHA-512",
    "handshake OAUTHBEARER",
    "handshake GSSAPI",
    "password",
    "wrong",
    "first SCRAM-SHA-256",
    "final SCRAM-SHA-256",
    "first SCRAM-SHA-512",
    "final SCRAM-SHA-512",
    "token",
    "forged",
    "after",
)
LOGINS = {
    ("handshake PLAIN", "password"),
    ("handshake OAUTHBEARER", "token"),
    *((f"handshake {name}", f"first {name}", f"final {name}") for name in SCRAM),
}
EVERY_LOGIN = LOGINS | {("versions", *login) for login in LOGINS}


def test_no_other_order_of_messages_lets_anybody_in():
    """Every one of up to four messages, and the longer ones that begin like a login."""
    seen = 0
    for length in range(1, 5):
        for messages in itertools.product(ALPHABET, repeat=length):
            # What begins with something that ends the connection is known to end it.
            if length == 4 and messages[0].partition(" ")[0] not in ("versions", "handshake"):
                continue
            line = Line()
            for message in messages:
                line.say(message)
            is_let_in = any(messages[:part] in EVERY_LOGIN for part in range(2, length + 1))
            assert (line.session.principal is not None) is is_let_in, messages
            seen += 1
    assert seen > 20_000


def test_each_login_does():
    for login in EVERY_LOGIN:
        line = Line()
        for message in login:
            line.say(message)
        assert line.session.principal == Principal("User", "alice")
        assert line.session.is_done


# ---- replays


def exchange(name: str, user: str = "alice", password: Password = PASSWORD) -> tuple[Line, list[bytes], list[bytes]]:
    """A good login; the tokens of the client, and of the server."""
    line, client = Line(), ScramClient(name, user, password)
    line.say(f"handshake {name}")
    said, heard = [client.first()], []
    line.send(frame_of("token", said[0]))
    heard.append(line.heard)
    said.append(client.respond(line.heard))
    line.send(frame_of("token", said[1]))
    heard.append(line.heard)
    assert client.respond(line.heard) is None
    assert client.is_complete
    assert line.session.is_done
    return line, said, heard


@pytest.mark.parametrize("name", SCRAM)
def test_a_login_that_was_overheard_is_of_no_use(name):
    _, (first, final), (challenge, _) = exchange(name)
    for messages in itertools.permutations([first, final, challenge], 2):
        line = Line()
        line.say(f"handshake {name}")
        for message in messages:
            line.send(frame_of("token", message))
        assert line.session.principal is None
        assert not line.is_open
    nonces = {exchange(name)[2][0].split(b",")[0] for _ in range(50)}
    assert len(nonces) == 50


@pytest.mark.parametrize("name", SCRAM)
def test_a_server_that_was_overheard_is_not_believed(name):
    _, _, heard = exchange(name)
    client = ScramClient(name, "alice", PASSWORD)
    client.first()
    with pytest.raises(AuthenticationError):
        client.respond(heard[0])
    for other in (b"", b"v=", heard[1], b"e=other-error", b"v=" + b"A" * 44):
        line, client = Line(), ScramClient(name, "alice", PASSWORD)
        line.say(f"handshake {name}")
        line.send(frame_of("token", client.first()))
        client.respond(line.heard)
        with pytest.raises(AuthenticationError):
            client.respond(other)
        assert not client.is_complete


def test_a_proof_for_one_mechanism_is_none_for_the_other():
    for name, other in (SCRAM, SCRAM[::-1]):
        client, line = ScramClient(other, "alice", PASSWORD), Line()
        line.say(f"handshake {name}")
        line.send(frame_of("token", client.first()))
        line.send(frame_of("token", client.respond(line.heard)))
        assert line.session.principal is None


@pytest.mark.parametrize(
    ("first", "binding", "change"),
    [
        ("n,,", "biws", ""),
        ("n,,", "biws", "x"),  # another nonce than the server's
        ("n,,", "eSws", ""),  # y,,: somebody on the way took the server's channel binding away (RFC 5802, 6)
        ("n,,", "bixhPWJvYiw=", ""),  # n,a=bob,
    ],
)
def test_a_right_proof_of_something_else_is_none(first, binding, change):
    """Made with the password: what is proven must be what was said."""
    line = Line()
    line.say("handshake SCRAM-SHA-256")
    line.send(frame_of("token", f"{first}n=alice,r=abc".encode()))
    challenge = line.heard.decode()
    nonce, salt, _ = (each.partition("=")[2] for each in challenge.split(","))
    unsigned = f"c={binding},r={nonce}{change}"
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", base64.b64decode(salt), 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    text = f"n=alice,r=abc,{challenge},{unsigned}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), text, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    line.send(frame_of("token", f"{unsigned},p={base64.b64encode(proof).decode()}".encode()))
    is_let_in = (binding, change) == ("biws", "")
    assert (line.session.principal is not None, line.is_open) == (is_let_in, is_let_in)


# ---- logins on a connection that is logged in


def renewed(line: Line, *messages: str, later_ms: int = 2000) -> None:
    line.send(line.frame(messages[0]), NOW_MS + later_ms)
    for message in messages[1:]:
        if line.is_open:
            line.send(line.frame(message), NOW_MS + later_ms)


def test_a_session_goes_on_as_who_it_was_or_not_at_all():
    line = Line(60_000)
    line.say("handshake PLAIN")
    line.say("password")
    renewed(line, "handshake PLAIN", "password")
    assert (line.is_open, line.session.is_done, line.session.ends_ms) == (True, True, NOW_MS + 62_000)
    for bad in (
        ["handshake SCRAM-SHA-512", "first SCRAM-SHA-512"],
        ["handshake PLAIN", "wrong"],
        ["handshake PLAIN", "request"],
        ["handshake PLAIN", "handshake PLAIN"],
        ["handshake PLAIN", "token"],
        ["handshake GSSAPI"],
    ):
        line = Line(60_000)
        line.say("handshake PLAIN")
        line.say("password")
        renewed(line, *bad)
        assert not line.is_open, bad
        assert not line.session.is_done
    other = Line(60_000)
    other.say("handshake PLAIN")
    other.say("password")
    renewed(other, "handshake PLAIN")
    answer = other.send(frame_of("token", b"\0bob\0other"), NOW_MS + 2000)
    assert decode_response(answer, 36, 2)[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert other.session.principal == Principal("User", "alice")
    assert not other.is_open


# ---- changed messages


def changed(rng: Random, frame: bytes) -> bytes:
    found = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 1:
                del found[at:]
            case 2:
                found[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                found[at : at + rng.randrange(1, 9)] = b""
            case _:
                found[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b",=\x01n"))
    return bytes(found)


@settings(max_examples=400)
@given(st.integers(0, 2**32), st.sampled_from(sorted(EVERY_LOGIN)))
def test_changed_messages_do_no_harm(seed, login):
    """They are answered, or end the connection; a change that lets somebody in lets in alice, who has the password."""
    rng = Random(seed)
    line = Line()
    spoilt = rng.randrange(len(login))
    for place, message in enumerate(login):
        if not line.is_open:
            break
        frame = line.frame(message)
        line.send(changed(rng, frame) if place == spoilt else frame)
    assert line.session.principal in (None, Principal("User", "alice"))


@pytest.mark.parametrize("name", SCRAM)
def test_no_byte_of_a_proof_may_differ(name):
    for place in itertools.count():
        line, client = Line(), ScramClient(name, "alice", PASSWORD)
        line.say(f"handshake {name}")
        line.send(frame_of("token", client.first()))
        final = bytearray(client.respond(line.heard))
        if place >= len(final.rstrip(b"=")) - 1:  # of the last character of base64 not every bit counts
            break
        final[place] ^= 1
        line.send(frame_of("token", bytes(final)))
        assert line.session.principal is None, (place, bytes(final))


# ---- what a wrong password and an unknown user have in common


@pytest.fixture(name="work")
def the_work(monkeypatch) -> Iterator[Counter]:
    """How often each function that takes time was called, with how many blocks of a hash function."""
    counts: Counter = Counter()

    def counted(module, name):
        function = getattr(module, name)

        def call(*arguments, **more):
            counts[name, *((len(each) + 72) // 64 for each in arguments if isinstance(each, bytes))] += 1
            return function(*arguments, **more)

        monkeypatch.setattr(module, name, call)

    for name in ("digest", "compare_digest", "new"):
        counted(hmac, name)
    for name in ("new", "sha256", "sha512", "pbkdf2_hmac"):
        counted(hashlib, name)
    assert plain_server.hmac is scram_server.hmac is credentials.hmac is hmac
    return counts


def tried(work: Counter, name: str, user: str, password: str) -> tuple[Counter, list[int], list[object]]:
    """A login that fails: the work that the server did, the lengths of its answers, and its last words."""
    line = Line()
    line.say(f"handshake {name}")
    if name == "PLAIN":
        messages = [f"\0{user}\0{password}".encode()]
    else:
        client = ScramClient(name, user, Password(password))
        messages = [client.first(), None]
    before, lengths, words, done = Counter(), [], [], Counter()
    for message in messages:
        token = client.respond(line.heard) if message is None else message
        before = Counter(work)
        answer = line.send(frame_of("token", token))
        done += Counter(work) - before
        lengths.append(len(answer))
        response = decode_response(answer, 36, 2)[1]
        words.append((response.error_code, response.error_message))
    assert line.session.principal is None
    return done, lengths, words


@pytest.mark.parametrize("name", ["PLAIN", *SCRAM])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same_after_the_same_work(work, name):
    known, unknown = tried(work, name, "alice", "wrong!"), tried(work, name, "carol", "wrong!")
    assert known == unknown
    assert sum(known[0].values()) > 0
    assert known[2][-1][0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    almost = tried(work, name, "alice", "secreT")
    assert almost == known


@pytest.mark.parametrize("name", SCRAM)
def test_an_unknown_user_has_the_same_salt_each_time(name):
    def challenge(user: str) -> list[bytes]:
        line, client = Line(), ScramClient(name, user, PASSWORD)
        line.say(f"handshake {name}")
        line.send(frame_of("token", client.first()))
        return line.heard.split(b",")[1:]

    assert challenge("carol") == challenge("carol")
    assert challenge("carol") != challenge("dave")
    assert [len(each) for each in challenge("carol")] == [len(each) for each in challenge("alice")]
    assert challenge("carol")[1] == challenge("alice")[1]
