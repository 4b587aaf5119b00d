"""Probation: a static voter (kraft.version 0) whose directory is new may have forgotten what it promised.

At kraft.version 0 a voter is known by its id alone. If its disk was replaced, the other voters still count on the votes
and acknowledgements that it gave with the former disk. So such a voter starts on probation. While that lasts it

* grants no vote and never becomes a candidate; pre-votes promise nothing, so it asks for them and grants them;
* fetches without its id, so that no leader, Kafka's neither, counts its Fetches, until every other voter has told an
  epoch that is not above the present one: then no promise that it forgot is of a later epoch;
* then fetches by its id, and its Fetches replace what the leader remembers of the former disk.

Probation ends when

* an answer to a Fetch by its id names a high watermark, and everything below is durable here: the voter then has all
  committed records, and follows the leader of an epoch that is not before any of its forgotten promises; or
* its own log is empty and every other voter grants it a pre-vote, which a voter with an empty log does, too: nothing
  was ever committed. It then stands for election in the next epoch, where it cannot have voted; or
* kraft.version 1 is committed: there a new directory is another voter.

Every other voter has to be heard, not a majority: a voter that is left out may be a candidate that has this voter's
forgotten vote, and with that vote two leaders of one epoch would be possible, among 5 voters.

Source: ours; the idea is that of recovery in Viewstamped Replication Revisited, 4.3.
"""

from __future__ import annotations

from typing import Any

from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.vote import VoteResponse
from kraftcore.raft import partition
from kraftcore.raft.quorum import Tally
from kraftcore.raft.roles import Follower
from kraftcore.raft.state import InFlight, RaftState

PRE_VOTES = 2  # the first version of Vote with pre-votes
NOTED_AFTER_MS = 10_000
"""The nodes of a new quorum are started one after another, so nothing is noted before."""


class Probation:
    """Keeps a static voter with a new directory from voting until its forgotten promises cannot matter any more.

    Args:
        state: of the replica.
        may_have_forgotten: whether the directory is new, and the operator did not say that it is the node's first one.
    """

    def __init__(self, state: RaftState, may_have_forgotten: bool) -> None:
        self._state = state
        self._told: dict[int, int] = {}  # by voter id: the highest epoch that it named since this start
        self._ask_ms = 0
        self._waits_since_ms = 0
        state.may_have_forgotten = state.is_nameless = may_have_forgotten

    @property
    def is_on(self) -> bool:
        """Whether this replica is on probation, so that it must not count."""
        return self._state.may_have_forgotten and self._state.version == 0 and self._state.is_voter

    @property
    def missing(self) -> list[int]:
        """The voters that have not told an epoch, ascending."""
        state = self._state
        leader = state.role.leader_id if isinstance(state.role, Follower) else None
        return sorted(state.voters.ids - {state.config.key.id, leader} - self._told.keys())

    def may_run(self, tally: Tally) -> bool:
        """Whether the replica may become a candidate: off probation, or its log and all other voters' are empty."""
        if not self.is_on:
            return True
        if self._state.log.log_end_offset > 0 or tally.granted != tally.voters.ids:
            return False
        self._end()
        return True

    def advance(self) -> int | None:
        """Ask the voters that have not told an epoch; returns when to ask again, ms, or None."""
        state = self._state
        state.is_nameless = self.is_on and (bool(self.missing) or max(self._told.values(), default=0) > state.epoch)
        if not self.is_on:
            if state.version > 0 and (state.versions.latest_offset or 0) < (state.high_watermark or 0):
                self._end()
            return None
        if self._ask_ms > state.now_ms:
            return self._ask_ms
        self._ask_ms = state.now_ms + state.config.fetch_timeout_ms // 2
        missing = self.missing
        self._waits_since_ms = self._waits_since_ms or state.now_ms
        if missing and state.now_ms - self._waits_since_ms >= NOTED_AFTER_MS:
            state.note_seldom(
                "does not count as a voter yet: its directory is new, and it may have voted and acknowledged with "
                f"another disk. It has to hear from every other voter; missing: {', '.join(map(str, missing))}. If "
                "this quorum is new and they will not come, format this node by hand (docs/damage.md)"
            )
        for voter_id in missing:
            entry = state.voters.get(voter_id)
            to = None if entry is None else state.destination(voter_id, entry.endpoints)
            if entry is not None and to is not None and state.is_ready(to):
                state.send(to, partition.vote_request(state, entry.key, pre_vote=True), min_version=PRE_VOTES)
        return self._ask_ms

    def heard(self, sent: InFlight, response: Any) -> None:
        """Take the epoch from an answer to Vote; called before the answer itself is handled."""
        voter_id = sent.destination.node_id
        if isinstance(response, VoteResponse) and voter_id is not None:
            found = partition.quorum_answer(self._state, response)
            if found is not None and found[0].leader_epoch >= 0:
                self._told[voter_id] = max(found[0].leader_epoch, self._told.get(voter_id, 0))

    def fetched(self, sent: InFlight, high_watermark: int) -> None:
        """End probation if the leader's answer to a Fetch shows that this replica has all committed records."""
        state = self._state
        asked = sent.message
        named = isinstance(asked, FetchRequest) and asked.replica_state.replica_id == state.config.key.id
        if named and not self.missing and 0 <= high_watermark <= state.log.flushed_offset and self.is_on:
            self._end()

    def _end(self) -> None:
        state = self._state
        state.may_have_forgotten = state.is_nameless = False
        state.out.probation_over = True
