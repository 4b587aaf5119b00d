"""One connection's login as Kafka's clients do it: ApiVersions, SaslHandshake, then SaslAuthenticate until it is done.

Source: Kafka 4.3.1, SaslClientAuthenticator; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from kraftcore.errors import AuthenticationError, RemoteProtocolError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kraftcore.protocol.registry import api_of
from kraftcore.protocol.schema import Request, Response
from kraftcore.security.sasl.mechanism_interface import ClientMechanism

_TEXT_CHARACTERS: Final = 500
_LAST_ID: Final = -8
_UNAUTHENTICATED: Final = {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE}

R = TypeVar("R", bound=Response)
Frame = list[bytes | memoryview]


class SaslClientSession:
    """See `kraftcore.ports.login.ClientSession`.

    Args:
        mechanism: makes one for each login; raises AuthenticationError when it cannot.
        place: the address, for errors.
        client_id: stands in the requests' headers.
    """

    def __init__(
        self, mechanism: Callable[[], Awaitable[ClientMechanism]], place: str, client_id: str = "kraftcore"
    ) -> None:
        self._make = mechanism
        self._place = place
        self._client_id = client_id
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._mechanism: ClientMechanism | None = None
        self._asked: tuple[type[Request], int] | None = None  # what is on its way, and its version
        self._correlation_id = 0
        self._lifetime_ms: int | None = None

    @property
    def lifetime_ms(self) -> int | None:
        """See ``ClientSession``."""
        return self._lifetime_ms

    async def prepare(self) -> None:
        """See ``ClientSession``."""
        try:
            self._mechanism = await self._make()
        except AuthenticationError as error:
            raise self._error(error.text) from None

    def begin(self) -> Frame:
        """See ``ClientSession``."""
        # Version 0, which every server reads, whatever it makes of what it cannot read.
        return self._ask(ApiVersionsRequest(), 0)

    def renew(self) -> Frame:
        """See ``ClientSession``."""
        return self._shake_hands()

    def take(self, frame: bytes) -> Frame | None:
        """See ``ClientSession``."""
        asked, self._asked = self._asked, None
        mechanism = self._mechanism
        if asked is None or mechanism is None:
            raise self._error("it answers what nobody asked")
        request, version = asked
        if request is ApiVersionsRequest:
            return self._learn(self._decode(frame, request, version, ApiVersionsResponse))
        if request is SaslHandshakeRequest:
            return self._start(self._decode(frame, request, version, SaslHandshakeResponse), mechanism)
        return self._go_on(self._decode(frame, request, version, SaslAuthenticateResponse), mechanism)

    def _learn(self, response: ApiVersionsResponse) -> Frame:
        if response.error_code != ErrorCode.NONE:
            raise self._error(f"it does not say what it speaks: {ErrorCode.of(response.error_code).name}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        return self._shake_hands()

    def _shake_hands(self) -> Frame:
        name = "" if self._mechanism is None else self._mechanism.name
        # Version 0 is followed by bare tokens, without error codes: no server of the last years lacks version 1.
        return self._ask(SaslHandshakeRequest(mechanism=name), self._version(SaslHandshakeRequest, 1))

    def _start(self, response: SaslHandshakeResponse, mechanism: ClientMechanism) -> Frame:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            known = ", ".join(sorted(_printable(each) for each in response.mechanisms[:20])) or "none"
            raise self._error(f"it does not offer this mechanism; it offers {known}")
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._error("it takes no login here: the listener has no SASL (security.protocol)")
        if response.error_code != ErrorCode.NONE:
            raise self._error(f"it refuses the handshake: {ErrorCode.of(response.error_code).name}")
        return self._authenticate(mechanism.first())

    def _go_on(self, response: SaslAuthenticateResponse, mechanism: ClientMechanism) -> Frame | None:
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            text = _printable(response.error_message or code.message or "")
            raise self._error(f"it says {text}" if code in _UNAUTHENTICATED and text else f"it says {code.name} {text}")
        self._lifetime_ms = response.session_lifetime_ms if response.session_lifetime_ms > 0 else None
        if not mechanism.is_complete:
            try:
                message = mechanism.respond(bytes(response.auth_bytes))
            except AuthenticationError as error:
                raise self._error(error.text) from None
            if message is not None:
                return self._authenticate(message)
            if not mechanism.is_complete:
                raise self._error("it ended the login before it had proven who it is")
        self._mechanism = None
        return None

    def _authenticate(self, message: bytes) -> Frame:
        version = self._version(SaslAuthenticateRequest, 0)
        return self._ask(SaslAuthenticateRequest(auth_bytes=message), version)

    def _version(self, request: type[Request], least: int) -> int:
        key, oldest, newest = api_of(request)
        low, high = self._versions.get(key, (0, -1))
        version = min(high, newest)
        if version < max(low, oldest, least):
            raise self._error(f"it offers no login: no {request.__name__} of version {least} or newer")
        return version

    def _ask(self, request: Request, version: int) -> Frame:
        self._correlation_id = -1 if self._correlation_id <= _LAST_ID else self._correlation_id - 1
        self._asked = type(request), version
        return encode_request_parts(request, version, self._correlation_id, self._client_id)

    def _decode(self, frame: bytes, request: type[Request], version: int, response: type[R]) -> R:
        try:
            header, body = decode_response(frame, api_of(request)[0], version)
        except RemoteProtocolError as error:
            raise self._error(f"its answer cannot be read: {error}") from None
        if header.correlation_id != self._correlation_id or not isinstance(body, response):
            raise self._error("it answers something else than it was asked")
        return body

    def _error(self, reason: str) -> AuthenticationError:
        name = "SASL" if self._mechanism is None else f"SASL mechanism {self._mechanism.name}"
        return AuthenticationError(f"login at {self._place} with {name} failed: {reason}")


def _printable(text: str) -> str:
    """What the other side says, fit for a log."""
    return "".join(each if each.isprintable() else "?" for each in text[:_TEXT_CHARACTERS])
