"""Checks of what programs give: numbers of things, and times."""

from __future__ import annotations

from math import inf

from kraftcore.errors import LocalError


def whole(what: str, value: int, least: int) -> int:
    """The value, which must be an int of at least so much.

    Raises:
        LocalError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise LocalError(f"{what} is {value!r}: give an int, {least} or more")
    return value


def seconds(what: str, value: float) -> float:
    """The value, which must be a number of seconds to wait.

    Raises:
        LocalError: it is not.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise LocalError(f"{what} is {value!r}: give a number of seconds, 0 or more, or leave it out to wait for ever")
    return value


def period(what: str, value: float) -> float:
    """The value, which must be a time that passes again and again, in seconds.

    Raises:
        LocalError: it is not.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < inf:
        raise LocalError(f"{what} is {value!r}: give a number of seconds larger than 0")
    return value


def text(what: str, value: str) -> str:
    """The value, which must be a text.

    Raises:
        LocalError: it is not.
    """
    if not isinstance(value, str):
        raise LocalError(f"{what} is text, and {value!r} is {type(value).__name__}")
    return value
