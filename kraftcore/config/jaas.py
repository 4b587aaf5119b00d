"""JAAS texts: login modules and their options in one property of Kafka's (``sasl.jaas.config``, KIP-85).

A text holds login modules: a class, a control flag, options, a semicolon.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

It is read as Kafka 4.3.1 reads it (JaasConfig over ``java.io.StreamTokenizer``): values of anything but letters,
digits, ``_``, ``-``, ``$`` and ``.`` stand in quotes, and so do those that begin with a digit, ``-`` or ``.``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftcore.config.errors import ConfigError

CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_DIGITS: Final = "0123456789"
_OCTAL: Final = "01234567"
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$")


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module.

    Attributes:
        module: name of its class.
        flag: one of ``CONTROL_FLAGS``.
        options: texts by name; never printed, as passwords are among them.
    """

    module: str
    flag: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str, what: str) -> tuple[JaasEntry, ...]:
    """Read login modules.

    Args:
        text: the value of the property.
        what: name of the property, for errors.

    Returns:
        The modules in order, at least one. An option that is given twice has its last value.

    Raises:
        ConfigError: Kafka would refuse the text. The error names the place, and repeats nothing that may be secret.
    """
    tokens = _Tokens(text, what)
    entries = []
    while (token := tokens.next()) is not None:
        entries.append(_entry(tokens, token))
    if not entries:
        raise ConfigError(f"{what} names no login module: write MODULE required OPTION=VALUE ...;", [what])
    return tuple(entries)


def parse_single_jaas(text: str, what: str) -> JaasEntry:
    """Read a text that must have one login module, as all of Kafka's properties must.

    Raises:
        ConfigError: see ``parse_jaas``; or there is more than one module.
    """
    entries = parse_jaas(text, what)
    if len(entries) > 1:
        raise ConfigError(f"{what} has {len(entries)} login modules: it must have one", [what])
    return entries[0]


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or a quoted text (``text``), a number (neither), or a sign of its own (``sign``)."""

    position: int
    text: str | None = None
    sign: str | None = None


def _entry(tokens: _Tokens, module: _Token) -> JaasEntry:
    if not module.text:
        raise tokens.error(module, "a login module's class is expected")
    flag = tokens.next()
    if flag is None:
        raise tokens.error(None, f"no control flag follows the login module: one of {', '.join(CONTROL_FLAGS)}")
    name = (flag.text or "").lower()
    if name not in CONTROL_FLAGS:
        raise tokens.error(flag, f"a control flag is expected: one of {', '.join(CONTROL_FLAGS)}")
    options: dict[str, str] = {}
    while (key := tokens.next()) is not None and key.sign != ";":
        if key.text is None:
            raise tokens.error(key, "an option's name is expected")
        equals = tokens.next()
        if equals is None or equals.sign != "=":
            raise tokens.error(equals, "'=' and a value are expected behind an option's name")
        value = tokens.next()
        if value is None or value.text is None:
            raise tokens.error(value, "an option's value is expected: put it in quotes unless it is a plain word")
        options[key.text] = value.text
    if key is None:
        raise tokens.error(None, "';' is missing at the end of a login module")
    return JaasEntry(module.text, name, options)


class _Tokens:
    """Splits a text as ``java.io.StreamTokenizer`` does, with Kafka's settings."""

    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._tokens = self._scan()

    def next(self) -> _Token | None:
        """The next token; None at the end."""
        return next(self._tokens, None)

    def error(self, token: _Token | None, reason: str) -> ConfigError:
        """Make an error that names the place of a token."""
        where = "at its end" if token is None else f"at character {token.position + 1}"
        return ConfigError(f"{self._what} {where}: {reason}", [self._what])

    def _scan(self) -> Iterator[_Token]:
        text, at = self._text, 0
        while at < len(text):
            char = text[at]
            if char <= " ":
                at += 1
            elif char == "/":
                at = self._after_comment(at)
            elif char in "\"'":
                value, end = self._quoted(at)
                yield _Token(at, value)
                at = end
            elif char in _DIGITS or char == "." or (char == "-" and self._is_number(at + 1)):
                end = self._after_number(at)
                yield _Token(at)
                at = end
            elif char != "-" and _is_word(char):
                end = at
                while end < len(text) and (_is_word(text[end]) or text[end] in _DIGITS or text[end] == "."):
                    end += 1
                yield _Token(at, text[at:end])
                at = end
            else:
                yield _Token(at, sign=char)
                at += 1

    def _is_number(self, at: int) -> bool:
        return at < len(self._text) and (self._text[at] in _DIGITS or self._text[at] == ".")

    def _after_number(self, at: int) -> int:
        text, has_dot = self._text, False
        if text[at] == "-":
            at += 1
        while at < len(text) and (text[at] in _DIGITS or (text[at] == "." and not has_dot)):
            has_dot = has_dot or text[at] == "."
            at += 1
        return at

    def _after_comment(self, at: int) -> int:
        """Skip a comment, which any slash begins: ``/*`` ends at ``*/``, others at the end of the line."""
        text = self._text
        if text.startswith("/*", at):
            end = text.find("*/", at + 2)
            return len(text) if end < 0 else end + 2
        while at < len(text) and text[at] not in "\r\n":
            at += 1
        return at

    def _quoted(self, at: int) -> tuple[str, int]:
        """Read a quoted text, which ends at the same quote or with its line."""
        text, quote, parts = self._text, self._text[at], []
        at += 1
        while at < len(text) and text[at] not in (quote, "\r", "\n"):
            char = text[at]
            at += 1
            if char == "\\" and at < len(text):
                char = text[at]
                at += 1
                if char in _OCTAL:
                    digits = char
                    while at < len(text) and text[at] in _OCTAL and len(digits) < (3 if digits[0] <= "3" else 2):
                        digits += text[at]
                        at += 1
                    char = chr(int(digits, 8))
                else:
                    char = _ESCAPES.get(char, char)
            parts.append(char)
        ended = at < len(text) and text[at] == quote
        return "".join(parts), at + ended


def _is_word(char: str) -> bool:
    """Whether a character may be in a word; ``-`` may, though not at the beginning."""
    return char in _LETTERS or char == "-" or char >= "\xa0"
