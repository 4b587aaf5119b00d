"""The names in certificates are told as Java tells them."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kraftcore.transports.tcp.subject import subject_of

CN, C, L, ST, ORG, OU = (
    NameOID.COMMON_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
)
# The parts of a subject from the first on, several attributes in one where there are several, and what Java tells.
SUBJECTS: list[tuple[list[dict[x509.ObjectIdentifier, str]], str]] = [
    ([{CN: "a"}], "CN=a"),
    (
        [{C: "US"}, {ST: "MD"}, {L: "x"}, {ORG: "Org, Inc."}, {OU: "a b"}, {CN: "n"}],
        "CN=n,OU=a b,O=Org\\, Inc.,L=x,ST=MD,C=US",
    ),
    (
        [
            {NameOID.DOMAIN_COMPONENT: "com"},
            {NameOID.DOMAIN_COMPONENT: "x"},
            {NameOID.USER_ID: "me"},
            {NameOID.STREET_ADDRESS: "s"},
            {CN: "n"},
        ],
        "CN=n,STREET=s,UID=me,DC=x,DC=com",
    ),
    ([{CN: "a"}, {NameOID.EMAIL_ADDRESS: "x@y.z"}], "1.2.840.113549.1.9.1=#16057840792e7a,CN=a"),
    ([{ORG: "a"}, {CN: "x", NameOID.USER_ID: "7"}], "CN=x+UID=7,O=a"),
    ([{CN: 'q"<>;=#,+'}], 'CN=q\\"\\<\\>\\;\\=\\#\\,\\+'),
    ([{CN: "  two  "}], "CN=\\ \\ two\\ \\ "),
    ([{CN: "   "}], "CN=\\ \\ \\ "),
    ([{ORG: "日本"}, {CN: "Füße"}], "CN=Füße,O=日本"),
]


def certificate_of(parts: list[dict[x509.ObjectIdentifier, str]]) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [
        x509.RelativeDistinguishedName([x509.NameAttribute(oid, text) for oid, text in part.items()]) for part in parts
    ]
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(x509.Name([x509.NameAttribute(CN, "ca")]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.fixture(scope="module")
def certificates() -> list[bytes]:
    return [certificate_of(parts) for parts, _ in SUBJECTS]


TOLD = [told for _, told in SUBJECTS]


def test_subjects(certificates):
    assert [subject_of(der) for der in certificates] == TOLD


def test_java_agrees(certificates, kafka, tmp_path):
    file = tmp_path / "certificates"
    file.write_text("".join(base64.b64encode(der).decode() + "\n" for der in certificates))
    theirs = [base64.b64decode(line[0]).decode() for line in kafka.interop("certificate-subjects", file)]
    assert theirs == TOLD


def test_what_is_no_certificate_is_a_value_error(certificates):
    draw = random.Random(20261122)
    refused = 0
    for der in certificates:
        for _ in range(300):
            spoilt = bytearray(der[: draw.randrange(len(der))] if draw.random() < 0.3 else der)
            for _ in range(draw.randrange(1, 4)):
                if spoilt:
                    spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
            try:
                subject_of(bytes(spoilt))
            except ValueError:
                refused += 1
    assert refused > 500
