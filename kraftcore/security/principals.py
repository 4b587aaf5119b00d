"""Who is behind a connection: how a certificate or a SASL identity becomes a principal such as ``User:alice``.

`StandardPrincipalBuilder` does it as Kafka's DefaultKafkaPrincipalBuilder; an application may bring another
`PrincipalBuilder`. ``ssl.principal.mapping.rules`` are read as Kafka's SslPrincipalMapper reads them (KIP-371).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kraftcore.errors import LocalError
from kraftcore.namespace import listing
from kraftcore.security.sasl.mechanism_interface import AuthenticationError, Identity

__all__ = [
    "ANONYMOUS",
    "AuthenticationContext",
    "Identity",
    "Principal",
    "PrincipalBuilder",
    "StandardPrincipalBuilder",
]
__dir__ = listing(__all__)

RULES_KEY: Final = "ssl.principal.mapping.rules"
USER: Final = "User"

# The grammar of SslPrincipalMapper: a rule, and rules with commas between them.
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_JAVA_GROUP: Final = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")  # a named group, not what looks behind
_ONE: Final = re.compile(_RULE)
_SEVERAL: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    Attributes:
        kind: ``User``, as in Kafka's ``User:alice``.
        name: the name.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Who comes without authentication."""


@dataclass(frozen=True, slots=True)
class AuthenticationContext:
    """What is known of whoever connected.

    Attributes:
        listener: name of the listener.
        peer: the other side's address, ``host:port``.
        certificate_subject: distinguished name of the verified client certificate as in RFC 2253, ``CN=a,OU=b``; None
            without one.
        identity: who proved with SASL to be that; None without SASL.
    """

    listener: str
    peer: str
    certificate_subject: str | None = None
    identity: Identity | None = None


class PrincipalBuilder(Protocol):
    """Says who it is. Any object with this method will do. It is called once for each authentication."""

    def build(self, context: AuthenticationContext) -> Principal:
        """The principal that authorization asks about, and logs name.

        Raises:
            AuthenticationError: it is nobody: the connection is closed.
        """
        ...


class PrincipalMapper:
    """``ssl.principal.mapping.rules``: the first rule that matches a distinguished name makes the name of a user of it.

    ``RULE:pattern/replacement/`` with a regular expression for the whole name, ``$1`` for its groups, and ``L`` or
    ``U`` behind it for lower and upper case; ``DEFAULT`` is the distinguished name as it is.

    Raises:
        LocalError: a rule that Kafka refuses, or whose regular expression Python does not know.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules = tuple(_Rule(*parts) for parts in _split(rules))
        self._text = rules

    def name(self, distinguished_name: str) -> str:
        """The name of a user.

        Raises:
            AuthenticationError: no rule applies.
        """
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise AuthenticationError(f"no rule of {RULES_KEY} ({self._text}) applies to {distinguished_name}")


class StandardPrincipalBuilder:
    """As Kafka's DefaultKafkaPrincipalBuilder: SASL before certificates, ``User:ANONYMOUS`` without either.

    Args:
        rules: ``ssl.principal.mapping.rules`` by name of a listener; DEFAULT for the others.

    Raises:
        LocalError: see `PrincipalMapper`.
    """

    def __init__(self, rules: Mapping[str, str] | None = None) -> None:
        self._mappers = {listener: PrincipalMapper(text) for listener, text in (rules or {}).items()}
        self._default = PrincipalMapper()

    def build(self, context: AuthenticationContext) -> Principal:
        """See `PrincipalBuilder`."""
        if context.identity is not None:
            return Principal(context.identity.kind, context.identity.name)
        if context.certificate_subject is not None:
            mapper = self._mappers.get(context.listener, self._default)
            return Principal(USER, mapper.name(context.certificate_subject))
        return ANONYMOUS


class _Rule:
    """One rule; without a pattern it is DEFAULT."""

    def __init__(self, pattern: str | None, replacement: str, case: str) -> None:
        self._case = case
        self._pattern: re.Pattern[str] | None = None
        if pattern is None:
            return
        try:
            self._pattern = re.compile(_JAVA_GROUP.sub("(?P<", pattern))
        except re.error as error:
            raise LocalError(f"{RULES_KEY}: {pattern!r} is no regular expression: {error}") from error
        self._replacement = _replacement(replacement, self._pattern)

    def apply(self, name: str) -> str | None:
        if self._pattern is None:
            return name
        if self._pattern.fullmatch(name) is None:
            return None
        # As Java's replaceAll: each match of a pattern that also matches a part is replaced.
        made = self._pattern.sub(self._expand, name)
        return made.lower() if self._case == "L" else made.upper() if self._case == "U" else made

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self._replacement)


def _split(rules: str) -> list[tuple[str | None, str, str]]:
    """Pattern, replacement and case of each rule; the pattern of DEFAULT is None. Empty rules do not count."""
    found: list[tuple[str | None, str, str]] = []
    for each in _SEVERAL.finditer(rules.strip()):
        text = each[1]
        match = _ONE.match(text)
        end = match.end() if match else 0
        if match is None or end != len(text):
            raise LocalError(f"{RULES_KEY}: Invalid rule: `{text}`, unmatched substring: `{text[end:]}`")
        if match[1] is not None:
            found.append((None, "", ""))
        elif match[2] is not None:
            found.append((match[2], match[3], match[4]))
    return found


def _replacement(text: str, pattern: re.Pattern[str]) -> list[str | int]:
    """A Java replacement as literals and numbers of groups. ``$4`` where there are fewer groups is meant literally."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            parts.append(text[at + 1 : at + 2])
            at += 2
        elif letter != "$":
            parts.append(letter)
            at += 1
        elif text[at + 1 : at + 2] == "{":
            name, close, _ = text[at + 2 :].partition("}")
            if not close or name not in pattern.groupindex:
                raise LocalError(f"{RULES_KEY}: the replacement {text!r} names a group that is not there")
            parts.append(pattern.groupindex[name])
            at += len(name) + 3
        else:
            digits = re.match("[0-9]+", text[at + 1 :])
            if digits is None or (not pattern.groups and digits[0][0] != "0"):
                raise LocalError(f"{RULES_KEY}: the replacement {text!r} has a $ without such a group: write \\$")
            group, used = int(digits[0][0]), 1
            while used < len(digits[0]) and group * 10 + int(digits[0][used]) <= pattern.groups:
                group = group * 10 + int(digits[0][used])
                used += 1
            if group <= pattern.groups:
                parts.append(group)
                at += 1 + used
            else:
                parts.append("$")
                at += 1
    return parts
