"""The schedule of a follower's fetches: which leader is asked for which partitions, and when; no sockets or clock.

Each leader has a `FetchTask`. While the leader holds a request, a second task asks for partitions that were added
since. A task is a generator. It yields `Pause`, and is resumed when the pause ends or the task is woken. Or it
yields ``EXCLUSIVE`` and then functions (see ``follower_fetch``), and is resumed with the error of each, or None.
``fetch_tasks`` runs the tasks on trio, the simulator in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kraftcore.errors import KraftError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replication.follower_fetch import (
    EXCLUSIVE,
    Ask,
    FetchSettings,
    Following,
    RoundEnd,
    Source,
    Steps,
)
from kraftcore.plugins.broker.replication.leader_session import LeaderSession

_BESIDE_WAIT_MS: Final = 20
_FOREVER: Final = float("inf")


class Pause(NamedTuple):
    """A task yields this when it has nothing to do.

    Attributes:
        until_ms: when the task is resumed at the latest; infinity: only when it is woken.
    """

    until_ms: float = _FOREVER


TaskSteps: TypeAlias = Generator[Any, Any, None]


class FetchTask:
    """A task that fetches from a leader, alone or beside another task; see the module text.

    Attributes:
        steps: the generator.
        is_woken: whether the task is to be resumed before its pause ends; the runner sets this back.
        on_wake: called when the task is woken.
    """

    __slots__ = ("is_woken", "on_wake", "steps")

    def __init__(self) -> None:
        self.steps: TaskSteps
        self.is_woken = False
        self.on_wake: Callable[[], object] = _nothing

    def wake(self) -> None:
        """End the task's pause."""
        self.is_woken = True
        self.on_wake()


class Ports(Protocol):
    """What the schedule needs of its runner."""

    def time_ms(self) -> float:
        """The time of pauses, milliseconds; it never goes back."""

    def address(self, leader_id: int) -> Any:
        """The address of a leader, for `ask`; None: unknown."""

    def ask(self, address: Any, wanted: Ask, done: Callable[[Any], None], *, is_beside: bool) -> None:
        """Send a request; ``done`` is called later with the answer, or a ``Failure``.

        Args:
            address: the address of the leader.
            wanted: the request.
            done: called once.
            is_beside: whether the request goes beside another one, whose answer it must not wait for.
        """

    def start(self, task: FetchTask) -> None:
        """Begin to run a task soon."""


@dataclass(slots=True)
class _Leader:
    """The fetching from one leader.

    Attributes:
        source: the partitions that are fetched.
        rounds: the rounds that the task runs.
        task: the task that fetches.
        has_changed: whether ``source`` has changed since the task looked.
        has_beside: whether a second task asks for partitions beside the request on its way.
    """

    source: Source
    rounds: _Rounds
    task: FetchTask
    has_changed: bool = False
    has_beside: bool = False

    @property
    def left_out(self) -> set[TopicPartition]:
        """The partitions, but for pausing ones, that the request on its way leaves out; none without a request."""
        asked = self.rounds.awaited
        return set() if asked is None else self.source.names - asked - self.source.not_before.keys()


