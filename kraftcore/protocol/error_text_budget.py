"""Error messages of an answer that has one for each of many items."""

from __future__ import annotations

from typing import Final

TEXTS_MAX: Final = 1 << 20
"""Characters of all error messages in one answer."""
_STRING_BYTES = 0x7FFF  # of a string in versions that are not flexible


class ErrorTexts:
    """The error messages of one answer; those beyond ``TEXTS_MAX`` are left out, error codes say enough.

    A message may quote a name of 32,767 letters, and an item that gets it takes four bytes of a request: without a
    bound a small request would have an answer that no frame holds.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = TEXTS_MAX

    def take(self, text: str | None) -> str | None:
        """The message, or None if there is no room for it."""
        if text is None or len(text) > self._left or len(text.encode()) > _STRING_BYTES:
            return None
        self._left -= len(text)
        return text
