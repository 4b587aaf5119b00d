"""Keys and tokens from files and from an HTTP server on loopback."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from dataclasses import replace

import oauth_kit as kit
import pytest
import trio
import trustme
from transport_rig import LOOPBACK, SentRequest

from kraftcore.errors import AuthenticationError, LocalError
from kraftcore.ports.transport import Address, Origin, Reply
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.security.principals import Principal
from kraftcore.security.sasl.client_session import SaslClientSession
from kraftcore.security.sasl.mechanism_interface import Identity
from kraftcore.security.sasl.oauth_server import OAuthBearerServer, TokenCheck
from kraftcore.security.sasl.oauth_settings import TokenRequest, TokenValidation, parse_resource
from kraftcore.security.sasl.oauth_token import AccessToken, TokenRules
from kraftcore.security.sasl.server_session import ServerSession, TellVersions
from kraftcore.transports.oauth import EndpointKeys, FileKeys, TokenLogin, open_keys
from kraftcore.transports.oauth.fetch import Fetch, FetchError, fetch
from kraftcore.transports.oauth.login import refresh_at_ms
from kraftcore.transports.tcp import TcpTransport

RULES = TokenRules(audiences=(kit.AUDIENCE,))
HOUR_MS = 3_600_000


def now_s() -> int:
    return int(time.time())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def ids(keys) -> list[str]:
    return [key.key_id for key in keys.current()]


async def until(condition) -> None:
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.01)


@pytest.fixture(name="issuer")
def the_issuer():
    with kit.http_issuer() as issuer:
        yield issuer


# ---- keys


def test_keys_of_a_file_are_those_it_holds_now(tmp_path):
    said: list[str] = []
    path = tmp_path / "keys.json"
    keys = FileKeys(str(path), said.append)
    assert (ids(keys), len(said)) == ([], 1)
    assert "no token can be checked" in said[0]
    kit.write_keys(path, kit.public_jwk("RSA"), kit.secret_jwk())
    assert ids(keys) == ["RSA", "oct"]
    kit.write_keys(path, kit.public_jwk("P-256"))
    assert ids(keys) == ["P-256"]
    path.write_text("nonsense")
    assert [ids(keys) for _ in range(3)] == [["P-256"]] * 3
    path.unlink()
    assert ids(keys) == ["P-256"]
    assert len(said) == 3
    assert all(str(path) in line for line in said)
    assert "stay in use" in said[1]
    path.write_bytes(b" " * (2 << 20))
    assert (ids(keys), "longer than" in said[3]) == (["P-256"], True)


def test_a_token_is_taken_as_soon_as_its_key_is_in_the_file(tmp_path):
    lines: list[str] = []
    path = tmp_path / "keys.json"
    settings = TokenValidation(keys_url=kit.write_keys(path, kit.public_jwk("RSA")), rules=RULES)
    check = TokenCheck(open_keys(settings, lines.append), RULES, lines.append)
    message = kit.client_message(kit.token(kit.claims(now_s()), "P-256", "ES256"))
    assert OAuthBearerServer(check).respond(message) == b'{"status":"invalid_token"}'
    assert lines == ["a token was refused: there is no key 'P-256' for 'ES256' among the 1 known"]
    kit.write_keys(path, kit.public_jwk("P-256"))
    server = OAuthBearerServer(check)
    assert server.respond(message) == b""
    assert server.identity is not None
    assert server.identity.name == "alice"


async def with_keys(keys: EndpointKeys, use) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.run)
        await use()
        nursery.cancel_scope.cancel()


def test_keys_of_a_server_are_asked_for_again(issuer):
    said: list[str] = []
    settings = TokenValidation(keys_url=issuer.url + "/keys?a=b", refresh_ms=20, retry_backoff_ms=10)
    keys = EndpointKeys(settings, said.append)

    async def use():
        await until(lambda: said)
        assert "status 404" in said[0]
        await until(lambda: len(issuer.asked) > 3)
        assert len(said) == 1  # the same again and again
        issuer.answer("/keys?a=b", kit.key_set(kit.public_jwk("RSA"), kit.secret_jwk()))
        await until(keys.current)
        assert ids(keys) == ["RSA"]  # a secret that anybody can read is none
        issuer.answer("/keys?a=b", kit.key_set(kit.public_jwk("P-256")))
        await until(lambda: ids(keys) == ["P-256"])
        issuer.answer("/keys?a=b", b"<html>")
        await until(lambda: len(said) == 2)
        assert ids(keys) == ["P-256"]
        assert "stay in use" in said[1]

    trio.run(with_keys, keys, use)


def test_an_unknown_key_makes_a_node_ask_again_but_not_often(monkeypatch):
    """With the clock of a test: one request at the start, one more in each ``retry_backoff_max_ms``, at most."""
    asked: list[float] = []

    async def answer(request: Fetch) -> bytes:
        asked.append(trio.current_time())
        return kit.key_set(kit.public_jwk("RSA" if len(asked) < 2 else "P-256"))

    monkeypatch.setattr("kraftcore.transports.oauth.keys.fetch", answer)
    settings = TokenValidation(keys_url="https://issuer.example/keys", rules=RULES)
    keys = EndpointKeys(settings, lambda line: None)
    check = TokenCheck(keys, RULES, lambda line: None)

    async def use():
        await until(keys.current)
        for place in range(900):
            assert check(kit.token(kit.claims(now_s()), kid=f"unknown {place}")) is None
            await trio.sleep(0.02)
        assert [round(at - asked[0]) for at in asked] == [0, 10]
        assert check(kit.token(kit.claims(now_s()), "P-256", "ES256")) is not None
        await trio.sleep(3)
        assert [round(at - asked[0]) for at in asked] == [0, 10, 20]
        await trio.sleep(3590)  # nobody asks for any key
        assert [round(at - asked[0]) for at in asked] == [0, 10, 20]
        await trio.sleep(100)
        assert [round(at - asked[0]) for at in asked] == [0, 10, 20, 3620]

    trio.run(with_keys, keys, use, clock=trio.testing.MockClock(autojump_threshold=0))


# ---- one request


def fetched(url: str, **more) -> bytes:
    return trio.run(fetch, Fetch(resource=parse_resource(url, "url"), **more))


def test_what_is_sent_and_what_comes_back(issuer):
    issuer.answer("/a/b?c=d", b"body", 201)
    assert fetched(issuer.url + "/a/b?c=d#fragment", headers={"X-Key": "value"}, body=b"k=v") == b"body"
    path, headers, body = issuer.asked[0]
    assert (path, headers["X-Key"], headers["Accept"], body) == ("/a/b?c=d", "value", "application/json", {"k": ["v"]})


@pytest.mark.parametrize(("status", "is_final"), [(400, True), (401, True), (404, True), (429, False), (503, False)])
def test_refusals(issuer, status, is_final):
    issuer.answer("/", b'{"error": "invalid_client"}' + b"x" * 5000, status)
    with pytest.raises(FetchError, match=rf"{issuer.url}: status {status}: .*invalid_client") as caught:
        fetched(issuer.url)
    assert caught.value.is_final is is_final
    assert len(str(caught.value)) < 600


def test_nobody_is_led_elsewhere(issuer):
    issuer.answer("/", b"", 302, Location=issuer.url + "/other")
    issuer.answer("/other", b"secret")
    with pytest.raises(FetchError, match="status 302 to http://127.0.0.1") as caught:
        fetched(issuer.url, body=b"", headers={"Authorization": "Basic secret"})
    assert caught.value.is_final
    assert [path for path, _, _ in issuer.asked] == ["/"]


def test_too_much(issuer):
    issuer.answer("/", b"x" * (1 << 20))
    assert len(fetched(issuer.url)) == 1 << 20
    issuer.answer("/", b"x" * ((1 << 20) + 1))
    with pytest.raises(FetchError, match="more than 1048576 bytes"):
        fetched(issuer.url)


def test_nobody_there_and_no_http():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(FetchError, match="refused"):
            fetched(url)
        listener.listen()

        def talk():
            with listener.accept()[0] as peer:
                peer.sendall(b"SSH-2.0\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(FetchError, match=url):
            fetched(url)
        thread.join()


def test_a_server_that_never_ends_is_left():
    """It sends a byte now and then, for ever: the thread that reads it ends as well."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = threading.Event()

        def drip():
            peer, _ = listener.accept()
            with peer:
                try:
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                    while True:
                        peer.sendall(b"x")
                        time.sleep(0.01)
                except OSError:
                    left.set()

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(FetchError, match="not answer in time"):
            fetched(f"http://127.0.0.1:{listener.getsockname()[1]}", connect_timeout_ms=100, read_timeout_ms=300)
        assert left.wait(60)
        thread.join()


