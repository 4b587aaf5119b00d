"""The image as a replicated state machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kraftcore.core.batch import RecordBatch
from kraftcore.errors import LocalError, RemoteProtocolError, SnapshotLaterError
from kraftcore.metadata.image import Image
from kraftcore.state_machine import SnapshotSink, StateMachine


class _Appended(NamedTuple):
    # One decision that a leader put into the image before it was committed. `levels` only where it changed features.
    offset: int
    end: int
    values: Sequence[bytes]
    levels: Mapping[str, int] | None


class Follower(Protocol):
    """A reader that follows the committed records."""

    def applied(self, batch: RecordBatch) -> None:
        """Take a committed batch, which is valid until this returns."""

    def restored(self, image: Image, end_offset: int) -> None:
        """Take the image of a snapshot, which replaces all records below ``end_offset``."""


class MetadataMachine(StateMachine):
    """Keeps the image of a metadata log, for snapshots and for readers.

    Any log is accepted: if it has values that are not metadata records, or records that contradict each other, the
    machine stops following it (`trouble` says why), while the node goes on replicating the log.

    A leader's image runs ahead of the committed records: `lead()`, then `put()` for each decision; when `apply` brings
    these records later they are in the image already. `follow()` takes the image back to the committed records.

    Attributes:
        image: of all applied records, and on a leader of those it put ahead. Another object after `restore`; empty
            once there is `trouble`.
        offset: everything below it is applied.
        levels: committed finalized features.
        features_offset: of the last record of the batch that changed them last; -1 if that was in a snapshot.
        trouble: why the log is not followed any more; None while it is.
        followers: told of committed batches, after they were applied.
    """

    def __init__(self) -> None:
        self.image = Image()
        self.offset = 0
        self.levels: Mapping[str, int] = {}
        self.features_offset = -1
        self.trouble: str | None = None
        self.followers: list[Follower] = []
        self._is_ahead = False
        self._ahead: deque[_Appended] = deque()

    def apply(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Apply the batch's records, unless they are in the image already."""
        base, end = batch.base_offset, batch.next_offset
        if self._ahead and self._ahead[0].offset <= base < self._ahead[0].end:
            self._commit(end)
        elif self._is_ahead and self.trouble is None:
            self._take_among(batch.values(), base, end)
        else:
            self._take(batch.values(), base)
            self._note_levels(self.image.features.snapshot(), end)
        self.offset = end
        for follower in self.followers:
            follower.applied(batch)
        return None

    def _note_levels(self, levels: Mapping[str, int], end: int) -> None:
        if levels != self.levels:
            self.levels = dict(levels)
            self.features_offset = end - 1

    # --- ahead of the committed records -------------------------------------------------------------------------------

    def lead(self) -> None:
        """Let `put` run ahead from now on: this node leads, and everything in the log is applied."""
        if self.trouble is None:
            self.image.run_ahead()
            self.image.mark(self.offset)
            self._is_ahead = True

    def put(self, values: Sequence[bytes], offset: int) -> None:
        """Apply records that are about to be appended, all or none.

        Args:
            values: encoded records.
            offset: that the first record gets.

        Raises:
            MetadataRecordError, UnsupportedVersionError, WireError: a record does not fit; the image is as before.
        """
        image = self.image
        image.mark(offset)
        before = image.features.snapshot()
        try:
            image.apply_values(values, offset)
        except RemoteProtocolError:
            image.roll_back(offset)
            raise
        levels = image.features.snapshot()
        end = offset + len(values)
        image.mark(end)
        self._ahead.append(_Appended(offset, end, values, None if levels == before else levels))

    def take_back(self, offset: int) -> None:
        """Take back the records put at ``offset`` and behind it, for they are not appended after all."""
        ahead = self._ahead
        if not ahead or ahead[-1].offset < offset:
            return
        while ahead and ahead[-1].offset >= offset:
            ahead.pop()
        self.image.roll_back(offset)

    def follow(self) -> None:
        """Go back to the committed records: this node does not lead any more."""
        if not self._is_ahead:
            return
        self._is_ahead = False
        if self.trouble is None:
            offset = self.image.follow()
            self._take_committed_part(offset)
        self._ahead.clear()

    def _commit(self, end: int) -> None:
        ahead = self._ahead
        while ahead and ahead[0].end <= end:
            done = ahead.popleft()
            if done.levels is not None:
                self._note_levels(done.levels, end)
        self.image.committed(end)

    def _take_committed_part(self, offset: int | None) -> None:
        # A decision may lie in several batches, of which the first are committed.
        if offset is not None and self._ahead and self._ahead[0].offset < self.offset:
            first = self._ahead[0]
            self.image.apply_values(first.values[: self.offset - first.offset], first.offset)

    def _rewind(self) -> int:
        """Go back to the committed records; returns the offset of the mark below them."""
        mark = self.image.roll_back()
        self._take_committed_part(mark)
        return mark

    def _replay(self, mark: int) -> None:
        self.image.roll_back(mark)
        for each in self._ahead:
            self.image.mark(each.offset)
            self.image.apply_values(each.values, each.offset)
            self.image.mark(each.end)

    def _take_among(self, values: Iterable[bytes | None], base: int, end: int) -> None:
        """Apply records appended by another caller while this node leads; records put ahead lie behind them."""
        try:
            self.image.roll_back()
            self.image.apply_values(values, base)
            self._note_levels(self.image.features.snapshot(), end)
            self.image.mark(end)
            self.image.committed(end)
            self._replay(end)
        except RemoteProtocolError as error:
            self._give_up(error)

    def snapshot(self, sink: SnapshotSink) -> None:
        """Write the image's records.

        Raises:
            SnapshotLaterError: a metadata transaction is under way: its records would be lost.
            LocalError: the log is not followed any more, or metadata.version is too low for all of the state.
        """
        if self.trouble is not None:
            raise LocalError(f"only metadata records can be summed up: {self.trouble}")
        mark = self._rewind() if self._is_ahead else None
        try:
            if self.image.in_transaction:
                raise SnapshotLaterError("a metadata transaction is under way")
            sink.append_later(self.image.freeze().values())
        finally:
            if mark is not None:
                self._replay(mark)

    def restore(self, values: Iterable[bytes]) -> None:
        """Replace the image by that of a snapshot's records."""
        self.image = Image()
        self.trouble = None
        self._is_ahead = False
        self._ahead.clear()
        self._take(values, -1)
        self.levels = dict(self.image.features)
        self.features_offset = -1

    def restored(self, end_offset: int) -> None:
        """Set the offset of the snapshot's registrations to its last offset, as Kafka does."""
        self.offset = end_offset
        self.image.date_registrations(end_offset - 1)
        for follower in self.followers:
            follower.restored(self.image, end_offset)

    def _take(self, values: Iterable[bytes | None], offset: int) -> None:
        if self.trouble is not None:
            return
        try:
            self.image.apply_values(values, offset)
        except RemoteProtocolError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.trouble = str(error)
        self.image = Image()
        self._is_ahead = False
        self._ahead.clear()
