"""A controller as others see it, without I/O: requests, leadership and time in; steps to an executor, and answers, out.

Whoever runs it (a node, the simulator) is a `Seat`. Nothing here waits, reads a clock or draws a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraftcore.errors import KraftError, NodeStoppedError, NotLeaderError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.controller import features
from kraftcore.plugins.controller.access import Gate
from kraftcore.plugins.controller.life import Life, Step
from kraftcore.plugins.controller.registry import APIS
from kraftcore.plugins.controller.requests import RequestStep, not_controller_text
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Outcome

ANSWERED_BY_ALL: Final = frozenset({DescribeAclsRequest, DescribeConfigsRequest})
"""Decided by any controller, active or not, from what it has applied."""


class Seat(Protocol):
    """Where a controller sits: what it needs of the replica below it."""

    def decide(self, step: Step) -> None:
        """Hand a step to the executor.

        Raises:
            NotLeaderError, NodeStoppedError: it takes none; the step is not told anything.
        """

    def now_ms(self) -> int:
        """The time, milliseconds since 1970."""

    def resign(self) -> None:
        """Give leadership up, if it is held."""

    @property
    def other_leader_id(self) -> int | None:
        """Who leads, if it is known and not this one."""

    def raise_kraft_version(self, level: int, validate_only: bool, done: Callable[[Outcome], None]) -> None:
        """Ask the consensus for another kraft.version."""


class Service:
    """Turns requests, changes of leadership and time into steps for an executor, and into answers.

    Args:
        life: decides.
        gate: knows who may do what.
        seat: runs it.

    Attributes:
        life: as given.
    """

    def __init__(self, life: Life, gate: Gate, seat: Seat) -> None:
        self.life = life
        self._gate = gate
        self._seat = seat

    # --- leadership and time ------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """The replica leads, and all the log holds is committed and applied."""
        if self.life.epoch == epoch:
            return
        step = self.life.lead(epoch, self._seat.now_ms())
        if step is not None:
            self._hand_in(step)

    def follow(self) -> None:
        """The replica leads no more."""
        self.life.follow()

    def pass_time(self) -> None:
        """Let timers do what is due; ``life.due_ms`` says when there is something."""
        life, now_ms = self.life, self._seat.now_ms()
        if life.must_resign and life.due_ms is not None and life.due_ms <= now_ms:
            life.must_resign = False
            self._seat.resign()
        for step in life.due(now_ms):
            self._hand_in(step)

    def _hand_in(self, step: Step) -> None:
        try:
            self._seat.decide(step)
        except KraftError as error:
            step.failed(error)

    # --- requests -----------------------------------------------------------------------------------------------------

    def ask(self, request: Request, context: RequestContext) -> RequestStep:
        """Take a request in; ``context`` hears the answer, now or later.

        Args:
            request: one of ``registry.APIS``.
            context: where it comes from.
        """
        life = self.life
        asked = RequestStep(life, self._gate, APIS[type(request)], request, context)
        if not life.is_active:
            if type(request) in ANSWERED_BY_ALL:
                asked.answer_at_once()
            elif not asked.is_refused():
                self._refuse(asked)
            return asked
        life.now_ms = max(life.now_ms, self._seat.now_ms())
        if not (isinstance(request, UpdateFeaturesRequest) and self._asks_consensus(asked)):
            self._decide(asked)
        return asked

    def _decide(self, asked: RequestStep) -> None:
        try:
            self._seat.decide(asked)
        except NotLeaderError:
            self._refuse(asked)
        except NodeStoppedError as error:
            asked.failed(error)

    def _refuse(self, asked: RequestStep) -> None:
        asked.refuse(ErrorCode.NOT_CONTROLLER, not_controller_text(self._seat.other_leader_id))

    def _asks_consensus(self, asked: RequestStep) -> bool:
        """kraft.version is raised first; the decision follows and finds it raised."""
        tried = asked.try_out()
        wanted = None if tried is None else tried.kraft_upgrade
        if wanted is None:
            return False

        def done(outcome: Outcome) -> None:
            if outcome.error is ErrorCode.NONE:
                self._decide(asked)
            elif outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._refuse(asked)
            else:
                asked.answer(features.refused_upgrade(wanted.level, outcome.error, outcome.message))

        self._seat.raise_kraft_version(wanted.level, wanted.validate_only, done)
        return True
