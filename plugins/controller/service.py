"""The controller without I/O: takes requests, leadership and time; gives steps to an executor, and answers.

A node or the simulator runs it, as its `Seat`. Nothing here waits, reads a clock or draws a random number.
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
"""Requests that any controller decides, active or not, from the records it has applied."""


class Seat(Protocol):
    """The functions of the replica that the controller uses."""

    def decide(self, step: Step) -> None:
        """Hand a step to the executor.

        Raises:
            NotLeaderError, NodeStoppedError: the executor takes no steps; the step is not told anything.
        """

    def now_ms(self) -> int:
        """The time, milliseconds since 1970."""

    def resign(self) -> None:
        """Give leadership up, if it is held."""

    @property
    def other_leader_id(self) -> int | None:
        """The leader's id, if it is known and not this node's; else None."""

    def raise_kraft_version(self, level: int, validate_only: bool, done: Callable[[Outcome], None]) -> None:
        """Have the consensus raise kraft.version; ``done`` gets the outcome."""


class Service:
    """Turns requests, changes of leadership and time into steps for an executor, and into answers.

    Args:
        life: makes decisions.
        gate: authorizes.
        seat: runs the steps.

    Attributes:
        life: as given.
    """

    def __init__(self, life: Life, gate: Gate, seat: Seat) -> None:
        self.life = life
        self._gate = gate
        self._seat = seat

    # --- leadership and time ------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """Become active: the replica leads, and everything in the log is committed and applied."""
        if self.life.epoch == epoch:
            return
        step = self.life.lead(epoch, self._seat.now_ms())
        if step is not None:
            self._hand_in(step)

    def follow(self) -> None:
        """Stop being active: the replica does not lead any more."""
        self.life.follow()

    def pass_time(self) -> None:
        """Run the timers that are due; ``life.due_ms`` says when the next one is."""
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
        """Take a request; ``context`` gets the answer, now or later.

        Args:
            request: one of ``registry.APIS``.
            context: names the asker.
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
        """Whether the consensus must raise kraft.version first, and is asked to; the decision follows later."""
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
