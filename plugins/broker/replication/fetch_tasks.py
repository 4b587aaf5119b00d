"""Fetching from leaders on trio: runs the tasks of ``fetch_schedule``, and sends their requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from kraftcore.errors import KraftError
from kraftcore.node.outbox import CONSENSUS, FORWARDS, Outbox
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.quotas.replication import ReplicationQuota
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.replication.fetch_schedule import Fetching, FetchTask, Pause
from kraftcore.plugins.broker.replication.follower_fetch import Ask, FetchSettings, Following
from kraftcore.plugins.broker.work.disk_threads import failure_in_thread
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.transport import Address

_ANSWER_SLACK_MS = 30_000  # time for an answer beyond the leader's waiting time (replica.socket.timeout.ms)

_logger = logging.getLogger("kraftcore.broker")


class Fetchers:
    """Runs the fetch rounds of ``fetch_schedule`` on trio, and sends their requests to leaders.

    Args:
        broker_id: the id of this broker.
        broker_epoch: gives the present broker epoch of this broker.
        replicas: the partitions of which this broker has a replica.
        cache: knows the addresses of leaders.
        listener: the name of the listener between brokers.
        outbox: sends requests.
        settings: see ``FetchSettings``.
        disk: the lock that is held while logs are flushed or parts of them are removed.
        now_ms: the time, milliseconds since 1970.
        quota: see `Following`.
        start: starts a trio task.

    Attributes:
        refresh: see `Fetching.refresh`.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        replicas: Replicas,
        cache: MetadataCache,
        listener: str,
        outbox: Outbox,
        settings: FetchSettings,
        disk: trio.Lock,
        now_ms: Callable[[], int],
        quota: ReplicationQuota,
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._disk = disk
        complain = Complaints(_logger.warning, trio.current_time)
        following = Following(broker_id, broker_epoch, replicas, settings, complain, now_ms, quota)
        ports = _Ports(cache, listener, outbox, settings, lambda task: start(partial(self._run, task)))
        self.refresh = Fetching(following, settings, ports).refresh

    async def _run(self, task: FetchTask) -> None:
        steps = task.steps
        try:
            wanted = next(steps, None)
            while wanted is not None:
                if isinstance(wanted, Pause):
                    await _pause(task, wanted)
                    wanted = _send(task, None)
                else:
                    async with self._disk:
                        wanted = _send(task, None)
                        while callable(wanted):
                            wanted = _send(task, await failure_in_thread(wanted))
        finally:
            steps.close()


class _Ports:
    """See ``fetching.Ports``."""

    def __init__(
        self,
        cache: MetadataCache,
        listener: str,
        outbox: Outbox,
        settings: FetchSettings,
        start: Callable[[FetchTask], None],
    ) -> None:
        self._cache = cache
        self._listener = listener
        self._outbox = outbox
        self._timeout_ms = settings.wait_max_ms + _ANSWER_SLACK_MS
        self.start = start

    def time_ms(self) -> float:
        return trio.current_time() * 1000

    def address(self, leader_id: int) -> Address | None:
        return self._cache.address(leader_id, self._listener)

    def ask(self, address: Address, wanted: Ask, done: Callable[[Any], None], *, is_beside: bool) -> None:
        self._outbox.send(
            address.host,
            address.port,
            wanted.request,
            self._timeout_ms,
            done,
            min_version=wanted.min_version,
            max_version=wanted.max_version,
            lane=FORWARDS if is_beside else CONSENSUS,
        )


async def _pause(task: FetchTask, wanted: Pause) -> None:
    woken = trio.Event()
    task.on_wake = woken.set
    if task.is_woken:
        woken.set()
    with trio.move_on_at(wanted.until_ms / 1000):
        await woken.wait()
    task.is_woken = False


def _send(task: FetchTask, value: KraftError | None) -> Any:
    """Resume a task; return what it waits for next, or None if it ended."""
    try:
        return task.steps.send(value)
    except StopIteration:
        return None
