"""Fetching from leaders on trio: a task for each leader, which runs the rounds of ``following``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from kraftcore.node.outbox import CONSENSUS, Outbox
from kraftcore.plugins.broker.following import Ask, FetchSettings, Following, RoundEnd, Source, Steps
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.transport import Address

_ANSWER_SLACK_MS = 30_000  # what a request may take beyond its waiting time (replica.socket.timeout.ms)

_logger = logging.getLogger("kraftcore.broker")


@dataclass(slots=True)
class _Task:
    """A leader's task."""

    source: Source
    wake: trio.Event = field(default_factory=trio.Event)


class Fetchers:
    """See the module text.

    Args:
        broker_id: ours.
        broker_epoch: ours at the moment.
        replicas: our partitions.
        cache: knows where leaders listen.
        listener: name of the listener between brokers.
        outbox: sends.
        settings: see ``FetchSettings``.
        disk: held by whoever flushes or removes parts of logs.
        now_ms: the time.
        nursery: for the tasks.
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
        nursery: trio.Nursery,
    ) -> None:
        self._cache = cache
        self._listener = listener
        self._outbox = outbox
        self._settings = settings
        self._disk = disk
        self._nursery = nursery
        complain = Complaints(_logger.warning, trio.current_time)
        self._following = Following(broker_id, broker_epoch, replicas, settings, complain, now_ms)
        self._tasks: dict[int, _Task] = {}

    def refresh(self) -> None:
        """Assignments or addresses changed: every partition that follows is fetched from its leader, once."""
        wanted = self._following.wanted()
        for leader_id, task in self._tasks.items():
            task.source.take(wanted.pop(leader_id, set()))
            task.wake.set()
        for leader_id, names in wanted.items():
            task = self._tasks[leader_id] = _Task(Source(leader_id, names))
            self._nursery.start_soon(self._run, task)

    async def _run(self, task: _Task) -> None:
        """Fetch as long as there is something to be fetched from this leader."""
        source, backoff_ms = task.source, self._settings.backoff_ms
        while source.names:
            task.wake = trio.Event()
            address = self._cache.address(source.leader_id, self._listener)
            asked = self._following.ask_for(source.due(_time_ms()))
            if address is None or not asked:
                due_ms = source.due_ms if address is not None else float("inf")
                with trio.move_on_at(due_ms / 1000):
                    await task.wake.wait()
                continue
            end = await self._carry_out(address, self._following.round(source, asked))
            source.ended(asked, end, _time_ms(), backoff_ms)
            if end.wait_ms:
                with trio.move_on_after(end.wait_ms / 1000):
                    await task.wake.wait()
        if self._tasks.get(source.leader_id) is task:
            del self._tasks[source.leader_id]

    async def _carry_out(self, address: Address, steps: Steps[RoundEnd]) -> RoundEnd:
        try:
            wanted = next(steps)
            while True:
                if isinstance(wanted, Ask):
                    wanted = steps.send(await self._ask(address, wanted))
                else:
                    async with self._disk:
                        wanted = next(steps)
        except StopIteration as end:
            found: RoundEnd = end.value
            return found

    async def _ask(self, address: Address, wanted: Ask) -> Any:
        """The answer, or a `Failure`. Requests of a fetcher wait for one another only."""
        answers: list[Any] = []
        came = trio.Event()

        def done(answer: Any) -> None:
            answers.append(answer)
            came.set()

        self._outbox.send(
            address.host,
            address.port,
            wanted.request,
            self._settings.wait_max_ms + _ANSWER_SLACK_MS,
            done,
            min_version=wanted.min_version,
            max_version=wanted.max_version,
            lane=CONSENSUS,
        )
        await came.wait()
        return answers[0]


def _time_ms() -> float:
    return trio.current_time() * 1000
