"""Values from elsewhere: ``${env:NAME}``, ``${file:PATH:KEY}`` and ``${dir:PATH:KEY}`` in properties (KIP-297).

``config.providers=secrets`` with ``config.providers.secrets.class`` names a provider, one of Kafka's three. Its value
replaces the variable as in Kafka 4.3.1 (ConfigTransformer): once, in all values but those of the providers themselves.
A variable of a provider that is not configured stays as it is; a variable for which its provider finds nothing is an
error here, where Kafka takes the variable's text for the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from kraftcore.config.addresses import split_list
from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.given_file import read_given_file
from kraftcore.errors import CorruptDataError
from kraftcore.storage.properties import parse_properties

PROVIDERS_KEY: Final = "config.providers"
_PREFIX: Final = PROVIDERS_KEY + "."
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

Provider = Callable[[str, str], str | None]
"""Takes a path and a key; returns the value, or None. Raises ValueError or OSError if it cannot look."""


def resolve(values: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with variables replaced.

    Raises:
        ConfigError: a provider is unknown or wrongly configured, or nothing is found for a variable. The error names
            the setting, never a value.
    """
    names = split_list(values.get(PROVIDERS_KEY, ""))
    providers = {name: _provider(name, values) for name in names}
    if not providers:
        return dict(values)
    return {
        key: text if key == PROVIDERS_KEY or key.startswith(_PREFIX) else _resolved(key, text, providers)
        for key, text in values.items()
    }


def _resolved(key: str, text: str, providers: Mapping[str, Provider]) -> str:
    def value(found: re.Match[str]) -> str:
        name, path, inner = found[1], found[2] or "", found[3]
        provider = providers.get(name)
        if provider is None:
            return found[0]
        try:
            given = provider(path, inner)
        except CorruptDataError:  # whose text repeats the line, perhaps a secret
            raise ConfigError(f"{key}: cannot look up {found[0]}: the file holds a broken \\u escape", [key]) from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{key}: cannot look up {found[0]}: {error}", [key]) from None
        if given is None:
            raise ConfigError(f"{key}: there is nothing for {found[0]}", [key])
        return given

    return _VARIABLE.sub(value, text)


def _provider(name: str, values: Mapping[str, str]) -> Provider:
    key = f"{_PREFIX}{name}.class"
    made = values.get(key, "").strip()
    make = _CLASSES.get(made)
    if make is None:
        known = ", ".join(_CLASSES)
        problem = f"is {made!r}, a class of Java's that nothing here stands for" if made else "is missing"
        raise ConfigError(f"{key} {problem}: there are {known}{suggestion(made, _CLASSES)}", [key])
    prefix = f"{_PREFIX}{name}.param."
    parameters = {each.removeprefix(prefix): text for each, text in values.items() if each.startswith(prefix)}
    try:
        return make(parameters)
    except ValueError as error:
        raise ConfigError(f"{prefix}{error}", [key]) from None


def _environment(parameters: Mapping[str, str]) -> Provider:
    pattern = parameters.get("allowlist.pattern", ".*")
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"allowlist.pattern is no regular expression: {error}") from None

    def look_up(path: str, key: str) -> str | None:
        if path:
            raise ValueError("environment variables have no path: write ${NAME:VARIABLE}")
        return os.environ.get(key) if allowed.fullmatch(key) else None

    return look_up


def _file(parameters: Mapping[str, str]) -> Provider:
    allowed = _allowed_paths(parameters)
    read: dict[str, dict[str, str]] = {}

    def look_up(path: str, key: str) -> str | None:
        allowed(path)
        if path not in read:
            # Java reads these as UTF-8, unlike the properties that name them.
            text = read_given_file(path).decode()
            escaped = "".join(each if ord(each) < 256 else _java_escape(each) for each in text)
            read[path] = parse_properties(escaped.encode("latin-1"), path=path)
        return read[path].get(key)

    return look_up


def _directory(parameters: Mapping[str, str]) -> Provider:
    allowed = _allowed_paths(parameters)

    def look_up(path: str, key: str) -> str | None:
        allowed(path)
        if not key or os.path.basename(key) != key or not os.path.isfile(os.path.join(path, key)):
            return None
        return read_given_file(os.path.join(path, key)).decode()

    return look_up


def _java_escape(letter: str) -> str:
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _allowed_paths(parameters: Mapping[str, str]) -> Callable[[str], None]:
    """Make a check of paths, which raises ValueError for a path that may not be read."""
    given = parameters.get("allowed.paths")
    paths = [os.path.normpath(each) for each in given.split(",")] if given else None
    for each in paths or ():
        if not os.path.isabs(each) or not os.path.exists(each):
            raise ValueError(f"allowed.paths: {each} is not absolute, or not there")

    def check(path: str) -> None:
        if not path:
            raise ValueError("a path is missing: write ${NAME:PATH:KEY}")
        normal = os.path.normpath(path)
        if paths is not None and not any(normal == each or normal.startswith(each.rstrip("/") + "/") for each in paths):
            raise ValueError("its path is not among allowed.paths")

    return check


_CLASSES: Final[dict[str, Callable[[Mapping[str, str]], Provider]]] = {
    _PACKAGE + "EnvVarConfigProvider": _environment,
    _PACKAGE + "FileConfigProvider": _file,
    _PACKAGE + "DirectoryConfigProvider": _directory,
}
