"""What one request asks for again and again: the answer may be a thousand times as long as the question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.controller.describe_configs import REPEATS_MAX
from kraftcore.protocol.error_codes import ErrorCode


class Repeats:
    """Counts what one request asks for."""

    def __init__(self) -> None:
        self._asked: Counter[Hashable] = Counter()

    def check(self, what: Hashable) -> None:
        """See that something is not told more than ``REPEATS_MAX`` times.

        Raises:
            RefusedError: INVALID_REQUEST.
        """
        self._asked[what] += 1
        if self._asked[what] > REPEATS_MAX:
            raise refused(ErrorCode.INVALID_REQUEST, f"{what} is asked for more than {REPEATS_MAX} times")
