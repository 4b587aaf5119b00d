"""How clients come to a Kafka for tests: by TLS, with users and passwords, or as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import ModuleType

from kraftcore.config.sasl_keys import ENABLED_KEY, JAAS_KEY, listener_prefix, mechanism_key
from kraftcore.config.security import SecurityProtocol
from kraftcore.errors import LocalError, MissingDependencyError
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.security.sasl.mechanism_table import MECHANISMS
from kraftcore.storage.scram import NUMBERS, credential

_USER = re.compile(r"[A-Za-z0-9_.$-]+", re.ASCII)
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
_HOSTS = ("localhost", "127.0.0.1")


class ClientAccess:
    """How clients reach the brokers of a test's Kafka: plain, by TLS, or with users and passwords.

    Args:
        listener: the one for clients.
        users: passwords by name; empty: nobody logs in. They may use PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
        has_tls: whether connections are encrypted.

    Attributes:
        protocol: the listener's.
        users_key: the property of brokers that names the users and their passwords.
        ca_file: of the authority that clients have to trust; None without TLS, and before ``prepare``.

    Raises:
        LocalError: a name or a password cannot be one.
        MissingDependencyError: nothing here can make certificates.
    """

    def __init__(self, listener: str, users: Mapping[str, str], *, has_tls: bool) -> None:
        for name, password in users.items():
            if not (isinstance(name, str) and _USER.fullmatch(name)):
                raise LocalError(f"user {name!r}: use letters, digits, and any of _ . $ -")
            if not (isinstance(password, str) and password):
                raise LocalError(f"the password of user {name} is empty or no text")
        if has_tls:
            _trustme()
        self.protocol = SecurityProtocol((2 if users else 0) + (1 if has_tls else 0))
        self.users_key = mechanism_key(listener, "PLAIN", JAAS_KEY)
        self.ca_file: str | None = None
        self._certificate = ""
        self._listener = listener
        self._users = dict(users)
        self._has_tls = has_tls

    def prepare(self, directory: str) -> None:
        """Make the certificates in a folder of their own below this one, unless they are there."""
        if not self._has_tls:
            return
        folder = os.path.join(directory, "certificates")
        self.ca_file, self._certificate = os.path.join(folder, "ca.pem"), os.path.join(folder, "brokers.pem")
        if os.path.exists(self.ca_file) and os.path.exists(self._certificate):
            return
        os.makedirs(folder, mode=0o700, exist_ok=True)
        authority = _trustme().CA()
        made = authority.issue_cert(*_HOSTS)
        made.private_key_and_cert_chain_pem.write_to_path(self._certificate)
        os.chmod(self._certificate, 0o600)
        authority.cert_pem.write_to_path(self.ca_file)

    @property
    def properties(self) -> dict[str, str]:
        """Of a broker's listener."""
        prefix, found = listener_prefix(self._listener), {}
        if self._has_tls:
            found[f"{prefix}ssl.keystore.type"] = "PEM"
            found[f"{prefix}ssl.keystore.location"] = self._certificate
        if self._users:
            by_password = {name: each for name, each in MECHANISMS.items() if each.client is not None}
            found[f"{prefix}{ENABLED_KEY}"] = ",".join(by_password)
            users = " ".join(f'user_{name}="{_escape(password)}"' for name, password in self._users.items())
            for name, each in by_password.items():
                if each.lists_users:
                    found[mechanism_key(self._listener, name, JAAS_KEY)] = f"{each.module} required {users};"
        return found

    @property
    def credentials(self) -> list[UserScramCredentialRecord]:
        """What the metadata log has to know of the users from its beginning."""
        return [credential(name, each, password) for name, password in self._users.items() for each in NUMBERS]


def _escape(password: str) -> str:
    """As a text in quotes of JAAS has it."""
    return "".join(_ESCAPED.get(char, char) for char in password)


def _trustme() -> ModuleType:
    """Imported when somebody wants certificates."""
    try:
        import trustme
    except ImportError:
        raise MissingDependencyError(
            "certificates for a cluster with tls=True need trustme: pip install 'kraftcore[certificates]'"
        ) from None
    return trustme
