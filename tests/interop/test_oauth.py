"""OAUTHBEARER message by message: Kafka's server and client beside ours, on the same tokens and keys."""

from __future__ import annotations

import base64
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import oauth_kit as kit
import trio
from kafka_tools import KafkaTools

from kraftcore.config.oauth import read_token_request, read_validation
from kraftcore.config.properties import Properties
from kraftcore.errors import AuthenticationError
from kraftcore.security.sasl.oauth_client import OAuthBearerClient
from kraftcore.security.sasl.oauth_server import OAuthBearerServer, TokenCheck
from kraftcore.security.sasl.oauth_token import read_claims
from kraftcore.transports.oauth import TokenLogin, open_keys

S = "sasl.oauthbearer."
STRICT = {
    S + "expected.audience": "kraftcore,other",
    S + "expected.issuer": kit.ISSUER,
    S + "clock.skew.seconds": "3600",
}
RANDOM = 600


@dataclass
class Case:
    """Messages of one authentication, and the settings of who answers them.

    Attributes:
        stricter: why we refuse what Kafka takes, or answer otherwise; docs/compatibility.md has it.
    """

    name: str
    messages: list[bytes]
    settings: dict[str, str] = field(default_factory=lambda: STRICT)
    stricter: str = ""


def _cases(now: int) -> list[Case]:
    def case(name: str, text: str, stricter: str = "", **settings: str) -> Case:
        found = {S + key.replace("_", "."): value for key, value in settings.items()} if settings else STRICT
        return Case(name, [kit.client_message(text), b"\x01"], found, stricter)

    def signed(**changes: object) -> str:
        return kit.token(kit.claims(now, **changes))

    cases = [
        *(
            case(f"{kind} {name}", kit.token(kit.claims(now), kind, name))
            for kind, names in {
                "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
                "P-256": ("ES256",),
                "P-384": ("ES384",),
                "Ed25519": ("EdDSA",),
                "oct": ("HS256", "HS384", "HS512"),
            }.items()
            for name in names
        ),
        *(
            case(f"exp {text}", signed(exp=text))
            for text in (now - 7200, now - 60, now + 5.5, None, str(now + 60), True)
        ),
        *(case(f"iat {text}", signed(iat=text)) for text in (None, "1", -5, now + 600, 0.5)),
        *(case(f"nbf {text}", signed(nbf=text)) for text in (now + 7200, now + 600, now - 5, "x")),
        case("exp before iat", signed(iat=now + 7200)),
        case("exp before nbf", signed(exp=now + 5, nbf=now + 20)),
        case("exp far away", signed(exp=10**11)),
        *(case(f"aud {text}", signed(aud=text)) for text in (None, "x", "other", ["x", "other"], [], 5, ["other", 5])),
        *(case(f"aud {text}, none expected", signed(aud=text), clock_skew_seconds="30") for text in (None, "x", [])),
        *(case(f"iss {text}", signed(iss=text)) for text in (None, "x", 5)),
        case("iss, none expected", signed(iss=None), expected_audience="kraftcore"),
        *(case(f"sub {text!r}", signed(sub=text)) for text in (None, "", " ", " a ", 5, ["a"], "a,b=c", "ü")),
        *(
            case(f"scope {text!r}", signed(scope=text))
            for text in ("", " ", "a", "a b", [], ["a", "b"], ["a", "a "], 5)
        ),
        *(case(f"scope {text!r}", signed(scope=text)) for text in ([""], {}, {"a": 1}, True)),
        case("jti 5", signed(jti=5)),
        case(
            "sub 5, which is not asked for",
            signed(sub=5, email="bob"),
            expected_audience="kraftcore",
            sub_claim_name="email",
        ),
        case("aud '', none expected", signed(aud=""), clock_skew_seconds="30"),
        case("another claim", signed(email="bob"), expected_audience="kraftcore", sub_claim_name="email"),
        case("another claim that is not there", signed(), expected_audience="kraftcore", sub_claim_name="email"),
        case("another scope", signed(roles=["a", "a"]), expected_audience="kraftcore", scope_claim_name="roles"),
        *(
            case(f"skew {text}", signed(exp=now - 100), expected_audience="kraftcore", clock_skew_seconds=text)
            for text in ("0", "500")
        ),
        case("no kid", kit.token(kit.claims(now), "P-384", "ES384", kid=None)),
        case("kid of another kind of key", kit.token(kit.claims(now), kid="P-256")),
        case("unknown kid", kit.token(kit.claims(now), kid="nobody")),
        case("signed by another key", kit.token(kit.claims(now), "RSA-other", kid="RSA")),
        case("no typ", kit.token(kit.claims(now), typ="")),
        case("critical", kit.token(kit.claims(now), crit=["new"], new=1)),
        case("not signed", kit.unsigned(kit.claims(now))),
        case("not signed, but it says so", kit.unsigned(kit.claims(now)) + "AAAA"),
        *(case(f"body {text!r}", kit.token(text)) for text in (b"", b"null", b"[]", b"{", b"\xff", b"{}")),
        *(case(text, text) for text in ("a", "a.b", "a.b.c", "a.b.c.d", "e30.e30.", "..", "e30.e30.AA")),
        Case(
            "no kid, the second key of its kind",
            [kit.client_message(kit.token(kit.claims(now), kid=None))],
            stricter="tried",
        ),
        Case(
            "its algorithm is not its key's",
            [kit.client_message(kit.token(kit.claims(now), kid="bound"))],
            stricter="bound",
        ),
    ]
    good = signed()
    cases += [
        Case(f"message {place}", [message], STRICT, stricter)
        for place, (message, stricter) in enumerate(
            [
                (b"\x01", ""),
                (b"n,,\x01\x01", ""),
                (b"y,,\x01auth=Bearer a\x01\x01", ""),
                (b"n,,\x01auth=Bearer \x01\x01", ""),
                (b"n,,\x01auth=Basic a\x01\x01", "Kafka ends with an IllegalArgumentException"),
                (kit.client_message(good, user="alice"), ""),
                (kit.client_message(good, user="bob"), ""),
                (kit.client_message(good, user="al=3Dice"), "told as the name it stands for"),
                (kit.client_message(good, extensions="k=v\x01traceId=a b\x01"), ""),
                (kit.client_message(good, extensions="k1=v\x01"), ""),
                (kit.client_message(good, extensions="k=\x01"), ""),
                (kit.client_message(good, extensions="auth=Bearer x.y.z\x01"), ""),
                (kit.client_message(good).replace(b"auth", b"Auth"), ""),
                (kit.client_message(good).replace(b"Bearer", b"bEARER  "), ""),
                (kit.client_message(good)[:-1], ""),
                (kit.client_message(good) + b"\n", ""),
                (kit.client_message(good).replace(b"n,,", b"n,a=,"), ""),
                (kit.client_message(good).replace(b"n,,", "n,a=ü,".encode()), ""),
            ]
        )
    ]
    bad = kit.client_message("a.b.c")
    cases.append(Case("a second try", [bad, kit.client_message(good)], stricter="after an error only %x01 may come"))
    cases.append(Case("it goes on", [kit.client_message(good), b"\x01"]))
    draw = random.Random(20260401)
    alphabet = [b"n", b",", b"a=", b"\x01", b"auth=", b"Bearer ", good.encode(), b"k=v", b"=2C", b" ", b"\x7f", b"\xc3"]
    for place in range(RANDOM):
        parts = [b"n,", b"", b",", b"\x01", b"auth=Bearer ", good.encode(), b"\x01", b"\x01"]
        for _ in range(draw.randint(1, 3)):
            parts[draw.randrange(len(parts))] = draw.choice(alphabet)
        cases.append(Case(f"random {place}", [b"".join(parts)]))
    return cases


