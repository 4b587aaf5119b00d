from __future__ import annotations

import base64
import copy
import pickle
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.uuid import (
    LOST_DIRECTORY,
    METADATA_TOPIC_ID,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    ZERO_UUID,
    Uuid,
)
from kraftcore.errors import LocalError

RAW = st.binary(min_size=16, max_size=16)


@given(RAW)
def test_bytes_and_text(raw):
    value = Uuid(raw)
    assert bytes(value) == raw
    assert str(value) == base64.urlsafe_b64encode(raw).decode().rstrip("=")
    assert Uuid.from_string(str(value)) == Uuid.from_string(str(value) + "==") == value
    assert (value.high, value.low) == (int.from_bytes(raw[:8]), int.from_bytes(raw[8:]))
    assert eval(repr(value)) == value
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value
    assert hash(Uuid(raw)) == hash(value)


@given(RAW, RAW)
def test_order_is_javas(one, other):
    def key(raw):
        return int.from_bytes(raw[:8], signed=True), int.from_bytes(raw[8:], signed=True)

    left, right = Uuid(one), Uuid(other)
    assert (left < right) == (key(one) < key(other))
    assert (left <= right) == (key(one) <= key(other))
    assert (left > right) == (key(one) > key(other))
    assert (left >= right) == (key(one) >= key(other))
    assert (left == right) == (one == other)
    assert (left != right) == (one != other)


def test_other_types():
    assert bytes(16) != ZERO_UUID
    assert Uuid() != "AAAAAAAAAAAAAAAAAAAAAA"
    with pytest.raises(TypeError):
        _ = bytes(16) > ZERO_UUID
    with pytest.raises(TypeError):
        Uuid("text")
    with pytest.raises(AttributeError):
        ZERO_UUID.high = 3


def test_text_seen_in_kafka():
    assert str(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert bytes(Uuid.from_string("J8aAPcfdTvOxfcGcVFh0Rw")).hex() == "27c6803dc7dd4ef3b17dc19c54587447"
    # the four spare bits of the last character are ignored
    assert str(Uuid.from_string("abcdefghijklmnopqrstuv")) == "abcdefghijklmnopqrstug"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 21,
        "A" * 23,
        "A" * 24,
        "A" * 22 + "=",
        "A" * 22 + "===",
        "+" + "A" * 21,
        "A" * 21 + "/",
        "é" * 22,
        "A" * 21 + "\0",
    ],
)
def test_bad_text(text):
    with pytest.raises(LocalError, match="is not a uuid"):
        Uuid.from_string(text)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_bad_sizes(size):
    with pytest.raises(LocalError, match=f"16 bytes, not {size}"):
        Uuid(bytes(size))


def test_reserved_values():
    assert MIGRATING_DIRECTORY == ZERO_UUID == Uuid()
    assert [int.from_bytes(bytes(value)) for value in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)] == [
        0,
        1,
        2,
    ]
    assert Uuid((99).to_bytes(16)).is_reserved
    assert not Uuid((100).to_bytes(16)).is_reserved
    assert not Uuid((1 << 64).to_bytes(16)).is_reserved
    assert not ZERO_UUID
    assert METADATA_TOPIC_ID


def test_random_is_version_4_and_never_looks_like_an_option():
    source = random.Random(5)
    drawn = [Uuid.random(source.randbytes) for _ in range(500)]
    assert len(set(drawn)) == 500
    for value in drawn:
        standard = uuid.UUID(bytes=bytes(value))
        assert (standard.version, standard.variant) == (4, uuid.RFC_4122)
        assert not str(value).startswith("-")
        assert not value.is_reserved
    assert Uuid.random(random.Random(5).randbytes) == drawn[0]
    assert Uuid.random() != Uuid.random()


def test_random_draws_again():
    rejected = b"\xf8" + bytes(15)  # its text starts with "-"
    draws = [rejected, rejected, bytes(range(16))]
    assert str(Uuid(rejected)).startswith("-")
    assert bytes(Uuid.random(lambda size: draws.pop(0)[:size])).hex() == "000102030405460788090a0b0c0d0e0f"
    assert not draws
    with pytest.raises(LocalError, match=r"randbytes\(16\) returned 3 bytes"):
        Uuid.random(lambda size: b"abc")
