"""TLS: a node's certificate and its checks of peers' certificates, with Kafka's ``ssl.*`` names."""

from __future__ import annotations

import os
from dataclasses import field
from typing import Literal, TypeAlias, get_args

from kraftcore.config.errors import ConfigError
from kraftcore.config.settings import Converted, settings
from kraftcore.errors import LocalError
from kraftcore.security.principals import RULES_KEY, PrincipalMapper

ClientAuth: TypeAlias = Literal["none", "requested", "required"]
CLIENT_AUTH = get_args(ClientAuth)
_File: TypeAlias = Converted[str | os.PathLike[str] | None, str | None]


@settings(place="tls")
class TlsConfig:
    """TLS settings. The files are PEM, read when the node starts, when they change, and when it is told to.

    Attributes:
        certificate: the node's certificate and its chain: ``ssl.keystore.location`` with ``ssl.keystore.type=PEM``;
            None: it has none; enough for a node that only connects, such as an observer, where none is asked for.
        key: its private key; None: in the same file as the certificate, as in Kafka.
        key_password: of an encrypted key, ``ssl.key.password``; never printed.
        ca: certificates of the authorities that peers' certificates are checked against, ``ssl.truststore.location``
            with ``ssl.truststore.type=PEM``; None: the system's.
        client_auth: ``ssl.client.auth``: whether clients must show a certificate.
        principal_mapping_rules: ``ssl.principal.mapping.rules``: rules that make a user's name from the name in a
            client's certificate, see `kraftcore.security.principals.PrincipalMapper`; None: the name is unchanged.
        check_host_name: ``ssl.endpoint.identification.algorithm`` is ``https`` (true) or empty (false): whether a
            server's certificate must name the host that was connected to.

    Raises:
        ConfigError: a value is not allowed, a path is empty, a key has no certificate, or a rule cannot be read.
    """

    certificate: _File = Converted(None)
    key: _File = Converted(None)
    key_password: str | None = field(default=None, repr=False)
    ca: _File = Converted(None)
    client_auth: ClientAuth = "none"
    check_host_name: bool = True
    principal_mapping_rules: str | None = None

    def __post_init__(self) -> None:
        for name in ("certificate", "key", "ca"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else os.fspath(value))
        if self.certificate == "":
            raise ConfigError("tls.certificate (ssl.keystore.location) is empty: name a PEM file", ["tls"])
        if self.certificate is None and self.key is not None:
            raise ConfigError("tls.key has no tls.certificate (ssl.keystore.location) beside it", ["tls"])
        if self.principal_mapping_rules is not None:
            try:
                PrincipalMapper(self.principal_mapping_rules)
            except LocalError as error:
                raise ConfigError(f"tls.principal_mapping_rules: {error}", [RULES_KEY]) from None