def _ours(case: Case, url: str) -> list[str]:
    values = {S + "jwks.endpoint.url": url, **case.settings}
    settings = read_validation(Properties(values, {}, None), [""], {})
    server = OAuthBearerServer(TokenCheck(open_keys(settings, print), settings.rules, lambda line: None))
    said = []
    for message in case.messages:
        try:
            answer = server.respond(message)
        except AuthenticationError as error:
            said.append(f"fail:{_encode(error.text)}" if error.text else "fail")
            continue
        known = server.identity
        more = "" if known is None else f":{_encode(known.name)}:{known.expires_ms}"
        said.append(("more:" if known is None else "done:") + base64.b64encode(answer).decode() + more)
    return said


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_kafkas_server_answers_the_same(kafka: KafkaTools, tmp_path: Path) -> None:
    url = kit.write_keys(
        tmp_path / "keys.json",
        *(kit.public_jwk(kind) for kind in ("RSA-other", "RSA", "P-256", "P-384", "Ed25519")),
        {**kit.public_jwk("RSA"), "kid": "bound", "alg": "RS512"},
        kit.secret_jwk(),
    )
    cases = _cases(int(time.time()))
    lines, before = [f"set {S}jwks.endpoint.url {url}"], {}
    for case in cases:
        lines += [f"set {name}" for name in before if name not in case.settings]
        lines += [f"set {name} {value}" for name, value in case.settings.items() if before.get(name) != value]
        before = case.settings
        lines.append(" ".join(["try", *(base64.b64encode(message).decode() for message in case.messages)]))
    script = tmp_path / "script"
    script.write_text("\n".join(lines))
    theirs = [line.split(" ") for line in kafka.java("Interop", "serve-oauth", script).splitlines()]
    assert len(theirs) == len(cases)
    found = {case.name: (_ours(case, url), answers) for case, answers in zip(cases, theirs, strict=True)}
    differ = {case.name: found[case.name] for case in cases if found[case.name][0] != found[case.name][1]}
    assert differ.keys() == {case.name for case in cases if case.stricter}, differ
    outcomes = {answers[0].partition(":")[0] for _, answers in found.values()}
    assert outcomes == {"done", "more", "fail", "crash"}


