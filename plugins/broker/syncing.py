"""Syncs that produces wait for (``flush.messages``), on trio: by threads, of all partitions that owe one at a time."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftcore.errors import KraftError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_threads import run_in_thread
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue


class Syncing:
    """Syncs the logs whose produces wait for it (``flush.messages``), in threads, on trio.

    Args:
        replicas: the partitions of this broker.
        unsynced: the partitions whose logs are to be synced. What is appended until that begins is synced with it.
        disk: held by whoever flushes or removes parts of logs.
        now_ms: the time.
    """

    def __init__(
        self,
        replicas: Replicas,
        unsynced: KeyedQueue[TopicPartition, None],
        disk: trio.Lock,
        now_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._disk = disk
        self._now_ms = now_ms
        self._unsynced = unsynced

    async def run(self) -> None:
        """Sync what is to be synced, until cancelled."""
        while True:
            await self._unsynced.wait()
            async with self._disk, trio.open_nursery() as nursery:
                for name in self._unsynced.take():
                    nursery.start_soon(self._sync, name)

    async def _sync(self, name: TopicPartition) -> None:
        replica = self._replicas.all.get(name)
        if replica is None or replica.hosted.log.closed or self._replicas.is_broken(name):
            return  # whoever waited was told
        try:
            await run_in_thread(replica.hosted.log.flush)
        except KraftError as error:
            self._replicas.cannot_write(name, error)
        else:
            self._replicas.carry_out(name, replica.partition.synced(self._now_ms()))
