"""The floor: what is known to be committed, kept over restarts. The log is never truncated below it.

A leader that lacks committed records exists only where disks were lost, or where another quorum has the same cluster
id. Then the records here may be the only copy. So the replica refuses to truncate below its floor, raises an alarm
(``Effects.alarms``) and keeps its log. It does not restart its fetch timer for that leader's answer: the timer runs
out, and another leader may be found.

The floor is written `LAG_MS` after the high watermark rose, with each snapshot, and at every rise once the replica
shuts down. So after a power cut the records of the last `LAG_MS` may not be protected.

Source: ours.
"""

from __future__ import annotations

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.raft.state import RaftState

LAG_MS = 2_000
_NEVER = 1 << 62


class Floor:
    """Keeps, over restarts, the offset below which everything is known to be committed.

    Args:
        state: of the replica.
        saved: the floor that was written last; None: there is none.

    Attributes:
        known: everything below the offset is committed, and the record before it is of the epoch; None: nothing.
        due_ms: when the floor is to be written next; far in the future while there is nothing to write.
    """

    def __init__(self, state: RaftState, saved: OffsetAndEpoch | None) -> None:
        self._state = state
        self._is_eager = False
        self.known = saved
        self.due_ms = _NEVER

    @property
    def offset(self) -> int:
        """Everything below is committed, by the last floor or by what this process has seen; 0: nothing is known."""
        known = 0 if self.known is None else self.known.offset
        return max(known, self._state.high_watermark or 0)

    def rose(self) -> None:
        """Have the risen high watermark written `LAG_MS` later."""
        if self.due_ms == _NEVER:
            self.due_ms = self._state.now_ms + (0 if self._is_eager else LAG_MS)

    def hurry(self, *, until_the_end: bool = False) -> None:
        """Have the high watermark written with this event's effects.

        Args:
            until_the_end: write every later rise at once, too.
        """
        self._is_eager = self._is_eager or until_the_end
        self.due_ms = self._state.now_ms

    def renew(self) -> None:
        """Put the high watermark, as far as the log is durable, into the effects as the new floor."""
        state = self._state
        self.due_ms = _NEVER
        risen = state.high_watermark or 0
        offset = min(risen, state.log.flushed_offset)
        if offset < risen:  # the rest is written when it is durable
            self.due_ms = state.now_ms + LAG_MS
        if offset > (0 if self.known is None else self.known.offset):
            epoch = self._epoch_before(offset)
            if epoch is not None:
                self.known = state.out.committed = OffsetAndEpoch(offset, epoch)

    def _epoch_before(self, offset: int) -> int | None:
        state = self._state
        if offset > state.log.log_start_offset:
            return state.log.epoch_at(offset - 1)
        latest = state.snapshots.latest
        return latest[1] if latest is not None and latest[0] == offset else None

    # --- what the floor forbids ---------------------------------------------------------------------------------------

    def forbids_cut(self, offset: int) -> bool:
        """Whether the log must not be truncated to ``offset``; raises an alarm if so."""
        if offset >= max(self.offset, self._state.log.log_start_offset):
            return False
        self._refuse(f"to cut the log at {offset}")
        return True

    def forbids_snapshot(self, end_offset: int, epoch: int) -> bool:
        """Whether the log must not be replaced by a snapshot; raises an alarm if so.

        A snapshot that reaches the floor, but ends in an earlier epoch than the floor's, holds other records below it.
        """
        known = self.known
        older = known is not None and end_offset >= known.offset and epoch < known.epoch
        if end_offset >= max(self.offset, self._state.log.log_start_offset) and not older:
            return False
        self._refuse(f"snapshot {end_offset}-{epoch}")
        return True

    def _refuse(self, what: str) -> None:
        state = self._state
        state.alarm(
            f"refused {what}: everything below {self.offset} is committed, and the leader of epoch {state.epoch}, node "
            f"{state.leader_id}, lacks some of it. Disks were lost there, or it is of another quorum. This node keeps "
            "its records and does not follow that leader; see docs/damage.md"
        )
