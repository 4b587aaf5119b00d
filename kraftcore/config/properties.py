"""Properties with the places where they were found, and reading of numbers and flags."""

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
"""A time or size that is never reached, and small enough to add to it."""
_JAVA_LONG_MAX = 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class Properties:
    """Properties and the places where they were found.

    Args:
        values: text by key.
        places: where a key was found, for messages; a key that is not in it was given by the caller.
        source: named in messages about missing properties.
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
        """The entries of a list; empty if it is missing."""
        return split_list(self._values.get(key, ""))

    def where(self, *keys: str) -> str | None:
        """The place of the first of these keys that has one."""
        return next((self._places[key] for key in keys if key in self._places), self._source)

    def error(self, reason: str, *keys: str) -> ConfigError:
        """Make an error that names the place of the first of these keys."""
        return ConfigError(reason, keys, self.where(*keys))


def load_properties(path: str, replaced: Mapping[str, str]) -> Properties:
    """Read a file, with ``replaced`` in place of its properties. Variables of ``config.providers`` are looked up.

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

    If ``high`` is `NEVER`, larger numbers, up to Java's greatest one, by which operators mean "never", become `NEVER`.
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