def test_https_asks_for_a_certificate_of_the_authority(tmp_path):
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "stranger.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with kit.http_issuer(context) as issuer:
        issuer.answer("/", b"body")
        assert fetched(issuer.url, ca=str(tmp_path / "ca.pem")) == b"body"
        for ca in (str(tmp_path / "stranger.pem"), None):
            with pytest.raises(FetchError, match="certificate verify failed"):
                fetched(issuer.url, ca=ca)
        with pytest.raises(FetchError, match="Hostname mismatch"):
            fetched(issuer.url.replace("127.0.0.1", "localhost"), ca=str(tmp_path / "ca.pem"))
        with pytest.raises(FetchError, match="No such file"):
            fetched(issuer.url, ca=str(tmp_path / "absent.pem"))


# ---- one's own tokens


def test_a_token_of_a_file_is_the_one_it_holds_now(tmp_path):
    path = tmp_path / "to ken"
    login = TokenLogin(TokenRequest(token_url=path.as_uri()), now_ms)

    async def main():
        with pytest.raises(AuthenticationError, match=r"no token from file:.*No such file"):
            await login.token()
        first, second = kit.token(kit.claims(now_s())), kit.token(kit.claims(now_s(), sub="bob"))
        path.write_text(f"\n {first}\n")
        assert (await login.token()).text == first
        path.write_text(second)
        assert ((await login.token()).user, (await login.mechanism()).first()) == ("bob", kit.client_message(second))
        path.write_text("nonsense")
        assert (await login.token()).user == "bob"  # valid still
        ended = TokenLogin(TokenRequest(token_url=path.as_uri()), now_ms)
        path.write_text(kit.token(kit.claims(now_s() - 7200)))
        with pytest.raises(AuthenticationError, match="clocks in step"):
            await ended.token()

    trio.run(main)


