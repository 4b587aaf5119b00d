"""Log lines about peers: hostile ones must not fill the disk with them."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]

_PERIOD_S = 10.0
_LINES_A_PERIOD = 5
_LONGEST_S = 640.0  # between two lines that say the same, when it goes on and on
_KINDS = 1000  # addresses are part of some; forgetting what was said costs a few lines


class Complaints:
    """At most five lines of one kind in ten seconds; the next says how many were left out.

    A line like the one before comes after ten seconds, then after 20, 40 and so on up to 640, while it goes on.

    Args:
        log: takes a line.
        now: seconds of any clock that never falls.
    """

    def __init__(self, log: Log, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        # By kind: since when, lines, left out, the last line, how long a line like it is left out.
        self._kinds: dict[str, tuple[float, int, int, str, float]] = {}
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
        began, count, left_out, last, pause_s = self._kinds.get(kind, (now, 0, 0, "", 0.0))
        waited_s = now - began
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        if waited_s < pause_s if text == last else waited_s < _PERIOD_S and count >= _LINES_A_PERIOD:
            self._kinds[kind] = (began, count, left_out + 1, last, pause_s)
            return
        goes_on = text == last and waited_s < 2 * pause_s
        if goes_on or waited_s >= _PERIOD_S:
            began, count = now, 0
        pause_s = min(2 * pause_s, _LONGEST_S) if goes_on else _PERIOD_S
        self._kinds[kind] = (began, count + 1, 0, text, pause_s)
        self._log(text if not left_out else f"{text} (and {left_out} more like it before)")