def test_kafkas_client_says_the_same(kafka: KafkaTools, tmp_path: Path) -> None:
    now = int(time.time())
    path = tmp_path / "token"
    path.write_text(kit.token(kit.claims(now)) + "\n")
    options = {"extension_traceId": "a b", "extension_k": "v"}
    said = kafka.java("Interop", "ask-oauth", path.as_uri(), *(f"{name}={text}" for name, text in options.items()))
    first, then, claims = said.splitlines()
    request = read_token_request(Properties({S + "token.endpoint.url": path.as_uri()}, {}, None), [""], options)
    token = read_claims(path.read_text().strip(), request.rules)
    client = OAuthBearerClient(token.text, request.extensions)
    ours, theirs = client.first(), base64.b64decode(first)
    # Kafka's extensions are in a hash order.
    assert sorted(ours.split(b"\x01")) == sorted(theirs.split(b"\x01"))
    assert client.respond(b'{"status":"invalid_token"}') == base64.b64decode(then)
    assert claims == f"{_encode('alice')} {token.expires_ms} {token.issued_ms}"


def test_kafkas_client_asks_a_server_for_the_same(kafka: KafkaTools) -> None:
    with kit.http_issuer() as issuer:
        issuer.answer_tokens("/token?a=b", lambda: kit.token(kit.claims(int(time.time()))))
        url = issuer.url + "/token?a=b"
        settings = {
            S + "client.credentials.client.id": "m:e",
            S + "client.credentials.client.secret": "p:a+ss",
            S + "scope": "read",
        }
        kafka.java("Interop", "ask-oauth", url, *(f"{name}={text}" for name, text in settings.items()))
        values = {**settings, S + "token.endpoint.url": url}
        request = read_token_request(Properties(values, {}, None), [""], {})
        trio.run(TokenLogin(request, lambda: time.time_ns() // 1_000_000).token)
        (path, theirs, body), (our_path, ours, our_body) = issuer.asked
        assert (path, body) == (our_path, our_body)
        names = ("Accept", "Authorization", "Cache-Control", "Content-Type")
        assert [theirs[name] for name in names] == [ours[name] for name in names]
