"""The SASL mechanisms: one table with an entry for each, for both sides of a connection.

Other modules ask the table, and name no mechanism. docs/changing.md says what belongs to a new one. What only servers
need is imported when somebody logs in: programs that log in elsewhere start sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from kraftcore.errors import LocalError
from kraftcore.security.sasl.mechanism_interface import ClientMechanism, ServerMechanism
from kraftcore.security.sasl.plain_client import PlainClient
from kraftcore.security.sasl.scram_client import Password, ScramClient

if TYPE_CHECKING:
    from kraftcore.security.sasl.credentials import Credentials
    from kraftcore.security.sasl.oauth_token import AccessToken

MechanismName: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_MODULES: Final = "org.apache.kafka.common.security."


@dataclass(frozen=True, slots=True)
class Known:
    """What logins on a listener are checked against.

    Attributes:
        users: passwords by name, for PLAIN.
        credentials: for SCRAM.
        secret: random bytes that nobody else knows, drawn anew at each start.
        check_token: for OAUTHBEARER: the token, if it is valid; else None.
        ends_ms: from a time of day, at which a token ends, to the node's time, by which sessions end.
    """

    users: Mapping[str, str]
    credentials: Credentials
    secret: bytes
    check_token: Callable[[str], AccessToken | None]
    ends_ms: Callable[[int], int]


class SaslMechanism(NamedTuple):
    """What sets a mechanism apart.

    Attributes:
        module: Kafka's login module of it, which stands in ``sasl.jaas.config``.
        server: makes the side that asks for proof, for one login.
        client: makes, of a user's name, a password and whether both are a delegation token's, what makes the other side
            for one login. It raises `LocalError` for what cannot be sent. None: tokens of an OAuth server are sent in
            place of a name and password (``sasl.oauthbearer.*``).
        lists_users: the server's login module lists the users, with their passwords.
        takes_delegation_tokens: delegation tokens log in with it (KIP-48).
    """

    module: str
    server: Callable[[Known], ServerMechanism]
    client: Callable[[str, str, bool], Callable[[], ClientMechanism]] | None
    lists_users: bool = False
    takes_delegation_tokens: bool = False


def _plain_server(known: Known) -> ServerMechanism:
    from kraftcore.security.sasl.plain_server import PlainServer

    return PlainServer(known.users, known.secret)


def _oauth_server(known: Known) -> ServerMechanism:
    from kraftcore.security.sasl.oauth_server import OAuthBearerServer

    return OAuthBearerServer(known.check_token, known.ends_ms)


def _plain_client(username: str, password: str, is_token: bool) -> Callable[[], ClientMechanism]:
    return partial(PlainClient, username, password)


def _scram(name: str) -> SaslMechanism:
    def client(username: str, password: str, is_token: bool) -> Callable[[], ClientMechanism]:
        if not password:
            raise LocalError(f"{name}: the user's password must not be empty")
        return partial(ScramClient, name, username, Password(password), is_token=is_token)

    def server(known: Known) -> ServerMechanism:
        from kraftcore.security.sasl.scram_server import ScramServer

        return ScramServer(name, known.credentials, known.secret)

    return SaslMechanism(f"{_MODULES}scram.ScramLoginModule", server, client, takes_delegation_tokens=True)


MECHANISMS: Final[Mapping[MechanismName, SaslMechanism]] = MappingProxyType(
    {
        "PLAIN": SaslMechanism(f"{_MODULES}plain.PlainLoginModule", _plain_server, _plain_client, lists_users=True),
        "SCRAM-SHA-256": _scram("SCRAM-SHA-256"),
        "SCRAM-SHA-512": _scram("SCRAM-SHA-512"),
        "OAUTHBEARER": SaslMechanism(f"{_MODULES}oauthbearer.OAuthBearerLoginModule", _oauth_server, None),
    }
)
"""The mechanisms by name. Kafka has GSSAPI as well, and offers nothing else by default."""