class Fetching:
    """Decides which leader is asked for which partitions, and when.

    Args:
        following: makes the requests and applies the answers.
        settings: see ``FetchSettings``.
        ports: see `Ports`.
    """

    def __init__(self, following: Following, settings: FetchSettings, ports: Ports) -> None:
        self._following = following
        self._settings = settings
        self._ports = ports
        self._leaders: dict[int, _Leader] = {}

    def refresh(self) -> None:
        """Fetch every following partition from its leader, after assignments or addresses have changed.

        A leader may hold the request on its way for `FetchSettings.wait_max_ms`. A second task asks for partitions that
        this request leaves out, until the next request names them: new records need not wait for so long.
        """
        wanted = self._following.wanted()
        for leader_id, leader in self._leaders.items():
            leader.source.take(wanted.pop(leader_id, set()))
            leader.has_changed = True
            leader.task.wake()
            if leader.left_out and not leader.has_beside:
                leader.has_beside = True
                task = FetchTask()
                task.steps = self._fetch_beside(leader, task)
                self._ports.start(task)
        for leader_id, names in wanted.items():
            source, task = Source(leader_id, names), FetchTask()
            rounds = _Rounds(self._following, self._settings, self._ports, source, task)
            leader = self._leaders[leader_id] = _Leader(source, rounds, task)
            task.steps = self._fetch(leader)
            self._ports.start(task)

    def _fetch(self, leader: _Leader) -> TaskSteps:
        source, rounds = leader.source, leader.rounds
        try:
            while source.names:
                leader.has_changed = False
                if rounds.begin():
                    wait_ms = yield from rounds.finish()
                    if not wait_ms:
                        continue
                    until_ms = self._ports.time_ms() + wait_ms
                else:
                    until_ms = source.due_ms if self._ports.address(source.leader_id) is not None else _FOREVER
                while not leader.has_changed and self._ports.time_ms() < until_ms:
                    yield Pause(until_ms)
        finally:
            rounds.close()
        if self._leaders.get(source.leader_id) is leader:
            del self._leaders[source.leader_id]

    def _fetch_beside(self, leader: _Leader, task: FetchTask) -> TaskSteps:
        """Ask for the partitions that the request on its way leaves out, until the next request names them."""
        session = LeaderSession(is_wanted=False)
        source = Source(leader.source.leader_id, session=session, wait_max_ms=_BESIDE_WAIT_MS)
        rounds = _Rounds(self._following, self._settings, self._ports, source, task, is_beside=True)
        try:
            while names := leader.left_out:
                source.ask_only(names)
                if rounds.begin():
                    if (yield from rounds.finish()):
                        return
                elif self._ports.address(source.leader_id) is None or source.due_ms == _FOREVER:
                    return
                else:
                    until_ms = source.due_ms
                    while self._ports.time_ms() < until_ms:
                        yield Pause(until_ms)
        finally:
            rounds.close()
            leader.has_beside = False


class _Rounds:
    """Rounds with one leader; a round begins in the call that read the last answer, until one has to wait.

    So a record needs no task switch between the socket and the log, nor between the log and the next request.

    Args:
        following: makes the requests and applies the answers.
        settings: see ``FetchSettings``.
        ports: see `Ports`.
        source: the partitions that are fetched.
        task: woken when a round needs the task.
        is_beside: whether the rounds are those of a second task: they end after one round.
    """

    def __init__(
        self,
        following: Following,
        settings: FetchSettings,
        ports: Ports,
        source: Source,
        task: FetchTask,
        *,
        is_beside: bool = False,
    ) -> None:
        self._following = following
        self._settings = settings
        self._ports = ports
        self._source = source
        self._task = task
        self._is_beside = is_beside
        self._needs_task = False
        self._steps: Steps[RoundEnd] | None = None
        self._wanted: Any = None
        self._error: Exception | None = None
        self._wait_ms = 0
        self._address: Any = None

    @property
    def awaited(self) -> set[TopicPartition] | None:
        """The partitions of the present round; None: there is no round."""
        return None if self._steps is None else set(self._source.asked)

    def begin(self) -> bool:
        """Begin a round; False: no partition is to be asked for, or the leader's address is unknown."""
        source = self._source
        address = self._ports.address(source.leader_id)
        if address is None or not source.names:
            return False
        if not self._following.look(source, self._ports.time_ms()):
            return False
        self._address = address
        self._steps = self._following.round(source)
        self._resume(None)
        return True

    def finish(self) -> Steps[int]:
        """Run rounds until one has to wait, or none can begin; return the milliseconds to wait."""
        while True:
            while not self._needs_task:
                yield Pause()
            self._needs_task = False
            if self._error is not None:
                raise self._error
            if self._steps is None:
                return self._wait_ms
            yield EXCLUSIVE
            self._resume(None)
            while self._error is None and self._steps is not None and callable(self._wanted):
                self._needs_task = False
                error = yield self._wanted
                self._resume(None, error)

    def close(self) -> None:
        """Drop answers that are still to come."""
        self._steps, self._address = None, None

    def _need_task(self) -> None:
        self._needs_task = True
        self._task.wake()

    def _resume(self, answer: Any, failed: KraftError | None = None) -> None:
        """Go on until an answer is awaited, or the task is needed; the task raises an error, not this call."""
        try:
            self._advance(answer, failed)
        except Exception as error:
            self._error = error
            self._need_task()

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
            self._ports.ask(address, wanted, self._resume, is_beside=self._is_beside)
        else:
            self._need_task()

    def _ended(self, end: RoundEnd) -> None:
        self._steps = None
        self._source.ended(end, self._ports.time_ms(), self._settings.backoff_ms)
        self._wait_ms = end.wait_ms
        if end.wait_ms or self._is_beside or not self.begin():
            self._need_task()


def _nothing() -> None:
    """Wake no task."""
