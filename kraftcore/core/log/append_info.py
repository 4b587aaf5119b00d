"""The result of an append as follower."""

from __future__ import annotations

from typing import NamedTuple


class AppendInfo(NamedTuple):
    """The result of an append as follower.

    Attributes:
        first_offset: of the first batch appended; the log's end when there was none.
        last_offset: of the last record appended; ``first_offset`` - 1 when there was none.
        batches: how many were appended.
        size: their bytes; less than the data's size if that ended in a partial batch or in batches of a later epoch.
    """

    first_offset: int
    last_offset: int
    batches: int
    size: int
