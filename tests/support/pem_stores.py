"""A key, its certificate and the authority's, as PEM files that Kafka reads, too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


@dataclass(frozen=True)
class Stores:
    """PEM files.

    Attributes:
        node: key and certificate for loopback.
        ca: certificate of the authority.
    """

    node: str
    ca: str

    @property
    def trust(self) -> dict[str, object]:
        """Properties of a client."""
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}

    @property
    def properties(self) -> dict[str, object]:
        """Properties of a server."""
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.node, **self.trust}


def make_stores(folder: Path, name: str | None = None) -> Stores:
    """Write them, with a common name for the certificate's subject or without one. Kafka's keys have to be PKCS #8."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", "localhost", common_name=name)
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
    (folder / "node.pem").write_bytes(text + chain)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return Stores(str(folder / "node.pem"), str(folder / "ca.pem"))
