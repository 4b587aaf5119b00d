"""The steps by which a received snapshot takes the log's place: what `VerifySnapshot` and `InstallSnapshot` ask for.

Whoever runs a replica goes through the steps, in any thread: each function is a generator that stops between two steps,
and returns the event that is to be handed in. A crash may come between any two steps: a snapshot that has its name is
whole and durable, and if the log was not cut behind that snapshot before, the next start does it.

Verifying touches only the part file. Installing needs log and snapshots for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from kraftcore.errors import KraftError
from kraftcore.raft.control_records import first_batch_of, voter_changes
from kraftcore.raft.events import InstallSnapshot, SnapshotInstalled, SnapshotVerified, VerifySnapshot
from kraftcore.raft.ports import LogPort, SnapshotPort

_Event = TypeVar("_Event")


def verifying(
    received: VerifySnapshot, verify_snapshot: Callable[[Any], object]
) -> Generator[str, None, SnapshotVerified]:
    """Read a received snapshot to its end, and make it durable.

    Args:
        received: the snapshot.
        verify_snapshot: takes a reader, closes it, and raises if the snapshot is damaged or cut short
            (``storage.snapshot_batches.verify_and_close``).
    """
    try:
        verify_snapshot(received.part.read_back())
        first = first_batch_of(received.part.read_back())
        if first.is_control:
            for _ in voter_changes(first):  # raises for a damaged voter set, which each start would read
                pass
        yield "verified"
        received.part.sync()
    except KraftError as error:
        return SnapshotVerified(received.number, str(error))
    yield "synced"
    return SnapshotVerified(received.number)


def installing(
    wanted: InstallSnapshot, log: LogPort, snapshots: SnapshotPort, now_ms: int
) -> Generator[str, None, SnapshotInstalled]:
    """Give a verified snapshot its name, and have the log begin at its end.

    Raises:
        StorageError: the log could not be cut, and must not be used any more.
    """
    if wanted.part is not None:
        try:
            wanted.part.freeze()
        except KraftError as error:
            return SnapshotInstalled(wanted.end_offset, wanted.epoch, str(error))
        yield "renamed"
    discard_log_behind_snapshot(log, snapshots, now_ms)
    yield "cut"
    return SnapshotInstalled(wanted.end_offset, wanted.epoch)


def completed(steps: Generator[str, None, _Event]) -> _Event:
    """Go through all steps, and return their event."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            event: _Event = end.value
            return event


def discard_log_behind_snapshot(log: LogPort, snapshots: SnapshotPort, now_ms: int) -> None:
    """Begin the log anew at the end of the latest snapshot, unless the log holds that snapshot's last record.

    The latest snapshot is committed, so nothing is lost. Called when a snapshot was received, and at each start, for a
    crash may have come between. Kafka 4.3.1 (truncateToLatestSnapshot) compares epochs before offsets instead, and so
    stops at a log with uncommitted records of a later epoch than the snapshot's.

    Raises:
        StorageError: the disk failed.
    """
    latest = snapshots.latest
    if latest is None:
        return
    end_offset, epoch = latest
    # None: records up to there were deleted because of the snapshot, so the log did hold its last record.
    known = log.epoch_at(end_offset - 1) if end_offset > log.log_start_offset else None
    if end_offset > log.log_end_offset or known not in (None, epoch):
        log.truncate_fully_to(end_offset)
    # A crash may have come before older snapshots were deleted.
    snapshots.delete_before(log.log_start_offset, now_ms)
