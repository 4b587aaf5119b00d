"""The metadata as far as it is committed, as an image of the broker's own.

In a node that is the active controller the controller's image runs ahead of what is committed; a broker may do only
what is. Both take their records from the same log.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftcore.core.batch import RecordBatch
from kraftcore.metadata import Delta, Image


class CommittedImage:
    """Keeps a metadata image of committed records; a `kraftcore.metadata.machine.Follower`.

    Args:
        on_change: called after each batch and snapshot.

    Attributes:
        image: the state of the cluster; another object after a snapshot.
        end_offset: all records below this offset are in the image.
        applied_offset: of the last record that took effect in the broker's partitions; -1: none did. Set by the
            publisher, which carries the changes out.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.image = Image()
        self.end_offset = 0
        self.applied_offset = -1
        self._on_change = on_change
        self._is_whole = True

    def applied(self, batch: RecordBatch) -> None:
        """Take over a committed batch of metadata records."""
        self.image.apply_values(batch.values(), batch.base_offset)
        self.end_offset = batch.next_offset
        self._on_change()

    def restored(self, image: Image, end_offset: int) -> None:
        """Take over a snapshot, which stands in place of all records below its end offset."""
        self.image = Image()
        self.image.apply_values(image.freeze().values())
        self.image.date_registrations(end_offset - 1)
        self.end_offset = end_offset
        self._is_whole = True
        self._on_change()

    def is_behind(self) -> bool:
        """Whether the image holds changes that did not take effect in the broker's partitions yet."""
        return self.applied_offset < self.end_offset - 1

    def take(self) -> tuple[Image, Delta | None]:
        """The image, and its changes since the last call; None: the image is new, and is to be read as a whole."""
        delta = None if self._is_whole else self.image.delta()
        self._is_whole = False
        self.image.forget_marks()
        self.image.mark(self.end_offset)
        return self.image, delta
