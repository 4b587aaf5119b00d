"""Syncs that produces wait for (``flush.messages``), on trio: by threads, of all partitions that owe one at a time."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftcore.errors import KraftError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_threads import run_in_thread


class Syncing:
    """Syncs the logs whose produces wait for it (``flush.messages``), in threads, on trio.

    Args:
        replicas: the partitions.
        disk: held by whoever flushes or removes parts of logs.
        now_ms: the time.
    """

    def __init__(self, replicas: Replicas, disk: trio.Lock, now_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._disk = disk
        self._now_ms = now_ms
        self._due: dict[TopicPartition, None] = {}
        self._wake = trio.Event()

    def note(self, name: TopicPartition) -> None:
        """A partition's log is to be synced. What is appended until that begins is synced with it."""
        self._due[name] = None
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            async with self._disk:
                self._wake = trio.Event()
                due, self._due = self._due, {}
                async with trio.open_nursery() as nursery:
                    for name in due:
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
