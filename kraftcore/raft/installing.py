"""Putting a received snapshot in the log's place, step by step: what `VerifySnapshot` and `InstallSnapshot` ask for.

Whoever runs a replica goes through the steps, in any thread: each function is a generator that stops between two of
them, and returns the event that is to be handed in. A crash may come anywhere: a snapshot that has its name is whole
and durable, and the log is cut behind it at the next start if it was not before.

Verifying touches nothing but the part file. Installing needs log and snapshots for itself.
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
    """Read what was received to its end, and make it durable.

    Args:
        received: what is to be verified.
        verify_snapshot: gets a reader, closes it, and raises if what it reads is damaged or cut short
            (``storage.snapshot_batches.verify_and_close``).
    """
    try:
        verify_snapshot(received.part.read_back())
        first = first_batch_of(received.part.read_back())
        if first.is_control:
            for _ in voter_changes(first):  # what makes no voter set would be read at each start
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
    """Go through all steps; the event they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            event: _Event = end.value
            return event


def discard_log_behind_snapshot(log: LogPort, snapshots: SnapshotPort, now_ms: int) -> None:
    """The latest snapshot is committed: a log that does not hold its last record starts anew at its end.

    So after a snapshot was received, also when a crash came between. Kafka 4.3.1 (truncateToLatestSnapshot) compares
    epochs before offsets instead, and so stops at a log with uncommitted records of a later epoch than the snapshot's.

    Raises:
        StorageError: the disk failed.
    """
    latest = snapshots.latest
    if latest is None:
        return
    end_offset, epoch = latest
    # None: the log was cleaned up to there, so it did go on from the snapshot.
    known = log.epoch_at(end_offset - 1) if end_offset > log.log_start_offset else None
    if end_offset > log.log_end_offset or known not in (None, epoch):
        log.truncate_fully_to(end_offset)
    # Also what a crash kept from going.
    snapshots.delete_before(log.log_start_offset, now_ms)
