"""Log lines about peers: hostile ones must not fill the disk with them."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]

_PERIOD_S = 10.0
_LINES_A_PERIOD = 5
_KINDS = 1000  # addresses are part of some; forgetting what was said costs a few lines


class Complaints:
    """At most five lines of one kind in ten seconds, none like the one before; the next says how many were left out.

    Args:
        log: takes a line.
        now: seconds of any clock that never falls.
    """

    def __init__(self, log: Log, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._kinds: dict[str, tuple[float, int, int, str]] = {}  # since when, lines, left out, last line
        self._said: set[str] = set()

    def is_first(self, about: str) -> bool:
        """Whether nobody asked about this before: for what is to be said once for each peer, not once a try."""
        if about in self._said:
            return False
        if len(self._said) >= _KINDS:
            self._said.clear()
        self._said.add(about)
        return True

    def __call__(self, kind: str, text: str) -> None:
        """Log ``text`` unless too many of its ``kind`` (a few words; there are few kinds) came before."""
        now = self._now()
        began, count, left_out, last = self._kinds.get(kind, (now, 0, 0, ""))
        if now - began >= _PERIOD_S:
            began, count, last = now, 0, ""
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        if count >= _LINES_A_PERIOD or text == last:
            self._kinds[kind] = (began, count, left_out + 1, last)
            return
        self._kinds[kind] = (began, count + 1, 0, text)
        self._log(text if not left_out else f"{text} (and {left_out} more like it before)")
