"""What OAUTHBEARER can be told, with the names of Kafka's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from kraftcore.errors import LocalError
from kraftcore.forms import check_fields
from kraftcore.security.sasl.oauth_messages import check_extensions
from kraftcore.security.sasl.oauth_token import TokenRules


@dataclass(frozen=True, slots=True)
class Resource:
    """A URL that is read: of a file, or of an HTTP server.

    Attributes:
        url: itself.
        path: of the file; None: an HTTP server's.
        is_encrypted: whether it is ``https``.
        host: of the server; empty for a file.
        port: the same; 0 for a file.
        target: path and query that the server is asked for.
    """

    url: str
    path: str | None
    is_encrypted: bool
    host: str
    port: int
    target: str


def parse_resource(url: str, setting: str) -> Resource:
    """Take a URL apart.

    Args:
        url: ``file:///path``, ``https://host[:port]/path`` or the same with ``http``.
        setting: where it stands, for messages.

    Raises:
        LocalError: it is none of these.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LocalError(f"{setting} is no URL: {error}") from error
    if any(not "!" <= each <= "~" for each in url):
        raise LocalError(f"{setting} has a character that no URL has: write %20 for a blank")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise LocalError(f"{setting} is {url!r}: write file:///absolute/path")
        return Resource(url, unquote(parts.path), False, "", 0, "")
    if parts.username is not None or parts.password is not None:
        raise LocalError(f"{setting} has a name or a password in it: a URL is printed")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LocalError(f"{setting} is {url!r}: it must begin with https://HOST, http://HOST or file:///")
    is_encrypted = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Resource(url, None, is_encrypted, parts.hostname, port or (443 if is_encrypted else 80), target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenValidation:
    """Whose tokens a listener takes.

    Attributes:
        keys_url: ``sasl.oauthbearer.jwks.endpoint.url``: a JSON Web Key Set, ``file:///...`` or ``https://...``.
        rules: what else a token must be like.
        refresh_ms: ``sasl.oauthbearer.jwks.endpoint.refresh.ms``: how often an HTTP server is asked for its keys.
        retry_backoff_ms: ``sasl.oauthbearer.jwks.endpoint.retry.backoff.ms``: first pause when that failed.
        retry_backoff_max_ms: ``sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms``: it doubles up to this. An unknown
            key makes a node ask again, but not more often than this.
        ca: PEM file with the authorities that the server's certificate is checked against; None: the system's.

    Raises:
        LocalError: the URL is none, a value is not of its type, or a time is out of range.
    """

    keys_url: str
    rules: TokenRules = field(default_factory=TokenRules)
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    ca: str | None = None

    def __post_init__(self) -> None:
        if (wrong := check_fields(self)) is not None:
            raise LocalError(wrong[1])
        parse_resource(self.keys_url, "sasl.oauthbearer.jwks.endpoint.url")
        if self.refresh_ms < 1:
            raise LocalError(f"sasl.oauthbearer.jwks.endpoint.refresh.ms is {self.refresh_ms}: it must be 1 or more")
        _check_backoff("sasl.oauthbearer.jwks.endpoint.retry", self.retry_backoff_ms, self.retry_backoff_max_ms)
        if self.rules.clock_skew_s < 0:
            raise LocalError("sasl.oauthbearer.clock.skew.seconds is negative")

    @property
    def keys(self) -> Resource:
        """The URL's parts."""
        return parse_resource(self.keys_url, "sasl.oauthbearer.jwks.endpoint.url")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """Where one's own tokens come from.

    Attributes:
        token_url: ``sasl.oauthbearer.token.endpoint.url``: a file that holds the token, or an HTTP server that is asked
            by the client credentials grant (RFC 6749, 4.4).
        client_id: ``sasl.oauthbearer.client.credentials.client.id``; needed for a server.
        client_secret: ``sasl.oauthbearer.client.credentials.client.secret``; never printed.
        scope: ``sasl.oauthbearer.scope``; None: none is asked for.
        encode_header: ``sasl.oauthbearer.header.urlencode``: id and secret are URL-encoded (RFC 6749, 2.3.1).
        rules: the names of the claims that are read; the server checks the rest.
        extensions: ``extension_NAME`` of the JAAS line, sent beside the token (KIP-342).
        refresh_window_factor: ``sasl.login.refresh.window.factor``: at this part of its life a token is replaced.
        refresh_window_jitter: ``sasl.login.refresh.window.jitter``: a random part up to this is added to it.
        refresh_min_period_s: ``sasl.login.refresh.min.period.seconds``: a token is kept at least so long, and
        refresh_buffer_s: ``sasl.login.refresh.buffer.seconds``: replaced so long before it ends, if both fit its life.
        connect_timeout_ms: ``sasl.login.connect.timeout.ms``.
        read_timeout_ms: ``sasl.login.read.timeout.ms``.
        retry_backoff_ms: ``sasl.login.retry.backoff.ms``: first pause when the server did not answer.
        retry_backoff_max_ms: ``sasl.login.retry.backoff.max.ms``: so long it is asked again.
        ca: PEM file with the authorities that the server's certificate is checked against; None: the system's.

    Raises:
        LocalError: something is missing, not of its type, or out of range.
    """

    token_url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    encode_header: bool = False
    rules: TokenRules = field(default_factory=TokenRules)
    extensions: Mapping[str, str] = field(default_factory=dict)
    refresh_window_factor: float = 0.8
    refresh_window_jitter: float = 0.05
    refresh_min_period_s: int = 60
    refresh_buffer_s: int = 300
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    ca: str | None = None

    def __post_init__(self) -> None:
        if (wrong := check_fields(self)) is not None:
            raise LocalError(wrong[1])
        is_file = self.endpoint.path is not None
        if not is_file and not (self.client_id or "").strip():
            raise LocalError("sasl.oauthbearer.client.credentials.client.id is missing")
        if not is_file and not (self.client_secret or "").strip():
            raise LocalError("sasl.oauthbearer.client.credentials.client.secret is missing")
        check_extensions(self.extensions)
        # The ranges are Kafka's.
        for name, value, low, high in (
            ("refresh.window.factor", self.refresh_window_factor, 0.5, 1.0),
            ("refresh.window.jitter", self.refresh_window_jitter, 0.0, 0.25),
            ("refresh.min.period.seconds", self.refresh_min_period_s, 0, 900),
            ("refresh.buffer.seconds", self.refresh_buffer_s, 0, 3600),
            ("connect.timeout.ms", self.connect_timeout_ms, 1, 2**31 - 1),
            ("read.timeout.ms", self.read_timeout_ms, 1, 2**31 - 1),
        ):
            if not low <= value <= high:
                raise LocalError(f"sasl.login.{name} is {value}: it must be between {low} and {high}")
        _check_backoff("sasl.login.retry", self.retry_backoff_ms, self.retry_backoff_max_ms)

    @property
    def endpoint(self) -> Resource:
        """The URL's parts."""
        return parse_resource(self.token_url, "sasl.oauthbearer.token.endpoint.url")


def _check_backoff(name: str, first_ms: int, longest_ms: int) -> None:
    if not 0 < first_ms <= longest_ms:
        raise LocalError(
            f"{name}.backoff.ms is {first_ms}: it must be 1 or more, and not more than {name}.backoff.max.ms, "
            f"{longest_ms}"
        )
