"""Fetching from leaders on trio: the rounds of ``following``, and a task for each leader for when they have to wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from kraftcore.errors import KraftError
from kraftcore.node.outbox import CONSENSUS, FORWARDS, Outbox
from kraftcore.plugins.broker.following import Ask, Asked, FetchSettings, Following, RoundEnd, Source, Steps
from kraftcore.plugins.broker.leader_session import LeaderSession
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.transport import Address

_BESIDE_WAIT_MS = 20
_ANSWER_SLACK_MS = 30_000  # what a request may take beyond its waiting time (replica.socket.timeout.ms)

_logger = logging.getLogger("kraftcore.broker")


@dataclass(slots=True)
class _Task:
    """A leader's task.

    Attributes:
        source: what it fetches.
        rounds: that it runs.
        wake: set when ``source`` changed.
        has_beside: another task asks for what the request on its way does not, see ``Fetchers.refresh``.
    """

    source: Source
    rounds: _Rounds
    wake: trio.Event = field(default_factory=trio.Event)
    has_beside: bool = False

    @property
    def left_out(self) -> set[TopicPartition]:
        """Partitions that the request on its way does not ask for, but for those that pause; none without a request."""
        asked = self.rounds.awaited
        return set() if asked is None else self.source.names - asked - self.source.not_before.keys()


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
        """Assignments or addresses changed: every partition that follows is fetched from its leader.

        A leader may hold the request on its way for `FetchSettings.wait_max_ms`. Partitions that it leaves out are
        asked for beside it until the next one does: what was written to a new leader need not wait for so long.
        """
        wanted = self._following.wanted()
        for leader_id, task in self._tasks.items():
            task.source.take(wanted.pop(leader_id, set()))
            task.wake.set()
            if task.left_out and not task.has_beside:
                task.has_beside = True
                self._nursery.start_soon(self._run_beside, task)
        for leader_id, names in wanted.items():
            source = Source(leader_id, names)
            task = self._tasks[leader_id] = _Task(source, _Rounds(self, source, CONSENSUS))
            self._nursery.start_soon(self._run, task)

    async def _run_beside(self, task: _Task) -> None:
        """Ask for what a request on its way leaves out, until the next one does."""
        session = LeaderSession(is_wanted=False)
        source = Source(task.source.leader_id, session=session, wait_max_ms=_BESIDE_WAIT_MS)
        rounds = _Rounds(self, source, FORWARDS, goes_on=False)
        try:
            while names := task.left_out:
                source.names = names
                if rounds.begin():
                    if await rounds.finish(self._disk):
                        return
                elif self._address(source) is None or source.due_ms == float("inf"):
                    return
                else:
                    await trio.sleep_until(source.due_ms / 1000)
        finally:
            rounds.close()
            task.has_beside = False

    async def _run(self, task: _Task) -> None:
        """Fetch as long as there is something to be fetched from this leader."""
        source, rounds = task.source, task.rounds
        try:
            while source.names:
                task.wake = trio.Event()
                if rounds.begin():
                    wait_ms = await rounds.finish(self._disk)
                    if not wait_ms:
                        continue
                    until_ms = _time_ms() + wait_ms
                else:
                    until_ms = source.due_ms if self._address(source) is not None else float("inf")
                with trio.move_on_at(until_ms / 1000):
                    await task.wake.wait()
        finally:
            rounds.close()
        if self._tasks.get(source.leader_id) is task:
            del self._tasks[source.leader_id]

    def _address(self, source: Source) -> Address | None:
        return self._cache.address(source.leader_id, self._listener)

    def _next(self, source: Source) -> tuple[Address, dict[TopicPartition, Asked]] | None:
        """Whom to ask for what now; None: nothing, or nobody."""
        address = self._address(source)
        if address is None or not source.names:
            return None
        asked = self._following.ask_for(source.due(_time_ms()))
        return (address, asked) if asked else None

    def _ask(self, address: Address, lane: int, wanted: Ask, done: Callable[[Any], None]) -> None:
        """``done`` gets the answer, or a `Failure`, later. Requests of a lane wait for one another only."""
        self._outbox.send(
            address.host,
            address.port,
            wanted.request,
            self._settings.wait_max_ms + _ANSWER_SLACK_MS,
            done,
            min_version=wanted.min_version,
            max_version=wanted.max_version,
            lane=lane,
        )


class _Rounds:
    """Rounds with one leader, the next one begun where the last one's answer was read, until one has to wait.

    So a record needs no task switch between the socket and the log, nor between the log and the next request.

    Args:
        fetchers: whose they are.
        source: what is fetched.
        lane: of the connection, see ``kraftcore.node.outbox``.
        goes_on: False: one round is all; whoever began it begins the next.
    """

    def __init__(self, fetchers: Fetchers, source: Source, lane: int, *, goes_on: bool = True) -> None:
        self._goes_on = goes_on
        self._fetchers = fetchers
        self._source = source
        self._lane = lane
        self._needs_task = trio.Event()
        self._steps: Steps[RoundEnd] | None = None
        self._wanted: Any = None
        self._error: Exception | None = None
        self._wait_ms = 0
        self._asked: dict[TopicPartition, Asked] = {}
        self._address: Address | None = None

    @property
    def awaited(self) -> set[TopicPartition] | None:
        """The partitions of the round that is under way; None: there is none."""
        return None if self._steps is None else set(self._asked)

    def begin(self) -> bool:
        """Begin a round; False: there is nothing to be asked, or nobody."""
        found = self._fetchers._next(self._source)
        if found is None:
            return False
        self._address, self._asked = found
        self._steps = self._fetchers._following.round(self._source, self._asked)
        self._resume(None)
        return True

    async def finish(self, disk: trio.Lock) -> int:
        """Wait until a round has to wait, or none can be begun; returns the milliseconds to wait."""
        while True:
            await self._needs_task.wait()
            self._needs_task = trio.Event()
            if self._error is not None:
                raise self._error
            if self._steps is None:
                return self._wait_ms
            async with disk:
                self._resume(None)
                while self._error is None and self._steps is not None and callable(self._wanted):
                    self._needs_task = trio.Event()
                    self._resume(None, await _do(self._wanted))

    def close(self) -> None:
        """Answers that are still to come are dropped."""
        self._steps, self._address = None, None

    def _resume(self, answer: Any, failed: KraftError | None = None) -> None:
        """Go on until an answer is awaited, or the task is needed; what is raised is the task's, not the reader's."""
        try:
            self._advance(answer, failed)
        except Exception as error:
            self._error = error
            self._needs_task.set()

    def _advance(self, answer: Any, failed: KraftError | None) -> None:
        steps, address = self._steps, self._address
        if steps is None or address is None:
            return
        try:
            self._wanted = wanted = steps.send(answer) if failed is None else steps.throw(failed)
        except StopIteration as end:
            self._ended(end.value)
            return
        if isinstance(wanted, Ask):
            self._fetchers._ask(address, self._lane, wanted, self._resume)
        else:
            self._needs_task.set()

    def _ended(self, end: RoundEnd) -> None:
        self._steps = None
        self._source.ended(self._asked, end, _time_ms(), self._fetchers._settings.backoff_ms)
        self._wait_ms = end.wait_ms
        if end.wait_ms or not self._goes_on or not self.begin():
            self._needs_task.set()


async def _do(work: Callable[[], object]) -> KraftError | None:
    """Have a thread do it: what made it fail, or None."""
    try:
        await trio.to_thread.run_sync(work)
    except KraftError as error:
        return error
    return None


def _time_ms() -> float:
    return trio.current_time() * 1000
