"""Names and texts, where each stands, and how numbers and flags are read from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraftcore.config.addresses import split_list
from kraftcore.config.errors import ConfigError
from kraftcore.config.given_file import read_given_file
from kraftcore.config.providers import resolve
from kraftcore.storage.properties import read_properties

NEVER: Final = 2**62
"""As a time or a size: so far away that it never comes, and that something can still be added to it."""
_JAVA_LONG_MAX = 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class Properties:
    """Properties and where they stand.

    Args:
        values: text by key.
        places: where a key was found, for messages; what is missing was given by the caller.
        source: what to name in messages about nothing in particular.
    """

    def __init__(self, values: Mapping[str, str], places: Mapping[str, str], source: str | None) -> None:
        self._values = values
        self._places = places
        self._source = source

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def names(self) -> list[str]:
        """All keys, in order of appearance."""
        return list(self._values)

    @property
    def all(self) -> dict[str, str]:
        """Every text by its key, without blanks around it."""
        return {key: value.strip() for key, value in self._values.items()}

    def get(self, key: str) -> str | None:
        """The text without blanks around it; None if it is missing."""
        value = self._values.get(key)
        return None if value is None else value.strip()

    def list(self, key: str) -> list[str]:
        """The entries of a list; none if it is missing."""
        return split_list(self._values.get(key, ""))

    def where(self, *keys: str) -> str | None:
        """Where the first of these keys stands, that stands anywhere."""
        return next((self._places[key] for key in keys if key in self._places), self._source)

    def error(self, reason: str, *keys: str) -> ConfigError:
        """An error that names the place."""
        return ConfigError(reason, keys, self.where(*keys))


def load_properties(path: str, replaced: Mapping[str, str]) -> Properties:
    """Read a file; ``replaced`` wins over what is in it. Variables of ``config.providers`` are looked up.

    Raises:
        ConfigError: a variable cannot be looked up.
        CorruptDataError: the file holds a broken escape.
        StorageError: it cannot be read.
    """
    values: dict[str, str] = {}
    places: dict[str, str] = {}
    for number, key, value in read_properties(read_given_file(path), path=path):
        values[key] = value
        places[key] = f"{path}:{number}"
    for key, value in replaced.items():
        values[key] = value
        places.pop(key, None)
    try:
        return Properties(resolve(values), places, path)
    except ConfigError as error:
        raise ConfigError(error.reason, error.settings, places.get(error.settings[0], path)) from None


def read_integer(properties: Properties, key: str, low: int, high: int) -> int:
    """A whole number in a range; ``ConfigError`` for anything else.

    Where the range ends at `NEVER` that is taken for what is above it, up to Java's greatest number, by which operators
    say "never".
    """
    text = properties.get(key) or ""
    if not _INTEGER.fullmatch(text):
        raise properties.error(f"{key} is {text!r}: it must be a whole number", key)
    number = int(text)
    if high == NEVER < number <= _JAVA_LONG_MAX:
        return NEVER
    if not low <= number <= high:
        raise properties.error(f"{key} is {text}: it must be between {low} and {high}", key)
    return number


def read_flag(properties: Properties, key: str) -> bool:
    """``true`` or ``false``; ``ConfigError`` for anything else."""
    text = (properties.get(key) or "").lower()
    if text not in ("true", "false"):
        raise properties.error(f"{key} is {text!r}: it must be true or false", key)
    return text == "true"
