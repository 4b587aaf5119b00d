"""Settings of a node: from keyword arguments, a Kafka ``.properties`` file, or the environment."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftcore.config.errors import ConfigError as ConfigError
    from kraftcore.config.login import SaslLogin as SaslLogin
    from kraftcore.config.node import NodeConfig as NodeConfig
    from kraftcore.config.security import SaslConfig as SaslConfig
    from kraftcore.config.tls import TlsConfig as TlsConfig
    from kraftcore.security.sasl.oauth_settings import TokenRequest as TokenRequest
    from kraftcore.security.sasl.oauth_settings import TokenValidation as TokenValidation
    from kraftcore.security.sasl.oauth_token import TokenRules as TokenRules

# Imported when first asked for: who formats a directory reads a file without what a node needs.
_HOMES = {
    "ConfigError": "kraftcore.config.errors",
    "NodeConfig": "kraftcore.config.node",
    "SaslConfig": "kraftcore.config.security",
    "SaslLogin": "kraftcore.config.login",
    "TlsConfig": "kraftcore.config.tls",
    "TokenRequest": "kraftcore.security.sasl.oauth_settings",
    "TokenRules": "kraftcore.security.sasl.oauth_token",
    "TokenValidation": "kraftcore.security.sasl.oauth_settings",
}
__all__ = [
    "ConfigError",
    "NodeConfig",
    "SaslConfig",
    "SaslLogin",
    "TlsConfig",
    "TokenRequest",
    "TokenRules",
    "TokenValidation",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kraftcore.config' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
