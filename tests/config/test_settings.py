"""Declaring settings: what the docstring, the default's text and the checks are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

import pytest

from kraftcore.config import ConfigError
from kraftcore.config.properties import Properties
from kraftcore.config.settings import (
    Converted,
    Several,
    composed_mapping,
    declared,
    default_text,
    documented,
    flag,
    number,
    several,
    text,
)


@documented
@dataclass
class Example:
    """An example.

    Raises:
        ConfigError: never.
    """

    size_bytes: int = number(3 << 20, "example.size.bytes", "Its size.", low=2, low_in_file=5)
    pause_ms: int = number(90_000, "example.pause.ms", "A pause.")
    is_on: bool = flag(True, "example.on", "Whether it is on.")
    kind: str | None = text(None, "example.kind", "Its kind.", choices=("a", "b"))
    names: tuple[str, ...] = several("example.names", "Its names.")
    others: Any = composed_mapping("example.others.", "Others.")
    friends: Converted[list[str], tuple[str, ...]] = Converted((), Several("example.friends", "Its friends."))
    own: int = 5


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
    ]


def test_reading_and_checking() -> None:
    settings = declared(Example)
    assert "own" not in settings
    texts = {"example.size.bytes": "7", "example.on": "False", "example.names": " x, y", "example.friends": "z"}
    properties = Properties(texts, {}, "here")
    read = {name: setting.read(properties) for name, setting in settings.items() if setting.key in texts}
    assert read == {"size_bytes": 7, "is_on": False, "names": ("x", "y"), "friends": ("z",)}
    with pytest.raises(ConfigError, match="must be between 5 and 2147483647"):
        settings["size_bytes"].read(Properties({"example.size.bytes": "4"}, {}, "here"))
    settings["size_bytes"].check("size_bytes", 4)
    with pytest.raises(ConfigError, match=re.escape("size_bytes (example.size.bytes) is 1")):
        settings["size_bytes"].check("size_bytes", 1)
    settings["kind"].check("kind", None)
    with pytest.raises(ConfigError, match="it may be a or b"):
        settings["kind"].check("kind", "c")
