from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from kraftcore.transports.tcp import TlsFiles, readers


@dataclass(frozen=True)
class Certificates:
    """An authority of our own, and files that it made."""

    folder: Path
    authority: trustme.CA

    def issue(self, name: str, *hosts: str, unit: str | None = None) -> str:
        made = self.authority.issue_cert(*hosts, common_name=name, organization_unit_name=unit)
        path = self.folder / f"{name}.pem"  # no name here holds a slash
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    @property
    def ca(self) -> str:
        path = self.folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(path))
        return str(path)

    def files(self, name: str = "node", client_auth: str = "none") -> TlsFiles:
        return TlsFiles(self.issue(name, "localhost", "127.0.0.1", "::1"), None, self.ca, client_auth)


@pytest.fixture(scope="session")
def _authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certificates(tmp_path, _authority) -> Certificates:
    return Certificates(tmp_path, _authority)


@pytest.fixture
def together(monkeypatch):
    """However few connections there are, they are waited for together."""
    monkeypatch.setattr(readers, "FEW", 0)
