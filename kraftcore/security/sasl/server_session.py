"""One accepted connection's way to being who it says it is, without I/O (KIP-43, KIP-152, KIP-368).

What is answered, refused and closed, and with which texts: Kafka 4.3.1 SaslServerAuthenticator.

======================  ===========================================================================================
before the handshake    ApiVersions is answered, once; anything else ends the connection unanswered
SaslHandshake           version 0: tokens follow as they are; version 1: they come in SaslAuthenticate
until the proof         anything but SaslAuthenticate is ILLEGAL_SASL_STATE in its own format, and ends the connection
afterwards              whoever serves has the requests; a session that ends in time may be begun anew, see `may_renew`
======================  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from kraftcore.errors import RemoteProtocolError
from kraftcore.protocol.data.headers import RequestHeader
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_request, decode_request_header, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kraftcore.protocol.registry import ApiKey
from kraftcore.protocol.schema import Request, Response
from kraftcore.security.sasl.credentials import NotReadyError
from kraftcore.security.sasl.mechanism_interface import AuthenticationError, Identity, ServerMechanism

RENEWAL_PAUSE_MS: Final = 1000
"""A session cannot be begun anew more often."""
_FIRST_KEYS: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)


class Named(Protocol):
    """A principal."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102


PrincipalT = TypeVar("PrincipalT", bound=Named)


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this, and go on."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class TellVersions:
    """Answer ApiVersions (None: of an unknown version), then call ``told_versions`` if it was a good request."""

    header: RequestHeader
    request: ApiVersionsRequest | None


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Send this, if it is anything, not at once but after a while, and close the connection.

    Attributes:
        frame: the answer.
        reason: for people on this side; holds nothing that was sent.
        is_failure: something was wrong with the login; else it is too early to say.
    """

    frame: bytes | None
    reason: str
    is_failure: bool = True


Step = Answer | TellVersions | TurnAway

Refuse = Callable[[Request, int, ErrorCode, str], Response | None]
"""How a request of some version is told that all of it is an error; None: it cannot be."""


class _Stage(Enum):
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    OTHER_MECHANISM = auto()
    DONE = auto()
    OVER = auto()


class ServerSession(Generic[PrincipalT]):
    """The authentication of one accepted connection.

    ``take`` gets every frame until ``is_done``, and again after ``renew``.

    Args:
        mechanisms: makes one of each that is enabled, by name.
        lifetimes_ms: ``connections.max.reauth.ms`` by mechanism, where it is not 0.
        principal_of: who somebody is here.
        refuse: see `Refuse`.

    Attributes:
        principal: who it is; None until that is proven. While it is proven anew it is who it was.
        identity: what the mechanism said of it.
        mechanism: name of the one it chose last; empty before.
        ends_ms: when the session ends, by the clock that ``take`` is told; None: never.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], ServerMechanism]],
        lifetimes_ms: Mapping[str, int],
        principal_of: Callable[[Identity], PrincipalT],
        refuse: Refuse,
    ) -> None:
        self.principal: PrincipalT | None = None
        self.identity: Identity | None = None
        self.mechanism = ""
        self.ends_ms: int | None = None
        self.is_done = False
        self._mechanisms = mechanisms
        self._lifetimes_ms = lifetimes_ms
        self._principal_of = principal_of
        self._refuse = refuse
        self._stage = _Stage.VERSIONS_OR_HANDSHAKE
        self._server: ServerMechanism
        self._has_headers = False
        self._renewed_ms: int | None = None

    # --- calls --------------------------------------------------------------------------------------------------------

    def take(self, frame: bytes, now_ms: int) -> Step | None:
        """Take what came in; None: the connection ends, after what was refused before is answered.

        Args:
            frame: a request, or a bare token after SaslHandshake v0.
            now_ms: milliseconds since 1970.
        """
        match self._stage:
            case _Stage.VERSIONS_OR_HANDSHAKE | _Stage.HANDSHAKE:
                return self._take_first(frame)
            case _Stage.TOKENS:
                return self._take_request(frame, now_ms) if self._has_headers else self._take_token(frame, now_ms)
            case _Stage.OTHER_MECHANISM:
                return self._turn_away(None, "it wants to prove anew who it is by another mechanism")
        return None

    def told_versions(self) -> None:
        """ApiVersions was answered with versions: only the handshake may come now."""
        self._stage = _Stage.HANDSHAKE

    def is_over(self, now_ms: int) -> bool:
        """Whether the session has ended: a request that comes now ends the connection."""
        return self.ends_ms is not None and now_ms > self.ends_ms

    def may_renew(self, now_ms: int) -> bool:
        """Whether a SaslHandshake begins the session anew (KIP-368): if it ends at all, and not within a second.

        One that may not is a request like any other.
        """
        if self.ends_ms is None:
            return False
        return self._renewed_ms is None or now_ms - self._renewed_ms >= RENEWAL_PAUSE_MS

    @property
    def is_renewal(self) -> bool:
        """Whether the present login, or the last one, is not the connection's first."""
        return self._renewed_ms is not None

    def renew(self, frame: bytes, now_ms: int) -> Step:
        """Take the SaslHandshake that begins the session anew; its followers go to ``take``."""
        self._renewed_ms = now_ms
        self.is_done = self._has_headers = False
        self._stage = _Stage.HANDSHAKE
        return self._take_first(frame)

    # --- stages -------------------------------------------------------------------------------------------------------

    def _take_first(self, frame: bytes) -> Step:
        try:
            key = decode_request_header(frame)[0].request_api_key
            if key not in _FIRST_KEYS:
                return self._turn_away(None, f"it sent {_name(key)} without proving who it is")
            header, message = decode_request(frame)
        except RemoteProtocolError as error:
            return self._turn_away(None, f"it began with what is no request: {error}")
        if isinstance(message, SaslHandshakeRequest):
            return self._shake_hands(header, message)
        if self._stage is not _Stage.VERSIONS_OR_HANDSHAKE:
            return self._turn_away(None, "it asked for versions where the handshake was due")
        return TellVersions(header, message if isinstance(message, ApiVersionsRequest) else None)

    def _shake_hands(self, header: RequestHeader, request: SaslHandshakeRequest) -> Step:
        enabled = list(self._mechanisms)
        wanted = request.mechanism
        if wanted not in self._mechanisms:
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
            return self._turn_away(_encoded(refusal, header), f"it wants a mechanism that is not one of {enabled}")
        if self.principal is not None and wanted != self.mechanism:
            self._stage = _Stage.OTHER_MECHANISM
        else:
            self.mechanism = wanted
            self._server = self._mechanisms[wanted]()
            self._has_headers = header.request_api_version >= 1
            self._stage = _Stage.TOKENS
        return Answer(_encoded(SaslHandshakeResponse(mechanisms=enabled), header))

    def _take_request(self, frame: bytes, now_ms: int) -> Step:
        try:
            header, message = decode_request(frame)
        except RemoteProtocolError as error:
            return self._turn_away(None, f"what it sent in place of a token cannot be read: {error}")
        if not isinstance(message, SaslAuthenticateRequest):
            name = _name(header.request_api_key)
            reason = f"Unexpected Kafka request of type {name} during SASL authentication."
            return self._turn_away(self._refused(header, message, reason), f"it sent {name} in place of a token")
        try:
            token = self._respond(bytes(message.auth_bytes))
            lifetime_ms = self._complete(now_ms)
        except AuthenticationError as error:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=error.text or self._general_words()
            )
            return self._turn_away(_encoded(refusal, header), str(error))
        except NotReadyError as error:
            return self._not_ready(error)
        response = SaslAuthenticateResponse(error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return Answer(_encoded(response, header))

    def _take_token(self, frame: bytes, now_ms: int) -> Step:
        try:
            token = self._respond(frame)
            self._complete(now_ms)
        except AuthenticationError as error:
            return self._turn_away(None, str(error))
        except NotReadyError as error:
            return self._not_ready(error)
        return Answer(token)

    def _respond(self, token: bytes) -> bytes:
        try:
            return self._server.respond(token)
        except (AuthenticationError, NotReadyError):
            raise
        except Exception as error:  # a mechanism of an application's, or a mistake: the node goes on
            raise AuthenticationError("", f"{self.mechanism} raised {type(error).__name__}") from error

    def _complete(self, now_ms: int) -> int:
        """If it is proven who it is, begin the session; returns how long it lasts, 0 without an end."""
        identity = self._server.identity
        if identity is None:
            return 0
        before = self.principal
        try:
            principal = self._principal_of(identity)
        except Exception as error:  # a principal builder of an application's
            raise AuthenticationError("", f"the principal builder raised {type(error).__name__}") from error
        if before is not None and (before.kind, before.name) != (principal.kind, principal.name):
            raise AuthenticationError(
                "Cannot change principals during re-authentication from "
                f"{before.kind}.{before.name}: {principal.kind}.{principal.name}"
            )
        ends = [identity.expires_ms - now_ms] if identity.expires_ms is not None else []
        if self._lifetimes_ms.get(self.mechanism, 0) > 0:
            ends.append(self._lifetimes_ms[self.mechanism])
        lifetime_ms = max(0, min(ends, default=0))
        self.ends_ms = now_ms + lifetime_ms if ends else None
        self.principal, self.identity = principal, identity
        self._stage, self.is_done = _Stage.DONE, True
        return lifetime_ms

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _turn_away(self, frame: bytes | None, reason: str) -> TurnAway:
        self._stage = _Stage.OVER
        return TurnAway(frame, reason)

    def _not_ready(self, error: NotReadyError) -> TurnAway:
        self._stage = _Stage.OVER
        return TurnAway(None, str(error), is_failure=False)

    def _general_words(self) -> str:
        """Kafka's, for whatever is wrong with credentials."""
        which = "authentication" if self.principal is None else "re-authentication"
        return f"Authentication failed during {which} due to invalid credentials with SASL mechanism {self.mechanism}"

    def _refused(self, header: RequestHeader, message: Request | None, reason: str) -> bytes | None:
        error = ErrorCode.ILLEGAL_SASL_STATE
        if message is None:  # ApiVersions of an unknown version is answered in version 0 (KIP-511)
            return encode_response(ApiVersionsResponse(error_code=error), 0, header.correlation_id)
        response = self._refuse(message, header.request_api_version, error, reason)
        return None if response is None else _encoded(response, header)


def _encoded(response: Response, header: RequestHeader) -> bytes:
    return encode_response(response, header.request_api_version, header.correlation_id)


def _name(key: int) -> str:
    return ApiKey(key).name
