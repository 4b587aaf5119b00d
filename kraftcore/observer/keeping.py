"""What a mirror does beside following: it copies the snapshots that the quorum writes, and deletes what it may.

It asks for the latest snapshot now and then, see ``raft.copying``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftcore.core.log import Log
from kraftcore.errors import KraftError, StorageError
from kraftcore.node.shell import Shell
from kraftcore.ports.nursery import uninterrupted
from kraftcore.protocol.schema import Request
from kraftcore.raft import partition
from kraftcore.raft.copying import SnapshotChunks, SnapshotCopying
from kraftcore.raft.events import Destination, SnapshotWritten
from kraftcore.raft.replica import Replica
from kraftcore.raft.snapshot_schedule import Cleaner, CleaningConfig
from kraftcore.storage.snapshots import RawSnapshotWriter, SnapshotStore

Ask = Callable[[str, int, Request, int], Awaitable[Any]]
"""Host, port, request, lowest version -> response or `Failure`."""


class Keeper:
    """Copies snapshots and cleans, for one observer.

    Args:
        replica: the observer's.
        shell: is told of new snapshots.
        log: the mirror's.
        store: the mirror's snapshots.
        ask: sends requests.
        config: ``retention_bytes`` and ``period_ms`` count.
        verify: reads a snapshot to its end, and raises if it is damaged.
        now_ms: the observer's clock.
    """

    def __init__(
        self,
        replica: Replica,
        shell: Shell,
        log: Log,
        store: SnapshotStore,
        ask: Ask,
        config: CleaningConfig,
        verify: Callable[[Any], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._replica = replica
        self._shell = shell
        self._store = store
        self._ask = ask
        self._verify = verify
        self._now_ms = now_ms
        self._period_s = config.period_ms / 1000
        self._cleaner = Cleaner(config, log, store)

    @uninterrupted
    async def run(self) -> None:
        """Work now and then, until cancelled. A disk that fails ends the observer."""
        while True:
            await trio.sleep(self._period_s)
            try:
                await self._copy_latest()
                if not self._shell.has_log and not self._shell.driver.stopped:
                    self._cleaner.clean(self._now_ms())
            except StorageError as error:
                self._shell.fail(error)
            except KraftError:
                pass  # a damaged snapshot, or another one was quicker: there is a next time

    async def _copy_latest(self) -> None:
        copying = SnapshotCopying(self._replica)
        leader = copying.leader
        if leader is None:
            return
        answer = await self._ask(leader.host, leader.port, copying.latest_request(), partition.FETCH_MIN_VERSION)
        wanted = copying.latest_in(answer)
        if wanted is None:
            return
        with self._store.create(wanted) as writer:
            if await self._download(leader, copying.chunks(wanted, writer), writer):
                await trio.to_thread.run_sync(self._verify, writer.read_back())
                if wanted not in self._store and not self._shell.driver.stopped and not self._shell.has_log:
                    writer.freeze()
                    self._shell.feed(SnapshotWritten(*wanted))

    async def _download(self, leader: Destination, chunks: SnapshotChunks, writer: RawSnapshotWriter) -> bool:
        while True:
            answer = await self._ask(leader.host, leader.port, chunks.request(), 0)
            data = chunks.data_in(answer)
            if data is None:
                return False
            writer.append(data, position=chunks.position)
            chunks.position += len(data)
            if chunks.is_complete:
                return True
