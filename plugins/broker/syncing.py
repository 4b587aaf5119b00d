"""Syncs logs on trio for requests that wait for that (``flush.messages``): all logs that wait are synced together."""

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
        disk: a lock, held while a log is flushed, or parts of one are removed.
        now_ms: the time in milliseconds; it never falls.
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
        """Sync the logs of the queue, until cancelled."""
        while True:
            await self._unsynced.wait()
            async with self._disk, trio.open_nursery() as nursery:
                for name in self._unsynced.take():
                    nursery.start_soon(self._sync, name)

    async def _sync(self, name: TopicPartition) -> None:
        replica = self._replicas.all.get(name)
        if replica is None or replica.hosted.log.closed or self._replicas.is_broken(name):
            return  # requests that waited were answered when the log was closed or broke
        try:
            await run_in_thread(replica.hosted.log.flush)
        except KraftError as error:
            self._replicas.cannot_write(name, error)
        else:
            self._replicas.carry_out(name, replica.partition.synced(self._now_ms()))
