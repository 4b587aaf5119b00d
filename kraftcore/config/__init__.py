"""Settings of a node: from keyword arguments, a Kafka ``.properties`` file, or the environment."""

from kraftcore.config.errors import ConfigError
from kraftcore.config.login import SaslLogin
from kraftcore.config.node import NodeConfig
from kraftcore.config.security import SaslConfig
from kraftcore.config.tls import TlsConfig
from kraftcore.security.sasl.oauth_settings import TokenRequest, TokenValidation
from kraftcore.security.sasl.oauth_token import TokenRules

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