def test_a_token_by_client_credentials(issuer):
    issuer.answer_tokens("/token", lambda: kit.token(kit.claims(now_s())))
    request = TokenRequest(
        token_url=issuer.url + "/token", client_id=" me ", client_secret="pä:ss+word", scope="read write"
    )
    assert "word" not in repr(request)

    async def main():
        login = TokenLogin(request, now_ms)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(login.token)
        assert (await login.token()).user == "alice"

    trio.run(main)
    ((_, headers, body),) = issuer.asked  # all got the same
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == "me:pä:ss+word"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert body == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    trio.run(TokenLogin(replace(request, encode_header=True), now_ms).token)
    encoded = base64.b64decode(issuer.asked[1][1]["Authorization"].removeprefix("Basic ")).decode()
    assert encoded == "me:p%C3%A4%3Ass%2Bword"


def test_a_token_is_replaced_before_it_ends_and_kept_while_there_is_no_other(issuer):
    made: list[str] = []
    clock = [now_ms()]

    def make() -> str:
        made.append(kit.token({"sub": f"user {len(made)}", "iat": clock[0] // 1000, "exp": clock[0] // 1000 + 3600}))
        return made[-1]

    issuer.answer_tokens("/", make)
    request = TokenRequest(
        token_url=issuer.url, client_id="me", client_secret="secret", retry_backoff_max_ms=1, retry_backoff_ms=1
    )

    login = TokenLogin(request, lambda: clock[0])
    began = clock[0]

    def user_after(part: float) -> str:
        clock[0] = began + int(part * HOUR_MS)
        return trio.run(login.token).user

    assert [user_after(part) for part in (0, 0.5, 0.79, 0.86)] == ["user 0", "user 0", "user 0", "user 1"]
    issuer.answer("/", b"not now", 503)
    assert user_after(0.86 + 0.99) == "user 1"
    with pytest.raises(AuthenticationError, match="not now"):
        user_after(0.86 + 1.01)
    issuer.answer_tokens("/", make)
    assert user_after(0.86 + 1.02) == "user 2"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"<html>", "no access_token"),
        (b"[]", "no access_token"),
        (b'{"access_token": 7}', "no access_token"),
        (b'{"access_token": " "}', "no access_token"),
        (b'{"access_token": "a.b.c"}', "no JSON Web Token"),
        (b"[" * 100_000, "no access_token"),
    ],
)
def test_answers_without_a_token(issuer, answer, why):
    issuer.answer("/", answer)
    login = TokenLogin(TokenRequest(token_url=issuer.url, client_id="me", client_secret="secret"), now_ms)
    with pytest.raises(AuthenticationError, match=why) as caught:
        trio.run(login.token)
    assert "secret" not in str(caught.value)


