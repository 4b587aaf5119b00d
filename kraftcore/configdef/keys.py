"""The tables of keys, and a sentence about each, read from ``keys.tsv`` and ``texts.tsv`` when first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import get_data
from typing import NamedTuple

from kraftcore.configdef.checks import Check, Words, read_check
from kraftcore.configdef.types import ConfigType, Value, parse

COLUMNS = ("scope", "name", "type", "presence", "default", "visibility", "check", "update_mode", "synonyms")
"""Of ``keys.tsv``; ``-`` is nothing, a default has ``=`` in front."""


class Synonym(NamedTuple):
    """A key of a server's own configuration that a topic's or group's key falls back to.

    Attributes:
        name: the server's key.
        factor: what its value is multiplied by; above 1 for hours and minutes that stand for milliseconds.
    """

    name: str
    factor: int

    def convert(self, text: str) -> str:
        """A server's value as the other key's. Where a factor applies, what is no number counts as 0, as in Kafka."""
        if self.factor == 1:
            return text
        try:
            return str(int(text) * self.factor)
        except ValueError:
            return "0"


class ConfigKey(NamedTuple):
    """One key.

    Attributes:
        name: its name.
        type: of its values.
        default: as text; None if there is none.
        is_internal: left out of listings unless it is set.
        check: what values have to pass.
        update_mode: of a broker's key, how it can be changed while the broker runs: ``read-only``, ``per-broker``,
            ``cluster-wide``; empty for others.
        synonyms: keys of the server that apply where this one is not set, the first one set counts.
    """

    name: str
    type: ConfigType
    default: str | None
    is_internal: bool
    check: Check
    update_mode: str
    synonyms: tuple[Synonym, ...]

    def read(self, text: str) -> Value:
        """Read and check a value.

        Raises:
            ConfigValueError: it is refused.
        """
        value = parse(self.name, text, self.type)
        if isinstance(value, list) and isinstance(self.check, Words):
            value = list(dict.fromkeys(value))
        self.check(self.name, value)
        return value


class ConfigDef(Mapping[str, ConfigKey]):
    """The keys of one scope, in the order in which Kafka defines and therefore checks them.

    Args:
        rows: of the table, by the keys' names; read when first asked for.
    """

    def __init__(self, rows: Mapping[str, str]) -> None:
        self._rows = rows
        self._keys: dict[str, ConfigKey] = {}
        self._order = {name: place for place, name in enumerate(rows)}

    def __getitem__(self, name: str) -> ConfigKey:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _read(self._rows[name])
        return key

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """Read and check values of keys that are all known; of several bad ones the first defined is named.

        Raises:
            ConfigValueError: one is refused.
        """
        return {name: self[name].read(texts[name]) for name in sorted(texts, key=self._order.__getitem__)}

    def is_list(self, name: str) -> bool:
        """Whether APPEND and SUBTRACT make sense; not for unknown keys."""
        return name in self and self[name].type is ConfigType.LIST


@cache
def definitions(scope: str) -> ConfigDef:
    """The keys of a scope.

    Args:
        scope: ``topic``, ``broker``, ``broker-quota``, ``group``, ``client-metrics``, ``user-quota``, ``ip-quota``.

    Raises:
        KeyError: no such scope.
    """
    return ConfigDef(_tables()[scope])


@cache
def texts(scope: str) -> Mapping[str, str]:
    """What each key of a scope means: one sentence of our own, by the key's name.

    Args:
        scope: as of `definitions`.

    Raises:
        KeyError: no such scope.
    """
    return _texts()[scope]


@cache
def _texts() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in (get_data("kraftcore.configdef", "texts.tsv") or b"").decode().splitlines():
        scope, name, text = line.split("\t")
        found.setdefault(scope, {})[name] = text
    return found


@cache
def _tables() -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {}
    for line in (get_data("kraftcore.configdef", "keys.tsv") or b"").decode().splitlines():
        scope, name, _ = line.split("\t", 2)
        tables.setdefault(scope, {})[name] = line
    return tables


def _read(line: str) -> ConfigKey:
    row = dict(zip(COLUMNS, line.split("\t"), strict=True))
    return ConfigKey(
        name=row["name"],
        type=ConfigType[row["type"]],
        default=row["default"].removeprefix("=") if row["default"].startswith("=") else None,
        is_internal=row["visibility"] == "internal",
        check=read_check(row["check"]),
        update_mode=row["update_mode"].removeprefix("-"),
        synonyms=tuple(_synonyms(row["synonyms"])),
    )


def _synonyms(text: str) -> Iterator[Synonym]:
    for part in text.split(",") if text != "-" else ():
        name, _, factor = part.partition("*")
        yield Synonym(name, int(factor))
