"""The driver: feeds a replica events, and carries out its effects in the order that `Effects` states.

The order decides what a crash can destroy: a vote that left before it was saved could be given twice. So there is one
driver, which nodes and simulator share.

* ``handle`` is a plain call, and is not re-entered: events that are handed in while it runs wait until the effects of
  the present event are carried out.
* Election state, requests and answers are carried out event by event. One flush follows the last event at hand. The
  application's part of the effects (restore, apply, outcomes, notes) comes after the flush was asked for, again event
  by event: other replicas wait for acknowledgements, so these go before applying.
* While a received snapshot is put in the log's place, events wait: nothing else may touch the log.
* An exception stops the driver: it takes no more events, and the exception goes on to the caller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Protocol

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import InvariantError
from kraftcore.protocol.election_state import ElectionState
from kraftcore.raft.events import (
    Effects,
    Event,
    Flushed,
    InstallSnapshot,
    Send,
    SnapshotInstalled,
    SnapshotVerified,
    VerifySnapshot,
)
from kraftcore.raft.ports import LogPort
from kraftcore.raft.replica import Replica


class Ports(Protocol):
    """What a driver needs of disk and network. The ticket of a received request has a method ``answer(message)``."""

    def save(self, state: ElectionState) -> None:
        """Make epoch and vote durable before returning.

        Raises:
            StorageError: the disk failed.
        """
        ...

    def send(self, send: Send) -> None:
        """Send a request.

        ``handle`` gets exactly one event of it, `Answered` or `Failed`, and not before this method has returned.
        """
        ...

    def end_probation(self) -> None:
        """Make durable, before returning, that this replica is off probation; see `raft.probation`.

        Raises:
            StorageError: the disk failed.
        """
        ...

    def keep_committed(self, known: OffsetAndEpoch) -> None:
        """Write the floor, see ``Effects.committed``; flushes and answers of the same event come first.

        Raises:
            StorageError: the disk failed.
        """
        ...

    def begin_flush(self) -> None:
        """Begin to write to the disk if that helps: ``flush`` follows within this call of ``handle``."""
        ...

    def flush(self, size: int) -> None:
        """Make the log durable to its present end; ``handle`` gets `Flushed`, at once or later.

        Args:
            size: bytes that were appended since the last flush was asked for, or a few more.
        """
        ...

    def verify(self, wanted: VerifySnapshot) -> None:
        """Go through the steps of ``raft.installing.verifying``; ``verified`` gets their event, at once or later."""
        ...

    def install(self, wanted: InstallSnapshot) -> None:
        """Go through the steps of ``raft.installing.installing``; ``installed`` gets their event, at once or later."""
        ...


class Probe:
    """Watches a driver between any two steps; for tests, recordings and the simulator.

    The methods are called in their order here for each event, but for ``cleaning``. A method that is not overridden
    does nothing. An exception from a method stops the driver.
    """

    def handling(self, event: Event, now_ms: int) -> None:
        """The replica is about to take an event."""

    def handled(self, event: Event, effects: Effects) -> None:
        """The replica has taken an event; none of its effects is carried out yet."""

    def saved(self, effects: Effects) -> None:
        """Epoch and vote are durable; requests and answers are about to leave."""

    def sent(self, effects: Effects) -> None:
        """Requests and answers have left."""

    def cleaning(self, now_ms: int) -> None:
        """Old snapshots and segments are about to be deleted."""


class Driver(ABC):
    """Feeds one replica its events, and carries out the effects that the replica asks for, in order.

    Subclasses carry out the effects that concern the application (``_settle``).

    Args:
        replica: the replica that is driven.
        log: the replica's log.
        ports: disk and network.
        probe: watches each step; None: nothing does.

    Attributes:
        due_ms: when the clock reaches this time, ``handle`` is to get a `Tick`; None: no timer runs.
        now_ms: the latest time that ``handle`` was given; never falls.
        stopped: whether no more events are taken.
        is_busy: whether ``handle`` is running, so that events handed in now wait.
        is_installing: whether a snapshot is replacing the log, so that events handed in now wait, and log and snapshots
            must not be used.
    """

    def __init__(self, replica: Replica, log: LogPort, ports: Ports, probe: Probe | None = None) -> None:
        self.replica = replica
        self.log = log
        self.due_ms: int | None = None
        self.now_ms = 0
        self.stopped = False
        self._save = ports.save
        self._end_probation = ports.end_probation
        self._keep_committed = ports.keep_committed
        self._send = ports.send
        self._begin_flush = ports.begin_flush
        self._flush = ports.flush
        self._verify = ports.verify
        self._install = ports.install
        self._probe = probe
        self._queue: deque[Event] = deque()
        self._unsettled: list[Effects] = []
        self.is_busy = False
        self.is_installing = False
        self._flush_due = 0  # bytes
        self._committed: OffsetAndEpoch | None = None
        self._flush_asked = 0  # the log is durable below this offset when the flush that was asked for has ended

    def handle(self, now_ms: int, *events: Event) -> None:
        """Take events, and carry out their effects before returning, unless ``is_busy`` or ``is_installing`` is set.

        Args:
            now_ms: milliseconds since 1970.
            events: in order. Without events only the application goes on, as with records that are still to be applied.

        Raises:
            Exception: raised by the replica, a port or the application; the driver has stopped.
        """
        if self.stopped:
            return
        queue = self._queue
        queue.extend(events)
        if now_ms > self.now_ms:  # also for events that wait: a lease must not be judged by a time before a read began
            self.now_ms = now_ms
        if self.is_busy or self.is_installing:
            return
        self.is_busy = True
        try:
            while True:
                while queue and not self.is_installing:
                    self._step(queue.popleft())
                    if self._flush_due and not queue:
                        size, self._flush_due = self._flush_due, 0
                        self._flush_asked = self.log.log_end_offset
                        self._flush(size)
                unsettled, self._unsettled = self._unsettled, []
                self._settle(unsettled)
                if self._committed is not None:
                    known, self._committed = self._committed, None
                    self._keep_committed(known)
                if not queue or self.is_installing:
                    break
        except BaseException:
            self.stop()
            raise
        finally:
            self.is_busy = False

    def flushed(self, now_ms: int, offset: int) -> None:
        """Take the event that the log is durable below ``offset``."""
        self.handle(now_ms, Flushed(offset))

    def verified(self, now_ms: int, event: SnapshotVerified) -> None:
        """Take the event that a received snapshot was verified."""
        self.handle(now_ms, event)

    def installed(self, now_ms: int, event: SnapshotInstalled) -> None:
        """Take the event that a received snapshot has replaced the log, and then the events that waited."""
        self.is_installing = False
        if not self.stopped:
            self._queue.appendleft(event)
            self.handle(now_ms)

    def stop(self) -> None:
        """Take no more events."""
        self.stopped = True
        self._queue.clear()

    def _step(self, event: Event) -> None:
        probe = self._probe
        if probe is not None:
            probe.handling(event, self.now_ms)
        effects = self.replica.handle(event, self.now_ms)
        if probe is not None:
            probe.handled(event, effects)
        if effects.election_state is not None:
            self._save(effects.election_state)
        if effects.probation_over:
            self._end_probation()
        if probe is not None:
            probe.saved(effects)
        for send in effects.sends:
            self._send(send)
        for reply in effects.replies:
            reply.ticket.answer(reply.message)
        if probe is not None:
            probe.sent(effects)
        if effects.flush:
            self._flush_due += effects.flush
            self._begin_flush()
        if effects.snapshot is not None:
            self._take_snapshot(effects.snapshot)
        if effects.committed is not None:
            self._committed = effects.committed
        self._unsettled.append(effects)
        self.due_ms = effects.deadline_ms if not self.is_installing else None

    def _take_snapshot(self, wanted: VerifySnapshot | InstallSnapshot) -> None:
        if isinstance(wanted, VerifySnapshot):
            self._verify(wanted)
        else:
            self.is_installing = True
            self._install(wanted)

    @abstractmethod
    def _settle(self, unsettled: list[Effects]) -> None:
        """Carry out the application's part of the effects, in order."""

    def check_invariants(self) -> None:
        """Check, between two calls of ``handle``, that replica and log agree and that every append will be flushed.

        Raises:
            InvariantError: they do not, which is a bug.
        """
        if self.is_installing:
            return  # the log is being replaced
        self.replica.check_invariants()
        durable = max(self.log.flushed_offset, self._flush_asked)
        if self.log.log_end_offset > durable:
            raise InvariantError(
                f"the log ends at {self.log.log_end_offset}, it is or will be durable below {durable}: no flush was "
                "asked for"
            )
        if self.is_busy or self._queue or self._unsettled:
            raise InvariantError(f"{len(self._queue)} events and {len(self._unsettled)} effects are left over")
