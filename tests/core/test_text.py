"""JSON text of messages against the JSON form that is made of Python objects, and doubles against Java's rules."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from dump_cases import random_struct
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.wire.text import java_double, to_json_text
from kraftcore.protocol.json_form import to_json_dict
from kraftcore.protocol.registry import MetadataRecordType, record_class


def spelled(value: Any) -> Any:
    """What is no number, as the text spells it; in lists and objects too."""
    if isinstance(value, dict):
        return {key: spelled(held) for key, held in value.items()}
    if isinstance(value, list):
        return [spelled(held) for held in value]
    if isinstance(value, float) and not math.isfinite(value):
        return java_double(value).strip('"')
    return value


@pytest.mark.parametrize("number", MetadataRecordType, ids=lambda number: number.name)
def test_says_the_same_as_the_form_made_of_objects(number: MetadataRecordType) -> None:
    rng = random.Random(number)
    cls = record_class(number)
    low, high = cls.schema.versions or (0, 0)
    for version in range(low, high + 1):
        for _ in range(10):
            message = random_struct(cls, version, rng)
            text = to_json_text(message, version).decode()
            expected = spelled(to_json_dict(message, version))
            shown = json.loads(text)
            assert shown == expected
            assert list(shown) == list(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1e-5, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.1, "0.1"),
        (1e21, "1.0E21"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        (math.nan, '"NaN"'),
    ],
)
def test_doubles_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_read_back(value: float) -> None:
    text = java_double(value)
    assert float(text) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    mantissa = text.partition("E")[0].lstrip("-")
    assert "." in mantissa
    assert ("E" in text) == (value != 0 and not 1e-3 <= abs(value) < 1e7)
