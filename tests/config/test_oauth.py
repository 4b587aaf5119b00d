"""OAUTHBEARER's settings from properties and JAAS options."""

from __future__ import annotations

import pytest

from kraftcore.config import ConfigError
from kraftcore.config.oauth import read_token_request, read_validation
from kraftcore.config.properties import Properties
from kraftcore.errors import LocalError
from kraftcore.security.sasl.oauth_settings import TokenRequest, TokenValidation
from kraftcore.security.sasl.oauth_token import TokenRules

PREFIXES = ("listener.name.outside.oauthbearer.", "listener.name.outside.", "")
S, L = "sasl.oauthbearer.", "sasl.login."
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
KEYS = {S + "jwks.endpoint.url": "file:///keys"}
TOKEN = {S + "token.endpoint.url": "https://issuer.example/token"}
CREDENTIALS = {S + "client.credentials.client.id": "me", S + "client.credentials.client.secret": "se cret"}


def properties(values: dict[str, str]) -> Properties:
    return Properties(values, {key: f"file:{at}" for at, key in enumerate(values, 1)}, "file")


def validation(**more: str) -> TokenValidation:
    return read_validation(properties({**KEYS, **more}), PREFIXES, {})


def request(options: dict[str, str] | None = None, /, **more: str) -> TokenRequest:
    return read_token_request(properties({**TOKEN, **CREDENTIALS, **more}), PREFIXES, options or {})


def test_defaults_are_kafkas():
    assert validation() == TokenValidation(keys_url="file:///keys")
    assert TokenValidation(keys_url="file:///keys") == TokenValidation(
        keys_url="file:///keys",
        rules=TokenRules(audiences=(), issuer=None, clock_skew_s=30, scope_claim="scope", subject_claim="sub"),
        refresh_ms=3_600_000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=10_000,
        ca=None,
    )
    assert request() == TokenRequest(token_url=TOKEN[S + "token.endpoint.url"], client_id="me", client_secret="se cret")


def test_everything_that_is_asked_of_tokens():
    found = read_validation(
        properties(
            {
                S + "jwks.endpoint.url": "https://issuer.example/keys",
                S + "jwks.endpoint.refresh.ms": "1",
                S + "jwks.endpoint.retry.backoff.ms": "2",
                S + "jwks.endpoint.retry.backoff.max.ms": "3",
                S + "expected.audience": "a, b",
                S + "expected.issuer": "i",
                S + "clock.skew.seconds": "0",
                S + "scope.claim.name": "c",
                S + "sub.claim.name": "d",
                "sasl.server.callback.handler.class": PACKAGE + "OAuthBearerValidatorCallbackHandler",
                S + "jwt.validator.class": PACKAGE + "BrokerJwtValidator",
            }
        ),
        PREFIXES,
        {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"},
    )
    assert found == TokenValidation(
        keys_url="https://issuer.example/keys",
        rules=TokenRules(audiences=("a", "b"), issuer="i", clock_skew_s=0, scope_claim="c", subject_claim="d"),
        refresh_ms=1,
        retry_backoff_ms=2,
        retry_backoff_max_ms=3,
        ca="/ca.pem",
    )


def test_everything_about_ones_own_tokens():
    options = {"extension_traceId": "t", "clientId": "not me", "other": "x"}
    found = request(
        options,
        **{
            S + "scope": "read",
            S + "header.urlencode": "true",
            S + "sub.claim.name": "d",
            L + "refresh.window.factor": "0.5",
            L + "refresh.window.jitter": "0",
            L + "refresh.min.period.seconds": "1",
            L + "refresh.buffer.seconds": "2",
            L + "connect.timeout.ms": "3",
            L + "read.timeout.ms": "4",
            L + "retry.backoff.ms": "5",
            L + "retry.backoff.max.ms": "6",
            L + "callback.handler.class": PACKAGE + "OAuthBearerLoginCallbackHandler",
            S + "jwt.retriever.class": PACKAGE + "ClientCredentialsJwtRetriever",
        },
    )
    assert found == TokenRequest(
        token_url="https://issuer.example/token",
        client_id="me",
        client_secret="se cret",
        scope="read",
        encode_header=True,
        rules=TokenRules(subject_claim="d"),
        extensions={"traceId": "t"},
        refresh_window_factor=0.5,
        refresh_window_jitter=0,
        refresh_min_period_s=1,
        refresh_buffer_s=2,
        connect_timeout_ms=3,
        read_timeout_ms=4,
        retry_backoff_ms=5,
        retry_backoff_max_ms=6,
    )
    assert "se cret" not in repr(found)


def test_credentials_may_stand_in_the_jaas_line():
    options = {"clientId": "me", "clientSecret": "se cret", "scope": "read"}
    found = read_token_request(properties(TOKEN), PREFIXES, options)
    assert (found.client_id, found.client_secret, found.scope) == ("me", "se cret", "read")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TokenRequest(token_url=5), "TokenRequest.token_url is 5: it must be a text"),
        (
            lambda: TokenRequest(token_url="file:///t", client_secret=b"secret"),
            "TokenRequest.client_secret is a bytes: it must be a text or None",
        ),
        (
            lambda: TokenRequest(token_url="file:///t", refresh_window_factor="half"),
            "TokenRequest.refresh_window_factor is 'half': it must be a number",
        ),
        (lambda: TokenRequest(token_url="file:///t", extensions={"a": 1}), "it must be a dict, with a text by a text"),
        (lambda: TokenRules(audiences="a"), "TokenRules.audiences is 'a': it must be a list, with a text for each"),
        (lambda: TokenRules(clock_skew_s=True), "TokenRules.clock_skew_s is True: it must be a whole number"),
        (lambda: TokenValidation(keys_url="file:///k", rules={}), "TokenValidation.rules is a dict: it must be a Tok"),
    ],
)
def test_values_are_of_their_types(make, words):
    with pytest.raises(LocalError) as caught:
        make()
    assert words in str(caught.value)
    assert TokenRules(audiences=["a"]).audiences == ("a",)


