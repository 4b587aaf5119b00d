"""A limit on items that one request names repeatedly, since the answer may be a thousand times as long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.controller.describe_configs import REPEATS_MAX
from kraftcore.protocol.error_codes import ErrorCode


class Repeats:
    """Counts how often one request names each item."""

    def __init__(self) -> None:
        self._asked: Counter[Hashable] = Counter()

    def check(self, what: Hashable) -> None:
        """Refuse an item that the request has named ``REPEATS_MAX`` times already.

        Raises:
            RefusedError: INVALID_REQUEST.
        """
        self._asked[what] += 1
        if self._asked[what] > REPEATS_MAX:
            raise refused(ErrorCode.INVALID_REQUEST, f"{what} is asked for more than {REPEATS_MAX} times")
