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
    # What a leader put into the image before it was committed: one decision. `levels` only where it changed features.
    offset: int
    end: int
    values: Sequence[bytes]
    levels: Mapping[str, int] | None


class Follower(Protocol):
    """Who follows what is committed."""

    def applied(self, batch: RecordBatch) -> None:
        """A batch was committed; valid until this returns."""

    def restored(self, image: Image, end_offset: int) -> None:
        """A snapshot took the place of everything: what all records below ``end_offset`` come to."""


class MetadataMachine(StateMachine):
    """Keeps the image of a metadata log, for snapshots and for whoever reads it.

    It takes any log: one that holds something else than metadata records, or records that contradict each other, makes
    it stop following (`trouble` says why) and not the node, which goes on replicating the log.

    A leader runs ahead of what is committed: `lead()`, then `put()` for each decision; what `apply` brings of these
    later is there already. `follow()` takes the image back to what is committed.

    Attributes:
        image: of everything applied, and on a leader of what it put ahead. Another object after `restore`; empty once
            there is `trouble`.
        offset: everything below it is applied.
        levels: finalized features as far as they are committed.
        features_offset: of the last record of the batch that changed them last; -1 if that was in a snapshot.
        trouble: why the log is not followed any more; None while it is.
        followers: told of what is committed, after it was applied.
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
        """Take over the batch's records, unless they are in the image already."""
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

    # --- ahead of what is committed -----------------------------------------------------------------------------------

    def lead(self) -> None:
        """This node leads, and everything in the log is applied: from now on `put` goes ahead."""
        if self.trouble is None:
            self.image.run_ahead()
            self.image.mark(self.offset)
            self._is_ahead = True

    def put(self, values: Sequence[bytes], offset: int) -> None:
        """Take over records that are about to be appended, all or none.

        Args:
            values: encoded.
            offset: that the first one gets.

        Raises:
            MetadataRecordError, UnsupportedVersionError, WireError: one does not fit; the image is as before.
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
        """What was put at ``offset`` and behind it is not appended after all."""
        ahead = self._ahead
        if not ahead or ahead[-1].offset < offset:
            return
        while ahead and ahead[-1].offset >= offset:
            ahead.pop()
        self.image.roll_back(offset)

    def follow(self) -> None:
        """This node leads no more: back to what is committed."""
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
        """Back to what is committed; returns the offset of the mark below it."""
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
        """Records that somebody else appended while this node leads; those that were put ahead stand behind them."""
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
        """Write what the image comes to.

        Raises:
            SnapshotLaterError: a metadata transaction is under way: its records would be lost.
            LocalError: the log is not followed any more, or metadata.version is too low for all there is.
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
        """Begin anew with a snapshot's records."""
        self.image = Image()
        self.trouble = None
        self._is_ahead = False
        self._ahead.clear()
        self._take(values, -1)
        self.levels = dict(self.image.features)
        self.features_offset = -1

    def restored(self, end_offset: int) -> None:
        """As in Kafka, a registration that came with a snapshot counts as one at the snapshot's last offset."""
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
