"""Authentication of a listener's clients, with Kafka's ``sasl.*`` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeGuard

from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.settings import Converted, settings
from kraftcore.forms import with_article
from kraftcore.security.sasl.mechanism_table import MECHANISMS, MechanismName

if TYPE_CHECKING:
    from kraftcore.security.sasl.oauth_settings import TokenValidation


class SecurityProtocol(IntEnum):
    """The security protocol of a listener; the numbers are Kafka's."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


MAX_RECEIVE_BYTES: Final = 512 * 1024
_FIELD: Final = "listener_sasl"


@settings(place=_FIELD, later=("TokenValidation",))
class SaslConfig:
    """SASL on the accepted connections of one listener.

    On a controller the SCRAM users are those of the metadata log; on any other node ``users`` may log in with SCRAM as
    well.

    Attributes:
        mechanisms: ``sasl.enabled.mechanisms``: mechanisms that clients may choose.
        users: passwords by name: the ``user_NAME="PASSWORD"`` of the PlainLoginModule in ``sasl.jaas.config``; never
            printed.
        max_reauth_ms: ``connections.max.reauth.ms`` by mechanism: how long a session lasts until the client must
            authenticate again; 0, or no entry: as long as the connection, or as the credentials are valid.
        tokens: rules for OAUTHBEARER's tokens: ``sasl.oauthbearer.*``; required for that mechanism.
        max_receive_bytes: ``sasl.server.max.receive.size``: longest request before the login is complete.

    Raises:
        ConfigError: there is no mechanism, or an unknown one, or a value is out of range.
    """

    mechanisms: Converted[Iterable[MechanismName], tuple[MechanismName, ...]] = field()
    users: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict, hash=False)
    tokens: TokenValidation | None = None
    max_receive_bytes: int = MAX_RECEIVE_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(dict.fromkeys(self.mechanisms)))
        if not self.mechanisms:
            raise self._error("sasl.mechanisms (sasl.enabled.mechanisms) is empty: nobody could log in")
        object.__setattr__(self, "users", dict(self.users))
        if not all(each for pair in self.users.items() for each in pair):
            raise self._error("sasl.users: a name or a password is empty")
        object.__setattr__(self, "max_reauth_ms", dict(self.max_reauth_ms))
        for mechanism, lifetime_ms in self.max_reauth_ms.items():
            if mechanism not in self.mechanisms:
                raise self._error(f"sasl.max_reauth_ms is about {mechanism}, which is not among sasl.mechanisms")
            if lifetime_ms < 0:
                raise self._error(f"sasl.max_reauth_ms of {mechanism} is {lifetime_ms}: it must be 0 or more")
        if (self.tokens is not None) is not any(MECHANISMS[each].client is None for each in self.mechanisms):
            raise self._error("sasl.tokens (sasl.oauthbearer.jwks.endpoint.url) belongs to OAUTHBEARER: give both")
        if self.tokens is not None:
            from kraftcore.security.sasl.oauth_settings import TokenValidation  # whoever has one has imported it

            if not isinstance(self.tokens, TokenValidation):
                raise self._error(f"sasl.tokens is {with_article(type(self.tokens))}: it must be a TokenValidation")
        if self.max_receive_bytes < 1:
            raise self._error(f"sasl.max_receive_bytes is {self.max_receive_bytes}: it must be 1 or more")

    @staticmethod
    def _error(reason: str) -> ConfigError:
        return ConfigError(reason, [_FIELD])


def is_mechanism(name: str) -> TypeGuard[MechanismName]:
    """Whether a name is one of ``MECHANISMS``."""
    return name in MECHANISMS


def check_mechanism(name: str) -> MechanismName:
    """Return the name; raises `ConfigError` if it is not one of ``MECHANISMS``."""
    if not is_mechanism(name):
        close = suggestion(name, MECHANISMS)
        raise ConfigError(f"the SASL mechanism {name!r} is not one of {', '.join(MECHANISMS)}{close}", [_FIELD])
    return name
