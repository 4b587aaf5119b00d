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


def known_offset(state: RaftState) -> int:
    """Everything below is committed, by the last floor or by what this process has seen; 0: nothing is known."""
    known = 0 if state.floor.known is None else state.floor.known.offset
    return max(known, state.high_watermark or 0)


def rose(state: RaftState) -> None:
    """Have the risen high watermark written `LAG_MS` later."""
    floor = state.floor
    if floor.due_ms is None:
        floor.due_ms = state.now_ms + (0 if floor.is_eager else LAG_MS)


def hurry(state: RaftState, *, until_the_end: bool = False) -> None:
    """Have the high watermark written with this event's effects.

    Args:
        until_the_end: write every later rise at once, too.
    """
    state.floor.is_eager = state.floor.is_eager or until_the_end
    state.floor.due_ms = state.now_ms


def renew(state: RaftState) -> None:
    """Put the high watermark, as far as the log is durable, into the effects as the new floor."""
    floor = state.floor
    floor.due_ms = None
    risen = state.high_watermark or 0
    offset = min(risen, state.log.flushed_offset)
    if offset < risen:  # the rest is written when it is durable
        floor.due_ms = state.now_ms + LAG_MS
    if offset > (0 if floor.known is None else floor.known.offset):
        epoch = _epoch_before(state, offset)
        if epoch is not None:
            floor.known = state.out.committed = OffsetAndEpoch(offset, epoch)


def _epoch_before(state: RaftState, offset: int) -> int | None:
    if offset > state.log.log_start_offset:
        return state.log.epoch_at(offset - 1)
    latest = state.snapshots.latest
    return latest[1] if latest is not None and latest[0] == offset else None


# --- what the floor forbids -------------------------------------------------------------------------------------------


def forbids_cut(state: RaftState, offset: int) -> bool:
    """Whether the log must not be truncated to ``offset``; raises an alarm if so."""
    if offset >= max(known_offset(state), state.log.log_start_offset):
        return False
    _refuse(state, f"to cut the log at {offset}")
    return True


def forbids_snapshot(state: RaftState, end_offset: int, epoch: int) -> bool:
    """Whether the log must not be replaced by a snapshot; raises an alarm if so.

    A snapshot that reaches the floor, but ends in an earlier epoch than the floor's, holds other records below it.
    """
    known = state.floor.known
    older = known is not None and end_offset >= known.offset and epoch < known.epoch
    if end_offset >= max(known_offset(state), state.log.log_start_offset) and not older:
        return False
    _refuse(state, f"snapshot {end_offset}-{epoch}")
    return True


def _refuse(state: RaftState, what: str) -> None:
    state.alarm(
        f"refused {what}: everything below {known_offset(state)} is committed, and the leader of epoch {state.epoch}, "
        f"node {state.leader_id}, lacks some of it. Disks were lost there, or it is of another quorum. This node keeps "
        "its records and does not follow that leader; see docs/damage.md"
    )