def test_a_server_is_asked_again_unless_it_refuses(issuer):
    request = TokenRequest(
        token_url=issuer.url, client_id="me", client_secret="secret", retry_backoff_ms=1, retry_backoff_max_ms=60_000
    )
    answers = [(503, b"", {})] * 3 + [(200, b'{"id_token": "%s"}' % kit.token(kit.claims(now_s())).encode(), {})]
    issuer.answers["/"] = lambda: answers[len(issuer.asked) - 1]
    assert trio.run(TokenLogin(request, now_ms).token).user == "alice"
    assert len(issuer.asked) == 4
    issuer.answer("/", b'{"error": "invalid_client"}', 401)
    with pytest.raises(AuthenticationError, match="status 401"):
        trio.run(TokenLogin(request, now_ms).token)
    assert len(issuer.asked) == 5


def test_when_a_token_is_replaced():
    """The cases of Kafka's ExpiringCredentialRefreshingLogin, without its jitter."""
    request = TokenRequest(token_url="file:///token", refresh_window_jitter=0)

    def after_s(life_s, *, age_s=0, **changes):
        began = 1_000_000_000_000
        token = AccessToken("t", "u", began + life_s * 1000, began)
        return (refresh_at_ms(replace(request, **changes), token, began + age_s * 1000) - began) / 1000

    assert after_s(3600) == 2880
    assert after_s(600) == 300  # five minutes before its end
    assert after_s(3600, age_s=2900) == 2960  # a minute at least
    assert after_s(100) == 80  # too short for either
    assert after_s(3600, refresh_buffer_s=1000) == 2600
    assert after_s(3600, age_s=1000) == 2880
    jittered = {after_s(3600, refresh_window_jitter=0.05) for _ in range(50)}
    assert len(jittered) > 10
    assert min(jittered) >= 2880
    assert max(jittered) <= 3060


# ---- what they can be told


@pytest.mark.parametrize(
    "url",
    [
        "",
        "keys.json",
        "/etc/keys.json",
        "file:keys.json",
        "file://host/keys.json",
        "file:///keys.json?x",
        "ftp://host/keys",
        "http://",
        "http://host:99999/",
        "http://user:secret@host/",
        "http://host/a b",
        "http://host/\r\nX: y",
        "https://hö.st/",
    ],
)
def test_urls_that_are_none(url):
    with pytest.raises(LocalError) as caught:
        TokenValidation(keys_url=url)
    assert "secret" not in str(caught.value)


def test_urls():
    assert parse_resource("file:///a%20b/c", "x").path == "/a b/c"
    assert parse_resource("file://localhost/c", "x").path == "/c"
    found = parse_resource("https://[::1]:8443", "x")
    assert (found.host, found.port, found.target, found.is_encrypted) == ("::1", 8443, "/", True)
    assert parse_resource("http://host/a?b", "x").port == 80


@pytest.mark.parametrize(
    "changes",
    [
        {"token_url": "http://host/"},
        {"token_url": "http://host/", "client_id": "me", "client_secret": " "},
        {"extensions": {"auth": "x"}},
        {"refresh_window_factor": 1.1},
        {"refresh_window_factor": float("nan")},
        {"refresh_window_jitter": -0.1},
        {"refresh_min_period_s": 901},
        {"refresh_buffer_s": 3601},
        {"connect_timeout_ms": 0},
        {"read_timeout_ms": 0},
        {"retry_backoff_ms": 0},
        {"retry_backoff_ms": 11_000},
    ],
)
def test_requests_that_make_no_sense(changes):
    with pytest.raises(LocalError):
        TokenRequest(**{"token_url": "file:///token", **changes})


