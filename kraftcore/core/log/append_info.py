"""What an append as follower did."""

from __future__ import annotations

from typing import NamedTuple


class AppendInfo(NamedTuple):
    """What an append as follower did.

    Attributes:
        first_offset: of the first batch appended; the log's end when there was none.
        last_offset: of the last record appended; ``first_offset`` - 1 when there was none.
        batches: how many were appended.
        size: their bytes. Less than what was given if that ended in a partial batch or in batches of a later epoch.
    """

    first_offset: int
    last_offset: int
    batches: int
    size: int
