"""What to do about a quorum: a pure function.

Rules of this file:

* One change at a time, and none before the last one is committed. (The leader refuses that as well.)
* A change is proposed only if, with the new voter set, those who are alive now are a majority: the new set decides as
  soon as it is in the leader's log (KIP-853), its own commit included. Whoever is not known to be alive counts as dead.
* Removing comes before adding: so the quorum depends on proven voters meanwhile. A voter whose disk was replaced has
  to go first anyway, because its id can be in the set only once.
* The leader is never removed.
* Whatever is not as wanted and not done is explained by a HOLD.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.plugins.autopilot.model import Action, Decision, Policy, Replica, State


def decide(state: State, now_ms: int, policy: Policy) -> list[Decision]:
    """Compare a quorum with what is wanted.

    Args:
        state: the quorum.
        now_ms: milliseconds, on the same clock as the times in ``state``.
        policy: what is wanted.

    Returns:
        At most one change, first; then what is left as it is, and why. Empty: all is as wanted.
    """
    return _Look(state, now_ms, policy).decide()


def majority(voters: int) -> int:
    """How many of so many voters decide."""
    return voters // 2 + 1


class _Look:
    def __init__(self, state: State, now_ms: int, policy: Policy) -> None:
        self.state = state
        self.now_ms = now_ms
        self.policy = policy
        self.holds: list[Decision] = []
        self.alive = {voter.key for voter in state.voters if self._is_alive(voter)}
        self.ids = {voter.key.id for voter in state.voters}
        self.dead = [voter for voter in state.voters if self._is_dead(voter)]

    def decide(self) -> list[Decision]:
        state = self.state
        if not state.is_settled:
            return [Decision(Action.HOLD, None, "the leader has not committed anything in its epoch yet")]
        if any(not voter.key.has_directory for voter in state.voters):
            reason = (
                "kraft.version is 0, where voters cannot change: kraftcore features upgrade --feature kraft.version=1"
            )
            return [Decision(Action.HOLD, None, reason)]
        ready = [each for each in state.observers if self._is_ready(each)]
        change = self._replace(ready) or self._remove_dead(ready) or self._remove_surplus() or self._add(ready)
        if change is None and len(state.voters) < self.policy.voters and not self.holds:
            self._explain_waiting()
        return ([change] if change is not None else []) + self.holds

    def _hold(self, replica: Replica | None, reason: str) -> None:
        self.holds.append(Decision(Action.HOLD, None if replica is None else replica.key, reason))

    def _explain_waiting(self) -> None:
        waiting = [each for each in self.state.observers if each.endpoints and each.key.id not in self.ids]
        for observer in waiting:
            self._hold(observer, f"it may not join: {self._unready(observer)}")
        count = f"{len(self.state.voters)} of {self.policy.voters} voters"
        self._hold(
            None, f"{count}, and no controller is ready to join" if waiting else f"{count}, and no controller waits"
        )

    # --- who is what --------------------------------------------------------------------------------------------------

    def _is_alive(self, replica: Replica) -> bool:
        leads = replica.key.id == self.state.leader_id and replica in self.state.voters
        return leads or self._silence_ms(replica) <= self.policy.alive_within_ms

    def _is_dead(self, voter: Replica) -> bool:
        return voter.key not in self.alive and self._silence_ms(voter) > self.policy.dead_after_ms

    def _silence_ms(self, replica: Replica) -> int:
        return self.now_ms - replica.last_fetch_ms

    def _is_ready(self, observer: Replica) -> bool:
        return not self._unready(observer)

    def _unready(self, observer: Replica) -> str:
        """Why an observer is no candidate, or an empty text."""
        candidates = self.policy.candidates
        if not observer.endpoints:
            return "where it listens is unknown: it is a broker, or has not registered"
        if not observer.key.has_directory:
            return "its directory id is unknown"
        if candidates is not None and observer.key.id not in candidates:
            return "it is not among the candidates"
        if not self._is_alive(observer):
            return "it does not fetch"
        if observer.caught_up_ms is None or self.now_ms - observer.caught_up_ms > self.policy.ready_within_ms:
            return "it has not caught up"
        return ""

    def _stays_safe_without(self, voter: Replica) -> bool:
        left = len(self.state.voters) - 1
        return left >= 1 and len(self.alive - {voter.key}) >= majority(left)

    def _counts_without(self, voter: Replica) -> str:
        left = len(self.state.voters) - 1
        return f"of the {left} left {len(self.alive - {voter.key})} are alive, {majority(left)} have to be"

    # --- changes ------------------------------------------------------------------------------------------------------

    def _replace(self, ready: Sequence[Replica]) -> Decision | None:
        """A voter's node came back with an empty disk: same id, another directory id."""
        by_id = {each.key.id: each for each in ready}
        for voter in self.state.voters:
            successor = by_id.get(voter.key.id)
            if successor is None or voter.key.id == self.state.leader_id:
                continue
            new = f"node {voter.key.id} now runs with directory {successor.key.directory_id}, which has caught up"
            if voter.key in self.alive:
                self._hold(voter, f"{new}, but the old one still fetches: do two nodes have this id?")
            elif not self._stays_safe_without(voter):
                self._hold(voter, f"{new}; it cannot be removed for that: {self._counts_without(voter)}")
            else:
                return self._remove(voter, f"{new}; {self._counts_without(voter)}; the new one can be added then")
        return None

    def _remove_dead(self, ready: Sequence[Replica]) -> Decision | None:
        replacements = [each for each in ready if each.key.id not in self.ids]
        coming = {each.key.id for each in self.state.observers if each.endpoints and self._is_alive(each)}
        for voter in self.dead:
            silent = f"it has not fetched for more than {self.policy.dead_after_ms / 1000:g} s"
            if voter.answers and voter.key.id not in coming:
                self._hold(voter, f"{silent}, but its node answers: see why it does not reach the leader")
            elif not self._stays_safe_without(voter):
                self._hold(voter, f"{silent}; removing it is not safe: {self._counts_without(voter)}")
            elif len(self.state.voters) > self.policy.min_voters or replacements:
                then = f"; {replacements[0].key.id} is ready to replace it" if replacements else ""
                return self._remove(voter, f"{silent}; {self._counts_without(voter)}{then}")
            else:
                self._hold(voter, f"{silent}; at least {self.policy.min_voters} voters are to stay: start another one")
        return None

    def _remove_surplus(self) -> Decision | None:
        state, wanted = self.state, self.policy.voters
        if len(state.voters) <= wanted:
            return None
        # The one that is missed least: silent, then slow, then the highest id.
        order = sorted(
            (voter for voter in state.voters if voter.key.id != state.leader_id),
            key=lambda voter: (voter.key in self.alive, -voter.lag, -voter.key.id),
        )
        for voter in order:
            if self._stays_safe_without(voter) and (voter.key in self.alive or voter in self.dead):
                count = len(state.voters)
                return self._remove(voter, f"{count} voters, {wanted} are wanted; {self._counts_without(voter)}")
        self._hold(None, f"{len(state.voters)} voters, {wanted} are wanted; none of them can be removed safely now")
        return None

    def _add(self, ready: Sequence[Replica]) -> Decision | None:
        count = len(self.state.voters)
        if count >= self.policy.voters:
            return None
        free = sorted((each for each in ready if each.key.id not in self.ids), key=lambda each: each.key.id)
        for candidate in free:
            alive, needed = len(self.alive) + 1, majority(count + 1)
            counts = f"of the {count + 1} then {alive} are alive, {needed} have to be"
            if alive < needed:
                self._hold(candidate, f"it is ready to join, but that is not safe: {counts}")
                continue
            reason = f"{count} of {self.policy.voters} voters, and it has caught up; {counts}"
            return Decision(Action.ADD, candidate.key, reason, candidate.endpoints)
        return None

    def _remove(self, voter: Replica, reason: str) -> Decision:
        return Decision(Action.REMOVE, voter.key, reason)