@pytest.mark.parametrize(
    "changes", [{"refresh_ms": 0}, {"retry_backoff_ms": 20_000}, {"rules": TokenRules(clock_skew_s=-1)}]
)
def test_validations_that_make_no_sense(changes):
    with pytest.raises(LocalError):
        TokenValidation(keys_url="file:///keys", **changes)


# ---- connections that log in


class Guarded:
    """Serves those who have a token."""

    def __init__(self, check: TokenCheck) -> None:
        self.logins: list[str] = []
        self.served = 0
        self._check = check
        self._sessions: dict[object, ServerSession] = {}

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        session = self._sessions.get(origin)
        if session is None:
            made = {"OAUTHBEARER": lambda: OAuthBearerServer(self._check)}
            session = self._sessions[origin] = ServerSession(made, {}, principal_of_identity, lambda *_: None)
        is_handshake = frame[:2] == (17).to_bytes(2)
        if session.is_done and not (is_handshake and session.may_renew(now_ms())):
            self.served += 1
            reply([frame[4:8], frame[8:]])
            return
        step = session.renew(frame, now_ms()) if session.is_done else session.take(frame, now_ms())
        if isinstance(step, TellVersions):
            keys = [
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=high)
                for key, high in ((17, 1), (36, 2))
            ]
            reply([encode_response(ApiVersionsResponse(api_keys=keys), 0, step.header.correlation_id)])
            session.told_versions()
            return
        assert step is not None
        if session.is_done:
            self.logins.append(session.identity.name)
            origin.is_admitted = True
        reply(None if step.frame is None else [step.frame])


def principal_of_identity(identity: Identity) -> Principal:
    return Principal(identity.kind, identity.name)


async def ask_guarded(guarded: Guarded, request: TokenRequest, use) -> None:
    login = TokenLogin(request, now_ms)

    def session(address: Address) -> SaslClientSession:
        return SaslClientSession(login.mechanism, str(address))

    async with TcpTransport() as server, TcpTransport(login=session) as client:
        address = await server.listen("L", LOOPBACK, guarded.serve)
        with trio.fail_after(60):
            await use(lambda body: SentRequest(client, address, body).result(), lambda: client.login_error(address))


def test_a_login_waits_for_its_token_and_is_renewed_with_another(issuer, tmp_path):
    made: list[str] = []

    def make() -> str:
        made.append(f"user {len(made) // 100}")
        return kit.token({"sub": made[-1], "iat": now_s(), "exp": now_s() + 5})

    url = kit.write_keys(tmp_path / "keys.json", kit.public_jwk("RSA"))
    settings = TokenValidation(keys_url=url)
    guarded = Guarded(TokenCheck(open_keys(settings, print), settings.rules, print))
    request = TokenRequest(token_url=issuer.url, client_id="me", client_secret="secret")

    async def use(ask, error):
        assert await ask(b"early") is Failure.UNAUTHENTICATED
        assert "status 404" in error()
        issuer.answer_tokens("/", make)
        count = 0
        while len(guarded.logins) < 2:
            assert await ask(b"x") == b"x"
            count += 1
            await trio.sleep(0.02)
        assert error() is None
        assert guarded.served == count
        assert len(made) >= 2

    trio.run(ask_guarded, guarded, request, use)


def test_a_token_that_the_server_does_not_take(tmp_path):
    url = kit.write_keys(tmp_path / "keys.json", kit.public_jwk("RSA"))
    settings = TokenValidation(keys_url=url)
    refused: list[str] = []
    guarded = Guarded(TokenCheck(open_keys(settings, print), settings.rules, refused.append))
    token = tmp_path / "token"
    token.write_text(kit.token(kit.claims(now_s(), aud=None), "RSA-other", kid="RSA"))

    async def use(ask, error):
        assert await ask(b"x") is Failure.UNAUTHENTICATED
        assert error().endswith('with SASL mechanism OAUTHBEARER failed: it says {"status":"invalid_token"}')
        assert refused == ["a token was refused: its signature is wrong"]
        assert guarded.served == 0

    trio.run(ask_guarded, guarded, TokenRequest(token_url=token.as_uri()), use)
