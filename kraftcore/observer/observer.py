"""An observer: a replica without a name, its mirror on disk, and iterators over what is committed."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import trio

from kraftcore import __version__
from kraftcore.core.log import Log
from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import LocalError, NodeStoppedError, StorageError
from kraftcore.executor.driver import Driver, Ports
from kraftcore.node.clock import Clock
from kraftcore.node.home import Home
from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.node.shell import Shell
from kraftcore.observer.keeping import Keeper
from kraftcore.observer.streams import Batches, Records
from kraftcore.ownership import Owned
from kraftcore.ports.transport import Transport
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchResponse
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Effects, RaftConfig, Tick
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.replica import Replica
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.storage.snapshot_batches import verify_and_close

_logger = logging.getLogger("kraftcore.observer")

INLINE_FLUSH_BYTES = 256 * 1024
_POLL_S = 0.005
_FLUSH_PATIENCE_S = 30


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an observer is.

    Attributes:
        log_start_offset: below it the mirror holds a snapshot, or nothing yet.
        log_end_offset: where the mirrored log ends, committed or not.
        high_watermark: below it everything is mirrored and known to be committed.
        leader_high_watermark: the highest one a leader told; None before the first answer.
        snapshot_bytes: received of the snapshot that is on its way, or None.
        snapshot_size: of that snapshot, or None.
        leader_id: None while unknown, and while it has not answered for a fetch timeout.
        leader_epoch: the epoch this observer knows.
    """

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    leader_high_watermark: int | None
    snapshot_bytes: int | None
    snapshot_size: int | None
    leader_id: int | None
    leader_epoch: int

    @property
    def is_caught_up(self) -> bool:
        """Whether everything is mirrored that a leader has called committed."""
        return self.leader_high_watermark is not None and self.high_watermark >= self.leader_high_watermark


