"""SCRAM credentials against the exchange that RFC 7677 prints, and what cannot be one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.errors import LocalError
from kraftcore.storage.scram import ITERATIONS_MAX, ITERATIONS_MIN, parse_scram

SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
PENCIL = f"SCRAM-SHA-256=[name=user,password=pencil,salt={SALT},iterations=4096]"


def test_a_credential_takes_the_rfcs_proof_and_gives_its_signature():
    record = parse_scram(PENCIL)
    nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    messages = f"n=user,r=rOprNGfwEbeRWgbNEkqO,{nonce},s={SALT},i=4096,c=biws,{nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(record.stored_key, messages, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key
    server_signature = base64.b64encode(hmac.digest(record.server_key, messages, "sha256"))
    assert server_signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (record.name, record.mechanism, record.iterations) == ("user", 1, 4096)
    assert base64.b64encode(record.salt).decode() == SALT


@pytest.mark.parametrize(("mechanism", "number", "digest"), [("256", 1, "sha256"), ("512", 2, "sha512")])
def test_a_salted_password_is_as_good_as_the_password(mechanism, number, digest):
    salted = hashlib.pbkdf2_hmac(digest, b"secret", b"salt", 5000)
    given = base64.b64encode(salted).decode().rstrip("=")  # Java's decoder wants no padding
    start = f'SCRAM-SHA-{mechanism}=[name="alice",salt=c2FsdA==,iterations=5000'
    record = parse_scram(f"{start},saltedpassword={given}]")
    assert record == parse_scram(f"{start},password=secret]")
    assert (record.name, record.mechanism) == ("alice", number)
    assert len(record.stored_key) == len(record.server_key) == hashlib.new(digest).digest_size


@given(st.binary(min_size=17, max_size=17))
def test_a_drawn_salt_can_be_printed(drawn):
    record = parse_scram("SCRAM-SHA-256=[name=a,password=b]", randbytes=lambda size: drawn[:size])
    text = record.salt.decode()
    assert int(text, 36) == int.from_bytes(drawn) >> 6  # 130 bits, as Kafka draws them
    assert text == text.lower()
    assert record.iterations == ITERATIONS_MIN


def test_salts_differ():
    assert len({parse_scram("SCRAM-SHA-256=[name=a,password=b]").salt for _ in range(5)}) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign"),
        ("SCRAM-SHA-1=[name=a,password=b]", "SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-256=name=a,password=b]", r"to start with \["),
        ("SCRAM-SHA-256=[name=a,password=b", r"to end with \]"),
        ("SCRAM-SHA-256=[name]", "No equals sign found in SCRAM component: name"),
        ("SCRAM-SHA-256=[password=b]", "supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,salt=!,password=b]", "Failed to decode given salt: !"),
        ("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=Y]", "Failed to decode given saltedPassword"),
        ("SCRAM-SHA-256=[name=a,password=b,colour=c,art=d]", "Unknown SCRAM configurations: art, colour"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=many]", "iterations count: many"),
        (f"SCRAM-SHA-256=[name=a,password=b,iterations={ITERATIONS_MIN - 1}]", ">= 4096 .* SCRAM_SHA_256"),
        (f"SCRAM-SHA-512=[name=a,password=b,iterations={ITERATIONS_MAX + 1}]", "<= 16384 .* SCRAM_SHA_512"),
    ],
)
def test_what_is_no_credential_is_refused(text, message):
    with pytest.raises(LocalError, match=message):
        parse_scram(text)


@given(st.text())
def test_any_text_is_a_credential_or_refused(text):
    for candidate in (text, f"SCRAM-SHA-256=[{text}]"):
        with suppress(LocalError):
            parse_scram(candidate)


def test_the_password_is_nowhere_in_the_record():
    record = parse_scram("SCRAM-SHA-512=[name=a,password=verysecret]")
    assert "verysecret" not in repr(record)
