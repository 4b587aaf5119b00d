"""While no leader answers: a note from time to time, which says how many voters or bootstrap servers answer.

A node that answers with a refusal, as a node of another cluster does, does not count, and is named with its refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from kraftcore.node.outbox import Outbox
from kraftcore.ports.transport import Address
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.failure import Failure
from kraftcore.raft.quorum import Voter, VoterSet
from kraftcore.raft.replica import Replica

FIRST_S, LONGEST_S = 5.0, 60.0  # pauses between notes: they double from the first to the longest
_SOON_S = 0.1  # between two looks, at least
_WORDS = {
    Failure.REFUSED: "refuses connections",
    Failure.RESET: "broke the connection",
    Failure.TIMED_OUT: "does not answer in time",
    Failure.UNSUPPORTED_VERSION: "speaks no common version",
    Failure.UNAUTHENTICATED: "does not accept this node's login",
    Failure.OTHER: "cannot be reached, or speaks another protocol",
}


class Leaderless:
    """Writes notes for the operator while no leader answers this node.

    Args:
        key: the node's id and directory id.
        bootstrap_servers: as configured.
        outbox: tells how the last request to each node ended.
        replica: tells the leader and the voters.
        silent_ms: returns for how long no leader has answered, milliseconds.
        note: gets a line for the operator.
    """

    def __init__(
        self,
        key: ReplicaKey,
        bootstrap_servers: Iterable[Address],
        outbox: Outbox,
        replica: Replica,
        silent_ms: Callable[[], int],
        note: Callable[[str], None],
    ) -> None:
        self._key = key
        self._servers = tuple(bootstrap_servers)
        self._outbox = outbox
        self._replica = replica
        self._silent_ms = silent_ms
        self._note = note

    async def run(self) -> None:
        """Write notes, until cancelled."""
        due_s = pause_s = FIRST_S  # of silence
        while True:
            silent_s = self._silent_ms() / 1000
            if self._replica.answering_leader_id is not None or silent_s < FIRST_S:
                due_s = pause_s = FIRST_S
            elif silent_s >= due_s:
                self._note(f"no leader has answered for {round(silent_s)} s: {self.describe()}")
                pause_s = min(pause_s * 2, LONGEST_S)
                due_s = silent_s + pause_s
            await trio.sleep(max(due_s - silent_s, _SOON_S))

    def describe(self) -> str:
        """How many of the voters or bootstrap servers answer and agree, and why the rest does not."""
        voters = self._replica.voters
        if voters.is_voter(self._key):
            text = self._answers("voters", _voters_but(voters, self._key), 1)
            if self._replica.is_on_probation:
                return (
                    f"{text}; all {len(voters)} are needed, once: this node's directory is new, and it counts when it "
                    "has heard from each other voter (docs/damage.md)"
                )
            return f"{text}; a majority, {voters.majority} of {len(voters)}, is needed"
        own = {(each.host, each.port) for each in self._replica.listeners}
        if servers := [at for at in self._servers if (at.host, at.port) not in own]:
            text = self._answers("bootstrap servers", {str(at): [(at.host, at.port)] for at in servers})
        elif self._servers:
            text = "there is nobody to ask: the bootstrap servers are this node itself"
        elif others := _voters_but(voters, self._key):
            text = self._answers("voters", others)
        else:
            text = "there is nobody to ask, no other voter and no bootstrap server"
        return text + self._why_no_voter(voters.get(self._key.id))

    def _why_no_voter(self, entry: Voter | None) -> str:
        if entry is None:
            return ""
        return (
            f"; this node is not voter {entry.key.id}, which has directory {entry.key.directory_id}, not "
            f"{self._key.directory_id}: its log is a copy, as an observer's mirror is, or its disk was replaced. Name "
            "nodes of the quorum in bootstrap_servers (controller.quorum.bootstrap.servers) for it to join them; if "
            "all voters are lost, let it go on alone: kraftcore storage recover-quorum (docs/damage.md, Restore)"
        )

    def _answers(self, who: str, places: dict[str, list[tuple[str, int]]], itself: int = 0) -> str:
        silent: list[str] = []
        refusing: list[str] = []
        for name, at in places.items():
            answering = [place for place in at if self._outbox.last(*place) is True]
            refusals = {place: why for place in answering if (why := self._replica.refusal_of(*place))}
            if not answering:
                silent.append(f"{name} ({self._why_silent(at)})")
            elif len(refusals) == len(answering):
                reasons = ", ".join(f"{host}:{port}: {why}" for (host, port), why in refusals.items())
                refusing.append(f"{name} ({reasons})")
        agreeing = len(places) - len(silent) - len(refusing) + itself
        text = f"{agreeing} of {len(places) + itself} {who} answer"
        text += " and agree" if refusing else ""
        text += ", this one included" if itself else ""
        text += f"; no answer from {', '.join(silent)}" if silent else ""
        return text + (f"; no agreement with {', '.join(refusing)}" if refusing else "")

    def _why_silent(self, places: list[tuple[str, int]]) -> str:
        found = [(place, self._outbox.last(*place)) for place in places]
        told = [f"{at[0]}:{at[1]} {self._in_words(at, last)}" for at, last in found if isinstance(last, Failure)]
        return ", ".join(told) or "not asked yet"

    def _in_words(self, place: tuple[str, int], failure: Failure) -> str:
        why = self._outbox.why_unreachable(*place) if failure is Failure.OTHER else None
        return _WORDS[failure] if why is None else f"cannot be reached: {why}"


def _voters_but(voters: VoterSet, key: ReplicaKey) -> dict[str, list[tuple[str, int]]]:
    return {
        f"voter {voter.key.id}": [(at.host, at.port) for at in voter.endpoints]
        for voter in voters
        if voter.key.id != key.id
    }
