"""Declaring settings: what the docstring, the default's text and the checks are made of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal

import pytest

from kraftcore.config import ConfigError
from kraftcore.config.properties import Properties
from kraftcore.config.settings import (
    Converted,
    Number,
    Several,
    composed_mapping,
    declared,
    default_text,
    documented,
    flag,
    number,
    settings,
    several,
    text,
)
from kraftcore.forms import fits, in_words


@documented
@settings()
class Example:
    """An example.

    Raises:
        ConfigError: never.
    """

    size_bytes: int = number(3 << 20, "example.size.bytes", "Its size.", low=2, low_in_file=5)
    pause_ms: int = number(90_000, "example.pause.ms", "A pause.")
    is_on: bool = flag(True, "example.on", "Whether it is on.")
    kind: Literal["a", "b"] | None = text(None, "example.kind", "Its kind.", choices=("a", "b"))
    names: Converted[Iterable[str], tuple[str, ...]] = several("example.names", "Its names.")
    others: Any = composed_mapping("example.others.", "Others.")
    friends: Converted[Iterable[str], tuple[str, ...]] = Converted((), Several("example.friends", "Its friends."))
    own: int = 5
    word: str | None = field(default=None, repr=False)


def test_the_docstring_tells_each_setting() -> None:
    text = re.sub(r"\s+", " ", Example.__doc__ or "")
    assert "An example. Attributes: size_bytes: ``example.size.bytes``; default 3145728 (3 MiB); 2 to 2^31-1." in text
    assert "is_on: ``example.on``; default true. Whether it is on. kind: ``example.kind``; a, b. Its kind." in text
    assert text.endswith("friends: ``example.friends``. Its friends. Raises: ConfigError: never.")


def test_defaults_in_larger_units_are_exact() -> None:
    assert [default_text(each) for each in fields(Example)] == [
        "3145728 (3 MiB)",
        "90000 (90 s)",
        "true",
        "none",
        "none",
        "none",
        "none",
        "5",
        "none",
    ]


def test_reading_and_checking() -> None:
    found = declared(Example)
    assert "own" not in found
    texts = {"example.size.bytes": "7", "example.on": "False", "example.names": " x, y", "example.friends": "z"}
    properties = Properties(texts, {}, "here")
    read = {name: setting.read(properties) for name, setting in found.items() if setting.key in texts}
    assert read == {"size_bytes": 7, "is_on": False, "names": ("x", "y"), "friends": ("z",)}
    with pytest.raises(ConfigError, match="must be between 5 and 2147483647"):
        found["size_bytes"].read(Properties({"example.size.bytes": "4"}, {}, "here"))
    for name, value in (("size_bytes", 4), ("kind", None), ("names", (name for name in "xy"))):
        Example(**{name: value})
    with pytest.raises(ConfigError, match=re.escape("size_bytes (example.size.bytes) is 1: it must be between 2")):
        Example(size_bytes=1)
    with pytest.raises(ConfigError, match=re.escape("kind (example.kind) is 'c': it must be a, b or None")):
        Example(kind="c")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=re.escape("own is 'x': it must be a whole number")):
        Example(own="x")  # type: ignore[arg-type]
    assert Example(names=(name for name in "xy")).names == ("x", "y")
    for wrong in ("x", [1], 5, None):
        with pytest.raises(ConfigError, match=re.escape("it must be a list, with a text for each entry")):
            Example(names=wrong)  # type: ignore[arg-type]


def test_one_line_shows_what_is_not_as_by_default() -> None:
    assert repr(Example()) == "Example()"
    assert repr(Example(size_bytes=5, names=["x"], word="secret")) == "Example(size_bytes=5, names=['x'])"
    with pytest.raises(ConfigError) as caught:
        Example(word=b"secret")  # type: ignore[arg-type]
    assert str(caught.value) == "word is a bytes: it must be a text or None"


@pytest.mark.parametrize(
    ("form", "words", "fitting", "other"),
    [
        (int, "a whole number", [0, -3], [True, 1.0, "1", None]),
        (bool, "true or false", [True], [1, "true"]),
        (str | None, "a text or None", ["x", None], [b"x", 1]),
        (Literal["a", "b"] | None, "a, b or None", ["a", None], ["c", 1]),
        (str | os.PathLike[str], "a text or a path", ["x", Path("x")], [b"x", 1]),
        (tuple[str, ...], "a list, with a text for each entry", [(), ("x",)], [["x"], "x", (1,)]),
        (Mapping[str, int], "a dict, with a whole number by a text", [{}, {"x": 1}], [{"x": "y"}, {1: 1}, []]),
        (Number | None, "a Number or None", [Number("k", "t"), None], [5]),
    ],
)
def test_forms(form: Any, words: str, fitting: list[object], other: list[object]) -> None:
    assert in_words(form) == words
    assert all(fits(each, form) for each in fitting)
    assert not any(fits(each, form) for each in other)
