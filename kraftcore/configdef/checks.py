"""Validators of configuration values, with Kafka's words for what they refuse.

Source: ``ConfigDef``'s nested classes in Kafka 4.3.1, and the few validators that other classes bring.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kraftcore.configdef.types import ConfigValueError, Value, invalid, show


class Check(Protocol):
    """What a key's values have to pass."""

    def __call__(self, name: str, value: Value) -> None:
        """Raise ConfigValueError if the parsed value is refused."""


class Range(NamedTuple):
    """A number between two bounds, both inclusive; None where there is no bound. The texts are for messages."""

    least: float | None
    most: float | None
    least_text: str
    most_text: str

    def __call__(self, name: str, value: Value) -> None:
        """Refuse null and what is out of range."""
        if not isinstance(value, int | float):
            raise invalid(name, show(value), "Value must be non-null")
        if self.least is not None and value < self.least:
            raise invalid(name, show(value), f"Value must be at least {self.least_text}")
        if self.most is not None and value > self.most:
            raise invalid(name, show(value), f"Value must be no more than {self.most_text}")


class OneOf(NamedTuple):
    """One of some words."""

    words: tuple[str, ...]

    def __call__(self, name: str, value: Value) -> None:
        """Refuse any other word, and null."""
        if value not in self.words:
            raise invalid(name, show(value), f"String must be one of: {', '.join(self.words)}")


class OneOfAnyCase(NamedTuple):
    """One of some words, in upper or lower case."""

    words: tuple[str, ...]

    def __call__(self, name: str, value: Value) -> None:
        """Refuse any other word, and null."""
        if not isinstance(value, str) or value.upper() not in self.words:
            raise invalid(name, show(value), f"String must be one of (case insensitive): {', '.join(self.words)}")


class Words(NamedTuple):
    """A list of different words, each out of some, or any if there are none.

    Duplicates are no error: reading a whole configuration drops them first, as Kafka does.
    """

    words: tuple[str, ...]
    may_be_empty: bool
    may_be_null: bool

    def __call__(self, name: str, value: Value) -> None:
        """Refuse a null or empty list where it may not be, empty elements, and other words."""
        if value is None:
            if self.may_be_null:
                return
            raise ConfigValueError(f"Configuration '{name}' values must not be null.")
        words = value if isinstance(value, list) else [show(value)]
        if not words and not self.may_be_empty:
            allowed = f"[{', '.join(self.words)}]" if self.words else "any non-empty value"
            raise ConfigValueError(f"Configuration '{name}' must not be empty. Valid values include: {allowed}")
        one_of = OneOf(self.words)
        for word in words:
            if not word:
                raise ConfigValueError(f"Configuration '{name}' values must not be empty.")
            if self.words:
                one_of(name, word)


def not_empty(name: str, value: Value) -> None:
    """Refuse the empty string."""
    if value == "":
        raise invalid(name, "", "String must be non-empty")


def not_null(name: str, value: Value) -> None:
    """Refuse null."""
    if value is None:
        raise invalid(name, "null", "entry must be non null")


def gzip_level(name: str, value: Value) -> None:
    """A compression level of gzip: 1 to 9, or -1 for the default."""
    if value is None:
        raise invalid(name, "null", "Value must be non-null")
    if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
        raise invalid(name, show(value), "Value must be between 1 and 9 or equal to -1")


_REPLICA = re.compile(r"([0-9]+:[0-9]+)?", re.ASCII)


def throttled_replicas(name: str, value: Value) -> None:
    """``*``, or a list of ``partition:broker``."""
    parts = [part.strip() for part in value] if isinstance(value, list) else []
    if not all(_REPLICA.fullmatch(part) for part in parts) and "".join(parts) != "*":
        shape = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        raise invalid(
            name, show(value), f"{name} must be the literal '*' or a list of replicas in the following format: {shape}"
        )


_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_SECONDS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


def share_offset_reset(name: str, value: Value) -> None:
    """``earliest``, ``latest``, or ``by_duration:`` and an ISO 8601 duration that is not negative (KIP-932)."""
    if value in ("earliest", "latest") or (isinstance(value, str) and _is_duration(value)):
        return
    raise invalid(
        name,
        show(value),
        f"Invalid value `{show(value)}` for configuration {name}. The value must be either 'earliest', 'latest' or of "
        "the format 'by_duration:<PnDTnHnMn.nS>'.",
    )


def _is_duration(text: str) -> bool:
    found = _DURATION.fullmatch(text.removeprefix("by_duration:"))
    if not text.startswith("by_duration:") or found is None:
        return False
    parts = {unit: found[unit] for unit in _SECONDS if found[unit] is not None}
    if not parts or any(len(number) > 20 for number in parts.values()):
        return False
    total = sum(int(number) * _SECONDS[unit] for unit, number in parts.items()) * (-1 if found["sign"] == "-" else 1)
    below_zero = (found["seconds"] or "").startswith("-") != (found["sign"] == "-")
    fraction = (found["fraction"] or "").strip("0") != ""
    return 0 <= total < 1 << 63 and not (fraction and total == 0 and below_zero)


def anything(name: str, value: Value) -> None:
    """Every value of the type."""


_NAMED: dict[str, Check] = {
    "-": anything,
    "NonEmptyString": not_empty,
    "NonNullValidator": not_null,
    "lambda [1,...,9] or -1": gzip_level,
    "ThrottledReplicaListValidator": throttled_replicas,
    "ShareGroupAutoOffsetResetStrategy": share_offset_reset,
    # Of a node's own file; whoever reads that (kraftcore.config) checks addresses and voters.
    "ControllerQuorumVotersValidator": anything,
    "ControllerQuorumBootstrapServersValidator": anything,
}


def read_check(text: str) -> Check:
    """Make a validator from its words in ``keys.tsv``.

    Raises:
        KeyError: a validator that is not known here.
    """
    kind, *words = text.split(" ")
    maker = _MADE.get(kind)
    return _NAMED[text] if maker is None else maker(words)


def _range(words: list[str]) -> Check:
    least, most = words
    return Range(
        None if least == "-" else float(least), None if most == "-" else float(most), least_text=least, most_text=most
    )


_MADE: dict[str, Callable[[list[str]], Check]] = {
    "range": _range,
    "string": lambda words: OneOf(tuple(words)),
    "caseless-string": lambda words: OneOfAnyCase(tuple(words)),
    "list": lambda words: Words(tuple(words[2:]), may_be_empty=words[0] == "empty", may_be_null=words[1] == "null"),
}
