"""Types of configuration values: text in, value out, as Kafka's ``ConfigDef.parseType`` reads it."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TypeAlias

from kraftcore.errors import LocalError

Value: TypeAlias = "bool | int | float | str | list[str] | None"
"""A parsed value. None: the key is defined without a value."""

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII)
_WORDS = {sign + word: float(sign + word) for sign in ("", "+", "-") for word in ("NaN", "Infinity")}
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
# What Java's String.trim takes away.
_BLANK = "".join(map(chr, range(0x21)))


class ConfigValueError(LocalError):
    """A name or value that Kafka refuses; the text is Kafka's. Answered with INVALID_CONFIG."""


class ConfigType(IntEnum):
    """Type of a key; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @property
    def is_sensitive(self) -> bool:
        """Whether values are kept out of answers and messages."""
        return self is ConfigType.PASSWORD


_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


def invalid(name: str, value: str, reason: str | None = None) -> ConfigValueError:
    """``Invalid value x for configuration y: reason``."""
    text = f"Invalid value {value} for configuration {name}"
    return ConfigValueError(text if reason is None else f"{text}: {reason}")


def parse(name: str, text: str, kind: ConfigType) -> Value:
    """Read a value.

    Class names are taken as they are: Kafka looks for the class.

    Args:
        name: the key, for the message.
        text: the value as written.
        kind: the key's type.

    Raises:
        ConfigValueError: not of this type.
    """
    trimmed = text.strip(_BLANK)
    if kind is ConfigType.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind in _BITS:
        number = read_integer(trimmed, _BITS[kind])
        if number is None:
            raise invalid(name, text, f"Not a number of type {kind.name}")
        return number
    if kind is ConfigType.DOUBLE:
        real = _double(trimmed)
        if real is None:
            raise invalid(name, text, f"Not a number of type {kind.name}")
        return real
    if kind is ConfigType.LIST:
        return _COMMA.split(trimmed) if trimmed else []
    return trimmed


def read_integer(text: str, bits: int = 32) -> int | None:
    """Read a decimal number as Java's ``parseInt`` does: a sign and digits, nothing around them.

    Returns:
        None if it is not a number, or does not fit into so many bits.
    """
    if len(text) > 60 or _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _double(text: str) -> float | None:
    if text in _WORDS:
        return _WORDS[text]
    if found := _DECIMAL.fullmatch(text):
        return float(found[1])
    if found := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    return None


def show(value: Value) -> str:
    """A parsed value as Java prints it in messages: ``[a, b]``, ``true``, ``1.0E7``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return show_double(value)
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return str(value)


def show_double(value: float) -> str:
    """A double as Java's ``Double.toString`` prints it."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value!r}" if "e" not in repr(value) else f"{value:f}".rstrip("0")
    mantissa, _, exponent = f"{value!r}".partition("e")
    if exponent:
        digits, power = mantissa, int(exponent)
    else:
        sign = "-" if value < 0 else ""
        whole, _, fraction = mantissa.lstrip("-").partition(".")
        if whole == "0":
            power = -(len(fraction) - len(fraction.lstrip("0")) + 1)
            figures = fraction.lstrip("0")
        else:
            power, figures = len(whole) - 1, (whole + fraction).rstrip("0") or "0"
        digits = f"{sign}{figures[0]}.{figures[1:] or '0'}"
    return f"{digits if '.' in digits else digits + '.0'}E{power}"
