"""One's own access token: read or asked for when it is needed, and again before it ends."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote_plus, urlencode

import trio

from kraftcore.errors import AuthenticationError, RemoteProtocolError
from kraftcore.security.sasl.oauth_client import OAuthBearerClient
from kraftcore.security.sasl.oauth_messages import TOKEN_CHARACTERS_MAX
from kraftcore.security.sasl.oauth_settings import TokenRequest
from kraftcore.security.sasl.oauth_token import AccessToken, TokenError, read_claims
from kraftcore.transports.oauth.fetch import Fetch, FetchError, fetch


class TokenLogin:
    """Holds the token that new connections, and those that authenticate anew, are made with.

    There is no task behind it: a token is replaced when one is needed and the present one is past its time
    (``refresh_at_ms``). While it is still valid a server that does not answer does no harm.

    Args:
        request: where tokens come from.
        now_ms: milliseconds since 1970.
    """

    def __init__(self, request: TokenRequest, now_ms: Callable[[], int]) -> None:
        self._request = request
        self._now_ms = now_ms
        self._token: AccessToken | None = None
        self._refresh_ms = 0
        self._lock = trio.Lock()

    async def mechanism(self) -> OAuthBearerClient:
        """An authentication with a token that is valid now.

        Raises:
            AuthenticationError: there is none; the message says why, and where it was looked for.
        """
        token = await self.token()
        return OAuthBearerClient(token.text, self._request.extensions)

    async def token(self) -> AccessToken:
        """A token that is valid now.

        Raises:
            AuthenticationError: there is none.
        """
        async with self._lock:  # those who come meanwhile get the same one
            now = self._now_ms()
            if self._token is None or now >= self._refresh_ms:
                try:
                    self._take(read_claims(await self._retrieve(), self._request.rules))
                except (FetchError, OSError, RemoteProtocolError, TokenError, ValueError) as error:
                    if self._token is None or self._token.expires_ms <= now:
                        raise AuthenticationError(
                            f"there is no token from {self._request.token_url}: {error}"
                        ) from error
            token = self._token
            if token is None or token.expires_ms <= self._now_ms():
                raise AuthenticationError(f"the token from {self._request.token_url} has ended")
            return token

    def _take(self, token: AccessToken) -> None:
        now = self._now_ms()
        if token.expires_ms <= now:
            raise TokenError("it has ended already: are the clocks in step?")
        self._token = token
        # A file is read each time: whoever writes it decides when a token is replaced.
        self._refresh_ms = now if self._request.endpoint.path is not None else refresh_at_ms(self._request, token, now)

    async def _retrieve(self) -> str:
        path = self._request.endpoint.path
        if path is None:
            return await self._ask()
        with Path(path).open(encoding="ascii") as file:
            return file.read(TOKEN_CHARACTERS_MAX).strip()

    async def _ask(self) -> str:
        """Ask the server; again, with longer and longer pauses, when it does not answer."""
        request = self._request
        asked = Fetch(
            resource=request.endpoint,
            headers=_headers(request),
            body=_body(request),
            ca=request.ca,
            connect_timeout_ms=request.connect_timeout_ms,
            read_timeout_ms=request.read_timeout_ms,
        )
        end = trio.current_time() + request.retry_backoff_max_ms / 1000
        pause_s = request.retry_backoff_ms / 1000
        while True:
            try:
                return _token_in(await fetch(asked))
            except FetchError as error:
                if error.is_final or trio.current_time() + pause_s > end:
                    raise
            await trio.sleep(pause_s)
            pause_s *= 2


def refresh_at_ms(request: TokenRequest, token: AccessToken, now_ms: int) -> int:
    """When a token that was just had should be replaced, as Kafka's ExpiringCredentialRefreshingLogin has it."""
    part = request.refresh_window_factor + random.uniform(0, request.refresh_window_jitter)
    kept_ms, left_ms = 1000 * request.refresh_min_period_s, 1000 * request.refresh_buffer_s
    if now_ms + kept_ms + left_ms > token.expires_ms:
        return now_ms + int((token.expires_ms - now_ms) * part)
    began_ms = now_ms if token.issued_ms is None else token.issued_ms
    wanted = began_ms + int((token.expires_ms - began_ms) * part)
    return max(min(wanted, token.expires_ms - left_ms), now_ms + kept_ms)


def _headers(request: TokenRequest) -> dict[str, str]:
    name, secret = (request.client_id or "").strip(), (request.client_secret or "").strip()
    if request.encode_header:
        name, secret = quote_plus(name), quote_plus(secret)
    return {
        "Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode(),
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _body(request: TokenRequest) -> bytes:
    fields = {"grant_type": "client_credentials"}
    if request.scope:
        fields["scope"] = request.scope
    return urlencode(fields).encode()


def _token_in(body: bytes) -> str:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        for name in ("access_token", "id_token"):
            text = found.get(name)
            if isinstance(text, str) and text.strip():
                return text.strip()
    raise RemoteProtocolError("the answer has no access_token")