def test_a_file_needs_no_credentials():
    found = read_token_request(properties({S + "token.endpoint.url": "file:///token"}), PREFIXES, {})
    assert found == TokenRequest(token_url="file:///token")


def test_what_stands_for_a_listener_and_its_mechanism_goes_first():
    name = S + "expected.issuer"
    assert validation(**{name: "all", PREFIXES[1] + name: "listener"}).rules.issuer == "listener"
    assert (
        validation(**{name: "all", PREFIXES[1] + name: "x", PREFIXES[0] + name: "mechanism"}).rules.issuer
        == "mechanism"
    )


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("jwks.endpoint.url", "", "is missing"),
        ("jwks.endpoint.url", "keys.json", "must begin with https"),
        ("jwks.endpoint.refresh.ms", "0", "between 1 and"),
        ("jwks.endpoint.retry.backoff.ms", "20000", "not more than"),
        ("clock.skew.seconds", "-1", "between 0 and"),
        ("clock.skew.seconds", "x", "whole number"),
        ("jwt.validator.class", "com.example.Mine", "class of Java's"),
    ],
)
def test_what_is_refused_of_a_validation(key, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        validation(**{S + key: text})
    assert str(caught.value).startswith("file:")


def test_tokens_that_nobody_signed_are_never_taken():
    """Kafka's own default, and what it is called."""
    with pytest.raises(ConfigError, match="needs the keys that tokens are signed with"):
        read_validation(properties({"node.id": "1"}), PREFIXES, {"unsecuredValidatorRequiredScope": "x"})
    handler = PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    with pytest.raises(ConfigError, match="cannot be loaded"):
        validation(**{PREFIXES[0] + "sasl.server.callback.handler.class": handler})


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (S + "token.endpoint.url", "", "is missing"),
        (S + "token.endpoint.url", "ftp://host", "must begin with https"),
        (S + "client.credentials.client.id", " ", "client.id is missing"),
        (S + "client.credentials.client.secret", "", "client.secret is missing"),
        (S + "header.urlencode", "yes", "true or false"),
        (S + "assertion.file", "/x", "no assertions"),
        (S + "jwt.retriever.class", PACKAGE + "JwtBearerJwtRetriever", "class of Java's"),
        (L + "callback.handler.class", "com.example.Mine", "class of Java's"),
        (L + "refresh.window.factor", "0.4", "between 0.5 and 1.0"),
        (L + "refresh.window.factor", "nan", "must be a number"),
        (L + "refresh.window.jitter", "x", "must be a number"),
        (L + "refresh.min.period.seconds", "901", "between 0 and 900"),
        (L + "connect.timeout.ms", "0", "between 1 and"),
    ],
)
def test_what_is_refused_of_a_request(key, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        request(**{key: text})
    assert "se cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl.truststore.location": "/ca.jks"}, "must be PEM"),
        ({"ssl.keystore.location": "/me.pem"}, "ssl.keystore.location is not offered"),
        ({"extension_auth": "x"}, "auth"),
        ({"extension_a": ""}, "has no value"),
    ],
)
def test_what_is_refused_of_a_jaas_line(options, words):
    with pytest.raises(ConfigError, match=words):
        request(options)
