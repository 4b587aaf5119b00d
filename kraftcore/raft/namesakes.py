"""Two processes that use one node id: the leader finds them, says so, and serves one of them.

An id stands for one process with one directory, and a leader knows who fetches by both. Two processes run where

* somebody fetches by the leader's own id, with another directory; or
* two directories of an id fetch in turns: one, the other, and the one again. Where a disk was replaced the new
  directory fetches after the old one, and the old one never again.

The one that is not served, and does not count, is the one that is not in the voter set; of two whose ids alone are
known there (kraft.version 0), or that both observe, the one that came later. It is answered
DUPLICATE_BROKER_REGISTRATION for as long as the other one fetches, and stops asking to be made a voter.

Source: ours. Kafka 4.3.1 serves both, and at kraft.version 0 counts both as one voter.
"""

from __future__ import annotations

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.roles import REPLICAS_MAX, Leader
from kraftcore.raft.state import RaftState

WHAT_TO_DO = "stop the one that is wrong, or give it another node_id (node.id), and an empty directory"
"""About two processes of one node id."""


class Namesakes:
    """Tells which of two processes of one node id a leader serves, and notes that there are two.

    Args:
        state: the leader's own: its key, its voter set, its clock, and where notes for the operator go.
    """

    def __init__(self, state: RaftState) -> None:
        self._state = state

    def is_ours(self, key: ReplicaKey) -> bool:
        """Whether a replica that fetches is another process of our own id; notes it."""
        own = self._state.config.key
        if key.id != own.id or key.id < 0 or not key.has_directory or key == own:
            return False
        self._note(
            key.id,
            f"another process uses node id {own.id}, which is this node's: it fetches with directory "
            f"{key.directory_id}",
        )
        return True

    def refuses(self, role: Leader, key: ReplicaKey) -> bool:
        """Whether a replica's Fetch is refused because another process of its id fetches; notes it.

        Args:
            role: the leader's own; remembers who fetches.
            key: of the replica; its Fetch was not counted yet.
        """
        if key.id < 0 or not key.has_directory:
            return False
        served, refused = role.served.get(key.id, (None, None))
        if served == key:
            return False
        if served is not None:
            if key == refused and self._fetches(role, served):
                return True
            if self._fetches(role, key):  # and the other one since then
                voters = self._state.voters.keys
                winner = served if served in voters and key not in voters else key
                loser = key if winner == served else served
                role.served[key.id] = (winner, loser)
                self._note(
                    key.id,
                    f"two processes use node id {key.id}: one fetches with directory "
                    f"{winner.directory_id}, and is served, one with {loser.directory_id}, and is not",
                )
                return loser == key
        elif len(role.served) >= REPLICAS_MAX:
            role.served.clear()
        role.served[key.id] = (key, None)
        return False

    def _fetches(self, role: Leader, key: ReplicaKey) -> bool:
        progress = role.replicas.get(key)
        return (
            progress is not None and progress.last_fetch_ms >= self._state.now_ms - self._state.config.fetch_timeout_ms
        )

    def _note(self, replica_id: int, text: str) -> None:
        self._state.note_seldom(f"{text}. {WHAT_TO_DO.capitalize()}", about=f"node id {replica_id}")
