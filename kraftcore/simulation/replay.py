"""Replays a recorded run of a node: the same events at the same times must have the same effects."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import LocalError
from kraftcore.executor.driver import Driver, Probe
from kraftcore.executor.recording import Beginning, check_effects, effects_lines, event_of
from kraftcore.protocol.election_state import ElectionState
from kraftcore.raft.events import Effects, Event, InstallSnapshot, Send, SnapshotInstalled, VerifySnapshot
from kraftcore.raft.installing import completed, installing
from kraftcore.raft.replica import Replica
from kraftcore.raft.snapshot_schedule import Cleaner
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from kraftcore.storage.snapshots import SnapshotStore

FOLDER = "/replay"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Attributes:
        events: how many were replayed.
        role: the replica's role at the end.
        epoch: its leader epoch.
        log_end_offset: of its log.
        high_watermark: its high watermark, or None.
    """

    events: int
    role: str
    epoch: int
    log_end_offset: int
    high_watermark: int | None


class _Ticket:
    """A ticket that drops its answer."""

    def answer(self, message: Struct) -> None:
        """An answer."""


class _RecordedLog:
    """A log that is durable as far as it was when the run was recorded.

    Flushes take their time in threads: what had reached the disk when an event came is an input, too.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.flushed_offset = log.flushed_offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class _Replayer(Driver, Probe):
    """A driver that compares effects with the recorded ones, and carries none out."""

    def __init__(self, replica: Replica, log: Any) -> None:
        super().__init__(replica, log, self, self)
        self.number = 0
        self.recorded: list[str] = []
        self.wanted: InstallSnapshot | None = None

    def save(self, state: ElectionState) -> None:
        """See `Ports`."""

    def send(self, send: Send) -> None:
        """See `Ports`."""

    def end_probation(self) -> None:
        """See `Ports`."""

    def keep_committed(self, known: OffsetAndEpoch) -> None:
        """See `Ports`."""

    def begin_flush(self) -> None:
        """See `Ports`."""

    def flush(self, size: int) -> None:
        """See `Ports`."""

    def verify(self, wanted: VerifySnapshot) -> None:
        """See `Ports`."""

    def install(self, wanted: InstallSnapshot) -> None:
        """See `Ports`."""
        self.wanted = wanted

    def handled(self, event: Event, effects: Effects) -> None:
        """See `Probe`."""
        check_effects(self.number, self.recorded, effects_lines(effects))

    def _settle(self, unsettled: list[Effects]) -> None:
        """There is no application."""


def replay(lines: Iterable[str]) -> Replayed:
    """Replay a recorded run. The executor's and the replica's invariants are checked after every event.

    Args:
        lines: of the recording; a last line that was not written to its end is left out.

    Raises:
        InvariantError: the effects of an event differ from the recorded ones, or a rule is broken.
        LocalError: the lines are not a recording.
    """
    found = iter(lines)
    begin = Beginning(next(found, ""))
    disk = SimulatedDisk(Random(0))
    disk.make_folder(FOLDER)
    for name, data in begin.files.items():
        disk.replace_file(f"{FOLDER}/{name}", data)
    log = Log.open(disk, FOLDER, begin.log, now_ms=0)
    store = SnapshotStore(disk, FOLDER)
    recorded = _RecordedLog(log)
    saved = QuorumStateFile(disk, f"{FOLDER}/{QUORUM_STATE}").read()
    replica = Replica(
        begin.config,
        recorded,
        store,
        Random(begin.seed),
        saved,
        committed=CommittedFile(disk, FOLDER).read(),
        may_have_forgotten=begin.may_have_forgotten,
    )
    driver = _Replayer(replica, recorded)
    cleaner = Cleaner(begin.cleaning, recorded, store)
    for line in found:
        entry = _read(line)
        if entry is None:
            break
        recorded.flushed_offset = entry["durable"]
        if entry["event"] == "cleaning":
            log.flush()
            cleaner.clean(entry["now_ms"])
            continue
        if "snapshot" in entry and tuple(entry["id"]) not in store:
            with store.create(tuple(entry["id"])) as writer:
                writer.append(b64decode(entry["snapshot"]))
                writer.freeze()
        driver.number += 1
        driver.recorded = entry["effects"]
        event = event_of(entry, _Ticket())
        if isinstance(event, SnapshotInstalled):
            if driver.wanted is not None and not event.problem:
                completed(installing(driver.wanted, log, store, entry["now_ms"]))
            driver.installed(entry["now_ms"], event)
        else:
            driver.handle(entry["now_ms"], event)
        driver.check_invariants()
    log.flush()
    return Replayed(driver.number, replica.role.value, replica.epoch, log.log_end_offset, replica.high_watermark)


def _read(line: str) -> dict[str, Any] | None:
    if not line.endswith("\n"):
        return None  # the process died while it wrote this
    try:
        entry = json.loads(line)
        if not {"event", "now_ms", "durable"} <= entry.keys():
            raise ValueError(f"it has only {', '.join(entry)}")
    except (ValueError, AttributeError) as error:
        raise LocalError(f"a line of the recording cannot be read: {error}") from error
    return dict(entry)