class Observer(Owned):
    """Made by ``kraftcore.observe``; do not call the constructor. One trio loop calls everything.

    Attributes:
        directory: where the mirror is, as a node's directory: ``<topic>-0`` holds log and snapshots.
        cluster_id: empty if the quorum does not tell.
        topic: name of the log's topic.
    """

    def __init__(
        self,
        config: RaftConfig,
        home: Home,
        directory: str,
        transport: Transport,
        end: Callable[[], object],
        cleaning: CleaningConfig,
    ) -> None:
        self.directory = directory
        self.cluster_id = home.cluster_id
        self.topic = config.topic
        self._request_timeout_ms = config.request_timeout_ms
        self._is_metadata = config.topic_id == METADATA_TOPIC_ID
        self._home = home
        self._log: Log = home.log
        self._end = end
        self._replica = Replica(
            config,
            home.log,
            home.store,
            random.Random(int.from_bytes(os.urandom(16))),
            home.quorum_state.read(),
        )
        self._clock = Clock()
        self._outbox = Outbox(transport, "kraftcore-observer", __version__, self._note, self._look)
        self._shell = Shell(
            home.log,
            home.store,
            home.quorum_state,
            self._outbox,
            self._clock,
            INLINE_FLUSH_BYTES,
            self._fail,
            self._look_around,
        )
        self._shell.drive(_Follower(self._replica, home.log, self._shell, self._note))
        self._keeper = Keeper(
            self._replica,
            self._shell,
            home.log,
            home.store,
            self._ask,
            cleaning,
            verify_and_close,
            self._clock.now_ms,
        )
        self._leader_high_watermark: int | None = None
        self._snapshot_size: int | None = None
        self._waiting = trio.lowlevel.ParkingLot()
        self._closed = False
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        if self._closed:
            return f"<kraftcore.Observer of {self.topic} in {self.directory}: stopped>"
        found = self.progress
        leader = "no leader known" if found.leader_id is None else f"leader {found.leader_id}"
        return (
            f"<kraftcore.Observer of {self.topic} in {self.directory}: epoch {found.leader_epoch}, {leader}, "
            f"high watermark {found.high_watermark}>"
        )

    # --- what is committed --------------------------------------------------------------------------------------------

    def batches(self, from_offset: int | None = 0) -> Batches:
        """Committed batches as they are in the leader's log, data and control, in order and without end.

        Where the mirror does not reach back to what is wanted next, also later (the leader may have deleted it while
        this observer was away), a `Snapshot` comes first: it replaces everything handed out so far. What is slow to
        take them only falls behind: they wait on disk.

        Args:
            from_offset: begin with the batch that holds this offset; None: with what is committed from now on, as
                soon as the observer has caught up.

        Raises:
            LocalError: an offset below 0.
        """
        return Batches(self, self._log, self._home.store, from_offset)

    def records(self, from_offset: int | None = 0, *, types: Collection[str] = ()) -> Records:
        """As ``batches``, record by record and decoded; the records of a `Snapshot` follow it.

        Args:
            from_offset: of the first record; else as for ``batches``.
            types: only records of these types (``ObservedRecord.type``), and the `Snapshot` marks; empty: all.

        Raises:
            LocalError: see ``batches``.
        """
        return Records(self.batches(from_offset), from_offset or 0, types, decode=self._is_metadata)

    async def caught_up(self) -> int:
        """Wait until everything is mirrored that a leader has called committed.

        Returns:
            The high watermark then.

        Raises:
            NodeStoppedError: it ended.
        """
        await trio.lowlevel.checkpoint()
        while True:
            self.check_open()
            found = self.progress
            if found.is_caught_up:
                return found.high_watermark
            await self._waiting.park()

    async def changed(self) -> None:
        """Wait until ``progress`` is worth another look.

        Raises:
            NodeStoppedError: it ended.
        """
        self.check_open()
        await self._waiting.park()

    @property
    def high_watermark(self) -> int:
        """Everything below it is mirrored, and known to be committed. Never falls while this object lives."""
        return self._replica.high_watermark or 0

    @property
    def progress(self) -> Progress:
        """How far the observer is, at this moment."""
        position = self._replica.snapshot_position
        return Progress(
            self._log.log_start_offset,
            self._log.log_end_offset,
            self.high_watermark,
            self._leader_high_watermark,
            position,
            None if position is None else self._snapshot_size,
            self._replica.answering_leader_id,
            self._replica.epoch,
        )

    @property
    def voters(self) -> VoterSet:
        """The voter set in force; empty where only the nodes' configuration names it (kraft.version 0)."""
        return self._replica.voters

    # --- how it runs --------------------------------------------------------------------------------------------------

    def begin(self, nursery: trio.Nursery) -> None:
        """Follow the quorum, until the nursery is cancelled."""
        nursery.start_soon(self._shell.run_timer)
        nursery.start_soon(self._keeper.run)
        self._shell.feed(Tick())

    async def _ask(self, host: str, port: int, request: Request, min_version: int) -> Any:
        done = trio.Event()
        answers: list[Any] = []

        def answered(answer: Any) -> None:
            answers.append(answer)
            done.set()

        self._outbox.send(host, port, request, self._request_timeout_ms, answered, min_version, OTHERS)
        await done.wait()
        return answers[0]

    def _look(self, answer: Struct) -> None:
        """Every answer, before the replica gets it."""
        if isinstance(answer, FetchResponse):
            if answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._shell.fail(
                    LocalError(f"{self.directory} mirrors cluster {self.cluster_id}, and this is another cluster")
                )
            for topic in answer.responses:
                for partition in topic.partitions:
                    if partition.error_code == ErrorCode.NONE and partition.high_watermark >= 0:
                        told = max(self._leader_high_watermark or 0, partition.high_watermark)
                        self._leader_high_watermark = told
        elif isinstance(answer, FetchSnapshotResponse):
            self._snapshot_size = next((part.size for topic in answer.topics for part in topic.partitions), None)

    def _look_around(self) -> None:
        if self._waiting:
            self._waiting.unpark_all()

    def _note(self, text: str) -> None:
        _logger.warning("observer of %s: %s", self.topic, text)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._end()

    @property
    def is_readable(self) -> bool:
        """Whether the mirror may be read: no snapshot is being put in its place."""
        return not self._shell.driver.is_installing

    def check_open(self) -> None:
        """Raise `NodeStoppedError` if it has ended."""
        if self._closed or self.error is not None:
            raise NodeStoppedError(f"the observer stopped: {self.error or 'it was closed'}") from self.error

    async def close(self) -> None:
        """Make the mirror durable and close it."""
        self._shell.driver.stop()
        self._closed = True
        self._waiting.unpark_all()
        with trio.move_on_after(_FLUSH_PATIENCE_S):
            while self._shell.has_log:
                await trio.sleep(_POLL_S)
        self._shell.close()
        try:
            self._home.close()
        except (LocalError, StorageError) as error:
            self.error = self.error or error


class _Follower(Driver):
    """A driver without a state machine."""

    def __init__(self, replica: Replica, log: Log, ports: Ports, note: Callable[[str], None]) -> None:
        super().__init__(replica, log, ports)
        self._note = note

    def _settle(self, unsettled: list[Effects]) -> None:
        for effects in unsettled:
            for text in (*effects.notes, *effects.alarms):
                self._note(text)
