"""Settings of a node: from keyword arguments, a Kafka ``.properties`` file, or the environment."""

from typing import TYPE_CHECKING

from kraftcore.namespace import listing, loader, names_of

# Loaded when first used: formatting a directory reads a file, but needs no node.
_HOMES = {
    "kraftcore.config.errors": ("ConfigError",),
    "kraftcore.config.login": ("SaslLogin", "make_login"),
    "kraftcore.config.node": ("NodeConfig",),
    "kraftcore.config.security": ("SaslConfig", "SecurityProtocol"),
    "kraftcore.config.tls": ("TlsConfig",),
    "kraftcore.security.sasl.oauth_settings": ("TokenRequest", "TokenValidation"),
    "kraftcore.security.sasl.oauth_token": ("TokenRules",),
}
if TYPE_CHECKING:
    from kraftcore.config.errors import ConfigError as ConfigError
    from kraftcore.config.login import SaslLogin as SaslLogin
    from kraftcore.config.login import make_login as make_login
    from kraftcore.config.node import NodeConfig as NodeConfig
    from kraftcore.config.security import SaslConfig as SaslConfig
    from kraftcore.config.security import SecurityProtocol as SecurityProtocol
    from kraftcore.config.tls import TlsConfig as TlsConfig
    from kraftcore.security.sasl.oauth_settings import TokenRequest as TokenRequest
    from kraftcore.security.sasl.oauth_settings import TokenValidation as TokenValidation
    from kraftcore.security.sasl.oauth_token import TokenRules as TokenRules
else:
    __all__ = names_of(_HOMES)
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__, _HOMES)
