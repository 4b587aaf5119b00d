"""Authentication: clients log in, or show a certificate, before their requests are served.

Only listeners with authentication have an `Authentication`; requests on other listeners go straight to the inbox.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from kraftcore.config.node import NodeConfig
from kraftcore.errors import AuthenticationError
from kraftcore.node.clock import wall_clock
from kraftcore.node.inbox import Inbox, ReceivedRequest
from kraftcore.node.listeners import has_authentication
from kraftcore.node.logins import LoginCounts
from kraftcore.node.refusals import refusal_of
from kraftcore.node.registry import Asker, Registry
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Origin, Reply
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.registry import ApiKey
from kraftcore.protocol.schema import Request, Response
from kraftcore.security.principals import AuthenticationContext, Principal, PrincipalBuilder
from kraftcore.security.sasl.credentials import Credentials, Passwords
from kraftcore.security.sasl.mechanism_interface import Identity, ServerMechanism
from kraftcore.security.sasl.mechanism_table import MECHANISMS, Known
from kraftcore.security.sasl.oauth_server import TokenCheck
from kraftcore.security.sasl.oauth_token import AccessToken, TokenRules
from kraftcore.security.sasl.server_session import Answer, ServerSession, Step, TellVersions, TurnAway

_logger = logging.getLogger("kraftcore.node")

_HANDSHAKE: Final = ApiKey.SASL_HANDSHAKE.to_bytes(2)  # the first bytes of a SaslHandshake frame
_SECRET_BYTES: Final = 32


@dataclass(slots=True, eq=False)
class _Guest(Asker):
    """The asker behind a connection to a listener with authentication.

    Attributes:
        login: its SASL session; None where a certificate names the principal.
    """

    login: ServerSession[Principal] | None = None


class Authentication:
    """Authenticates the clients of a listener before their requests are served.

    Args:
        config: of the node.
        credentials: for SCRAM; None: the users of each listener have passwords, see `SaslConfig`.
        principals: makes the principal of an authenticated client.
        registry: the handlers of requests.
        inbox: gets the requests of authenticated clients.
        nursery: for the tasks that refuse a client after a delay, or fetch keys of tokens.
        note: gets a line for the operator about each refused client, unless there were many just before.
        now_ms: returns the node's time, milliseconds since 1970.

    Attributes:
        logins: counts of logins, by listener.
    """

    def __init__(
        self,
        config: NodeConfig,
        credentials: Credentials | None,
        principals: PrincipalBuilder,
        registry: Registry,
        inbox: Inbox,
        nursery: trio.Nursery,
        note: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._principals = principals
        self._registry = registry
        self._inbox = inbox
        self._nursery = nursery
        self._complain = Complaints(note, trio.current_time)
        self._now_ms = now_ms
        self._wall_ms = wall_clock()
        names = (endpoint.name for endpoint in config.all_listeners)
        self.logins = {name: LoginCounts() for name in names if has_authentication(config, name)}
        self._mechanisms = self._open(credentials, os.urandom(_SECRET_BYTES), note)

    def serve(self, frame: bytes, origin: Origin, reply: Reply) -> None:
        """Take a frame: a step of a login, or a request, which goes to the inbox if its asker has logged in."""
        asker: _Guest | None = origin.session
        if asker is None:
            asker = self._first_contact(origin)
            if asker is None:
                reply(None)
                return
        login = asker.login
        if login is None or (login.is_done and login.ends_ms is None):
            self._inbox.serve(frame, origin, reply)
            return
        now_ms = self._now_ms()
        if not login.is_done:
            step = login.take(frame, now_ms)
        elif frame.startswith(_HANDSHAKE) and login.may_renew(now_ms):
            step = login.renew(frame, now_ms)
        elif login.is_over(now_ms):
            self._complain("session", f"{origin.peer} did not prove anew who it is, and its session is over")
            reply(None)
            return
        else:
            self._inbox.serve(frame, origin, reply)
            return
        if step is None:
            reply(None)
        else:
            self._do(step, login, asker, origin, reply)

    def _do(self, step: Step, login: ServerSession[Principal], asker: _Guest, origin: Origin, reply: Reply) -> None:
        match step:
            case Answer(frame):
                if login.is_done and login.principal is not None and login.identity is not None:
                    is_by_token = login.identity.is_by_token
                    origin.session = replace(asker, principal=login.principal, is_by_token=is_by_token)
                    origin.is_admitted = True
                    self._count(origin, is_good=True, is_again=login.is_renewal)
                reply([frame])
            case TellVersions(header, request):
                if self._inbox.answer_api_versions(request, ReceivedRequest(asker, header, origin, reply, 0)):
                    login.told_versions()
            case TurnAway(answer, reason, is_failure):
                if is_failure:
                    self._count(origin, is_good=False, is_again=login.is_renewal)
                self._complain("login", f"{origin.peer} did not log in to {origin.listener}: {reason}")
                self._nursery.start_soon(self._turn_away, answer, origin, reply)

    def _count(self, origin: Origin, *, is_good: bool, is_again: bool = False) -> None:
        self.logins[origin.listener].count(is_good=is_good, is_again=is_again)

    @uninterrupted
    async def _turn_away(self, frame: bytes | None, origin: Origin, reply: Reply) -> None:
        await trio.sleep(self._config.failed_authentication_delay_ms / 1000)
        reply(None if frame is None else [frame])
        origin.close()

    def _open(
        self, credentials: Credentials | None, secret: bytes, note: Callable[[str], None]
    ) -> dict[str, dict[str, Callable[[], ServerMechanism]]]:
        """Functions that make the server's side of a mechanism, by listener and the mechanism's name."""
        found: dict[str, dict[str, Callable[[], ServerMechanism]]] = {}
        for listener, sasl in self._config.listener_sasl.items():
            tokens = sasl.tokens
            check: Callable[[str], AccessToken | None] = _no_token
            if tokens is not None:
                for what, key in _unchecked(tokens.rules):
                    note(f"listener {listener} takes tokens {what}: set {key}")
                from kraftcore.transports.oauth import open_keys  # only here: imports an HTTP client

                keys = open_keys(tokens, note)
                self._nursery.start_soon(keys.run)
                check = TokenCheck(keys, tokens.rules, partial(self._complain, "token"))
            known = Passwords.of(sasl.users, sasl.mechanisms, secret) if credentials is None else credentials
            everything = Known(sasl.users, known, secret, check, self._ends_ms)
            found[listener] = {name: partial(MECHANISMS[name].server, everything) for name in sasl.mechanisms}
        return found

    def _ends_ms(self, wall_ms: int) -> int:
        """The time of the node's clock, which is never set, that corresponds to a time of the wall clock."""
        return self._now_ms() + wall_ms - self._wall_ms()

    # --- who it is ----------------------------------------------------------------------------------------------------

    def _first_contact(self, origin: Origin) -> _Guest | None:
        """Begin a connection's session; None: its certificate names no principal here."""
        protocol = self._config.security_protocol(origin.listener)
        asker = origin.session = _Guest(origin.listener, origin.peer, security_protocol=protocol)
        mechanisms = self._mechanisms.get(origin.listener)
        if mechanisms is not None:
            sasl = self._config.listener_sasl[origin.listener]
            of, refusal = partial(self._principal, origin), partial(self._refusal, origin.listener)
            asker.login = ServerSession(mechanisms, sasl.max_reauth_ms, of, refusal)
            return asker
        try:
            asker.principal = self._principal(origin, None)
        except AuthenticationError as error:
            self._complain("login", f"{origin.peer} is nobody on {origin.listener}: {error}")
        except Exception:  # the builder may be an application's
            _logger.exception("the principal builder raised")
        else:
            self._count(origin, is_good=True)
            return asker
        self._count(origin, is_good=False)
        return None

    def _principal(self, origin: Origin, identity: Identity | None) -> Principal:
        return self._principals.build(AuthenticationContext(origin.listener, origin.peer, origin.subject, identity))

    def _refusal(self, listener: str, request: Request, version: int, error: ErrorCode, text: str) -> Response | None:
        """See `kraftcore.security.sasl.server_session.Refuse`."""
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(error_code=error)
        handler = self._registry.find(type(request), listener)
        if handler is None or not handler.serves(listener, version):
            return None
        return refusal_of(handler, request, version, error, text)


def _unchecked(rules: TokenRules) -> list[tuple[str, str]]:
    """Rules for tokens that Kafka advises to set and that are not set: (tokens that are taken, the property)."""
    found = [] if rules.audiences else [("that are for no audience", "sasl.oauthbearer.expected.audience")]
    return found if rules.issuer else [*found, ("of any issuer", "sasl.oauthbearer.expected.issuer")]


def _no_token(text: str) -> None:
    """Find no token valid, for a listener that does not offer OAUTHBEARER."""
