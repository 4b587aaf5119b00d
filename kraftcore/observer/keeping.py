"""What a mirror does beside following: it copies the snapshots that the quorum writes, and deletes what it may.

A replica that follows never sees that its leader wrote a snapshot: it is only told of one when it asks for what the
leader has deleted. So now and then the beginning of the log is asked for, which KRaft leaders answer with the id of
their latest snapshot, even while the log is still there (Kafka 4.3.1, KafkaRaftClient.validateFetchOffsetAndEpoch).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftcore.core.log import Log
from kraftcore.errors import KraftError, StorageError
from kraftcore.node.driver import Driver
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchResponse
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from kraftcore.protocol.schema import Request
from kraftcore.raft import partition
from kraftcore.raft.cleaning import Cleaner, CleaningConfig
from kraftcore.raft.events import SnapshotWritten
from kraftcore.raft.roles import Follower, SnapshotFetch
from kraftcore.raft.state import ReplicaState
from kraftcore.storage.snapshots import RawSnapshotWriter, SnapshotId, SnapshotStore

Ask = Callable[[str, int, Request, int], Awaitable[Any]]
"""Host, port, request, lowest version -> response or `Failure`."""


class Keeper:
    """Copies snapshots and cleans, for one observer.

    Args:
        state: of its replica.
        driver: is told of new snapshots.
        log: the mirror's.
        store: the mirror's snapshots.
        ask: sends requests.
        config: ``retention_bytes`` and ``period_ms`` count.
        verify: reads a snapshot to its end, and raises if it is damaged.
        now_ms: the observer's clock.
    """

    def __init__(
        self,
        state: ReplicaState,
        driver: Driver,
        log: Log,
        store: SnapshotStore,
        ask: Ask,
        config: CleaningConfig,
        verify: Callable[[Any], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._state = state
        self._driver = driver
        self._store = store
        self._ask = ask
        self._verify = verify
        self._now_ms = now_ms
        self._period_s = config.period_ms / 1000
        self._cleaner = Cleaner(config, log, store)

    async def run(self) -> None:
        """Work now and then, until cancelled. A disk that fails ends the observer."""
        while True:
            await trio.sleep(self._period_s)
            try:
                await self._copy_latest()
                if not self._driver.flusher.is_running and not self._driver.stopped:
                    self._cleaner.clean(self._now_ms())
            except StorageError as error:
                self._driver.fail(error)
            except KraftError:
                pass  # a damaged snapshot, or another one was quicker: there is a next time

    async def _copy_latest(self) -> None:
        state = self._state
        role = state.role
        if not isinstance(role, Follower) or role.snapshot is not None:
            return
        leader = state.destination(role.leader_id, role.leader_endpoints)
        if leader is None:
            return
        wanted = await self._latest_of(leader.host, leader.port)
        if wanted is None:
            return
        with self._store.create(wanted) as writer:
            if await self._download(leader.host, leader.port, wanted, writer):
                await trio.to_thread.run_sync(self._verify, writer.read_back())
                if wanted not in self._store and not self._driver.stopped:
                    writer.freeze()
                    self._driver.feed(SnapshotWritten(*wanted))

    async def _latest_of(self, host: str, port: int) -> SnapshotId | None:
        """The leader's latest snapshot, if it is newer than ours and covers only what is committed here."""
        request = partition.fetch_request(self._state)
        request.max_wait_ms, request.max_bytes = 0, 1
        asked = request.topics[0].partitions[0]
        asked.fetch_offset = asked.last_fetched_epoch = 0
        answer = await self._ask(host, port, request, partition.FETCH_MIN_VERSION)
        told = partition.fetch_answer(self._state, answer) if isinstance(answer, FetchResponse) else None
        if told is None or told.error_code != ErrorCode.NONE:
            return None
        found = SnapshotId(told.snapshot_id.end_offset, told.snapshot_id.epoch)
        latest = self._store.latest
        newest = 0 if latest is None else latest.end_offset
        if not newest < found.end_offset <= (self._state.high_watermark or 0):
            return None
        return found if self._state.log.epoch_at(found.end_offset - 1) == found.epoch else None

    async def _download(self, host: str, port: int, wanted: SnapshotId, writer: RawSnapshotWriter) -> bool:
        fetch = SnapshotFetch(wanted.end_offset, wanted.epoch, writer)
        while True:
            answer = await self._ask(host, port, partition.fetch_snapshot_request(self._state, fetch), 0)
            if not isinstance(answer, FetchSnapshotResponse):
                return False
            told = partition.fetch_snapshot_answer(self._state, answer)
            if told is None or told.error_code != ErrorCode.NONE or told.position != fetch.position:
                return False
            data = told.unaligned_records or b""
            if not data or (told.snapshot_id.end_offset, told.snapshot_id.epoch) != wanted:
                return False
            writer.append(data, position=fetch.position)
            fetch.position += len(data)
            if fetch.position >= told.size:
                return True
