"""Look, decide, act, tell; and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from kraftcore.admin import AdminClient, SurveyedError
from kraftcore.errors import KraftError, UnreachableError
from kraftcore.plugins.autopilot.deciding import decide
from kraftcore.plugins.autopilot.model import Action, Decision, Policy, State
from kraftcore.plugins.autopilot.watching import Watcher


@dataclass(frozen=True, slots=True)
class Round:
    """What one look led to.

    Attributes:
        state: the quorum; None if it could not be looked at.
        decisions: see ``decide``.
        applied: whether the first of them, a change, was carried out; None if none was tried.
        error: why the look or the change failed, or empty.
        failure: who answers, if the look or the change failed for want of answers.
    """

    state: State | None
    decisions: Sequence[Decision]
    applied: bool | None = None
    error: str = ""
    failure: SurveyedError | None = None


class Pilot:
    """Keeps a quorum as the policy says.

    Args:
        client: connected to the quorum's controllers.
        watcher: looks at the same quorum.
        policy: what is wanted.
        apply: carry decisions out; False: only tell them.
    """

    def __init__(self, client: AdminClient, watcher: Watcher, policy: Policy, *, apply: bool = False) -> None:
        self._client = client
        self._watcher = watcher
        self._policy = policy
        self._apply = apply

    async def step(self) -> Round:
        """Look once, and carry out what that led to. What fails is in the result."""
        try:
            state = await self._watcher.look()
        except KraftError as error:
            return Round(None, (), error=f"the quorum cannot be looked at: {_words(error)}", failure=_surveyed(error))
        decisions = decide(state, self._watcher.now_ms(), self._policy)
        if not self._apply or not decisions or decisions[0].action is Action.HOLD:
            return Round(state, decisions)
        try:
            await self._carry_out(decisions[0])
        except KraftError as error:
            return Round(state, decisions, applied=False, error=_words(error), failure=_surveyed(error))
        return Round(state, decisions, applied=True)

    async def _carry_out(self, decision: Decision) -> None:
        key = decision.key
        if key is None:
            return
        cluster_id = self._watcher.cluster_id
        if decision.action is Action.ADD:
            await self._client.add_voter(key.id, key.directory_id, decision.endpoints, cluster_id=cluster_id)
        else:
            await self._client.remove_voter(key.id, key.directory_id, cluster_id=cluster_id)

    async def run(self, tell: Callable[[Round], None], interval_ms: int = 5000) -> None:
        """Go on until cancelled.

        Args:
            tell: called after each round.
            interval_ms: pause between two rounds, > 0.
        """
        while True:
            tell(await self.step())
            await trio.sleep(interval_ms / 1000)


def _words(error: KraftError) -> str:
    if not isinstance(error, UnreachableError):
        return str(error)
    return "; ".join((str(error), *(error.findings or (error.last_failure,))))


def _surveyed(error: KraftError) -> SurveyedError | None:
    return error if isinstance(error, SurveyedError) else None
