"""A driver on trio: its clock and timer, its disk, its network.

Rules of this file:

* ``feed`` and ``run`` are plain calls of the task that has an event: the reader of a connection, the timer, an append.
  So a record needs no task switch between the socket and the log.
* Nothing here decides an order; see `kraftcore.executor`.
* Any exception (a failed disk, a state machine that raises, a broken invariant) stops the driver, and ``fail`` is
  called with it, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import trio

from kraftcore.core.log import Log
from kraftcore.executor.driver import Driver
from kraftcore.node.clock import Clock
from kraftcore.node.flusher import Flusher
from kraftcore.node.installer import Installer
from kraftcore.node.outbox import Outbox
from kraftcore.ports.nursery import uninterrupted
from kraftcore.protocol.failure import Failure
from kraftcore.raft.events import Answered, Event, Failed, Flushed, Send, SnapshotInstalled, Tick
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.quorum_state import QuorumStateFile
from kraftcore.storage.snapshots import SnapshotStore

_logger = logging.getLogger("kraftcore.node")

SOON_MS = 50  # an alarm that is due within this is moved when the deadline moves back


class Shell:
    """Connects a driver to trio: clock and timer, disk, network. It implements the driver's ports.

    Args:
        log: the driver's log.
        store: its snapshots.
        quorum_state: where its election state is kept.
        outbox: sends its requests.
        clock: gives the time that the driver is told.
        inline_flush_bytes: see `Flusher`.
        fail: called once, with the error after which the driver cannot go on.
        look: called after each call of the driver.
        committed: the file of the floor, see `raft.floor`; None: there is no such file, as for an observer.
        end_probation: removes the mark of a node on probation; None: there is none.

    Attributes:
        driver: the driver; see ``drive``.
        save, keep_committed, end_probation, begin_flush, flush, verify, install: see `Ports`.
    """

    def __init__(
        self,
        log: Log,
        store: SnapshotStore,
        quorum_state: QuorumStateFile,
        outbox: Outbox,
        clock: Clock,
        inline_flush_bytes: int,
        fail: Callable[[BaseException], None],
        look: Callable[[], None],
        committed: CommittedFile | None = None,
        end_probation: Callable[[], None] | None = None,
    ) -> None:
        self.driver: Driver
        self._outbox = outbox
        self._clock = clock
        self._now_ms = clock.now_ms
        self._fail = fail
        self._look = look
        self._alarm = trio.CancelScope()
        self._armed_ms: int | None = None  # the deadline to which the alarm was last set
        self._has_failed = False
        self.flusher = Flusher(log, inline_flush_bytes, self._flushed, self.fail)
        self.save = quorum_state.write
        self.keep_committed = (lambda known: None) if committed is None else committed.write
        self.end_probation = end_probation or (lambda: None)
        self.begin_flush = self.flusher.begin
        self.flush = self.flusher.flush
        self._installer = Installer(
            log, store, clock.now_ms, self.flusher.when_idle, self.feed, self._installed, self._not_installed
        )
        self.verify = self._installer.verify
        self.install = self._installer.install

    def drive(self, driver: Driver) -> None:
        """Set the driver; once, before anything else."""
        self.driver = driver

    def feed(self, *events: Event) -> None:
        """Hand events to the driver; see ``Driver.handle``."""
        driver = self.driver
        if driver.stopped:
            return
        try:
            driver.handle(self._now_ms(), *events)
        except Exception as error:
            self.fail(error)
            return
        if not driver.is_busy:
            self._did()

    def run(self, action: Callable[..., object], *arguments: Any) -> None:
        """Call ``action(now_ms, *arguments)``, a method of the driver."""
        driver = self.driver
        if driver.stopped:
            return
        try:
            action(self._now_ms(), *arguments)
        except Exception as error:
            self.fail(error)
            return
        if not driver.is_busy:
            self._did()

    def _did(self) -> None:
        self._look()
        if self.driver.due_ms != self._armed_ms:  # last, so that no answer waits for the alarm
            self._arm()

    @property
    def is_busy(self) -> bool:
        """Whether the log is in use, see ``has_log``, or a leader that shuts down has voters to tell."""
        driver = self.driver
        return self.has_log or (driver.replica.is_leaving and not driver.stopped)

    @property
    def has_log(self) -> bool:
        """Whether a flush runs, or a snapshot is being put in the log's place: log and snapshots must be left alone."""
        return self.flusher.is_running or self.driver.is_installing

    def close(self) -> None:
        """End the threads; not while a flush runs."""
        self.flusher.close()
        self._installer.close()

    def fail(self, error: BaseException) -> None:
        """Stop for good; only the first error is told."""
        self.driver.stop()
        if not self._has_failed:
            self._has_failed = True
            self._fail(error)

    def _flushed(self, offset: int) -> None:
        driver = self.driver
        if driver.is_busy:  # the flush was done inside the driver's call
            driver.flushed(driver.now_ms, offset)
        else:
            self.feed(Flushed(offset))

    def _installed(self, event: SnapshotInstalled) -> None:
        driver = self.driver
        if driver.stopped:
            driver.installed(driver.now_ms, event)  # so that ``is_installing`` ends
        else:
            self.run(driver.installed, event)

    def _not_installed(self, error: BaseException) -> None:
        self.driver.is_installing = False
        self.fail(error)

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(self, send: Send) -> None:
        """See `Ports`."""
        destination = send.destination
        self._outbox.send(
            destination.host,
            destination.port,
            send.message,  # type: ignore[arg-type]
            send.timeout_ms,
            partial(self._answered, send.request_id),
            send.min_version,
        )

    def _answered(self, request_id: int, answer: Any) -> None:
        self.feed(Failed(request_id, answer) if isinstance(answer, Failure) else Answered(request_id, answer))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the alarm to the driver's deadline.

        An alarm that would go off within `SOON_MS` is moved back, which costs less than a wake-up; an alarm further
        away stays, and is moved when it goes off.
        """
        driver = self.driver
        due_ms = self._armed_ms = driver.due_ms
        at = inf if due_ms is None else self._clock.trio_time(due_ms)
        deadline = self._alarm.deadline
        if at < deadline or deadline < self._clock.trio_time(driver.now_ms + SOON_MS):
            self._alarm.deadline = at

    @uninterrupted
    async def run_timer(self) -> None:
        """Feed a `Tick` whenever one is due, until cancelled."""
        driver = self.driver
        while True:
            due_ms = driver.due_ms
            if due_ms is not None and self._now_ms() >= due_ms and not driver.stopped:
                driver.due_ms = None
                self.feed(Tick())
                continue
            self._armed_ms = due_ms
            at = inf if due_ms is None or driver.stopped else self._clock.trio_time(due_ms)
            with trio.CancelScope(deadline=at) as self._alarm:
                await trio.sleep_forever()
