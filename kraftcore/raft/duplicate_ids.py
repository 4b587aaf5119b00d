"""Two processes that use one node id: the leader finds them, notes them, and serves one of the two.

An id stands for one process with one directory, and a leader knows both of each replica that fetches. Two processes run
where

* a replica fetches by the leader's own id, with another directory; or
* two directories of an id fetch in turns: one, the other, and the first again. Where a disk was replaced the new
  directory fetches after the old one, and the old one never again.

The leader serves the one that is in the voter set. If both or neither is, which includes kraft.version 0, where only
ids are known, it serves the one that came first. As long as that one fetches, the other process does not count and is
answered DUPLICATE_BROKER_REGISTRATION, and so stops asking to be made a voter.

Source: ours. Kafka 4.3.1 serves both, and at kraft.version 0 counts both as one voter.
"""

from __future__ import annotations

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.roles import REPLICAS_MAX, Leader
from kraftcore.raft.state import RaftState

WHAT_TO_DO = "stop the one that is wrong, or give it another node_id (node.id), and an empty directory"
"""About two processes of one node id."""


def is_ours(state: RaftState, key: ReplicaKey) -> bool:
    """Whether a replica that fetches uses this node's own id from another directory; notes that."""
    own = state.config.key
    if key.id != own.id or key.id < 0 or not key.has_directory or key == own:
        return False
    _note(
        state,
        key.id,
        f"another process uses node id {own.id}, which is this node's: it fetches with directory {key.directory_id}",
    )
    return True


def refuses(state: RaftState, role: Leader, key: ReplicaKey) -> bool:
    """Whether a replica's Fetch is refused because another process of its id fetches; notes that.

    Args:
        role: of this leader; it remembers which directories fetch.
        key: of the replica, whose Fetch was not counted yet.
    """
    if key.id < 0 or not key.has_directory:
        return False
    served, refused = role.served.get(key.id, (None, None))
    if served == key:
        return False
    if served is not None:
        if key == refused and _fetches(state, role, served):
            return True
        if _fetches(state, role, key):  # ``key`` has fetched before, and ``served`` since then
            voters = state.voters.keys
            winner = served if served in voters and key not in voters else key
            loser = key if winner == served else served
            role.served[key.id] = (winner, loser)
            _note(
                state,
                key.id,
                f"two processes use node id {key.id}: one fetches with directory "
                f"{winner.directory_id}, and is served, one with {loser.directory_id}, and is not",
            )
            return loser == key
    elif len(role.served) >= REPLICAS_MAX:
        role.served.clear()
    role.served[key.id] = (key, None)
    return False


def _fetches(state: RaftState, role: Leader, key: ReplicaKey) -> bool:
    progress = role.replicas.get(key)
    return progress is not None and progress.last_fetch_ms >= state.now_ms - state.config.fetch_timeout_ms


def _note(state: RaftState, replica_id: int, text: str) -> None:
    state.note_seldom(f"{text}. {WHAT_TO_DO.capitalize()}", about=f"node id {replica_id}")
