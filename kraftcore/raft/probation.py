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


def is_on(state: RaftState) -> bool:
    """Whether this replica is on probation, so that it must not count."""
    return state.may_have_forgotten and state.version == 0 and state.is_voter


def missing_voters(state: RaftState) -> list[int]:
    """The voters that have not told an epoch, ascending."""
    leader = state.role.leader_id if isinstance(state.role, Follower) else None
    return sorted(state.voters.ids - {state.config.key.id, leader} - state.told_epochs.keys())


def may_run(state: RaftState, tally: Tally) -> bool:
    """Whether the replica may become a candidate: off probation, or its log and all other voters' are empty."""
    if not is_on(state):
        return True
    if state.log.log_end_offset > 0 or tally.granted != tally.voters.ids:
        return False
    _end(state)
    return True


def advance(state: RaftState) -> int | None:
    """Ask the voters that have not told an epoch; returns when to ask again, ms, or None."""
    on = is_on(state)
    highest = max(state.told_epochs.values(), default=0)
    state.is_nameless = on and (bool(missing_voters(state)) or highest > state.epoch)
    if not on:
        if state.version > 0 and (state.versions.latest_offset or 0) < (state.high_watermark or 0):
            _end(state)
        return None
    if state.ask_epochs_ms > state.now_ms:
        return state.ask_epochs_ms
    state.ask_epochs_ms = state.now_ms + state.config.fetch_timeout_ms // 2
    missing = missing_voters(state)
    state.waits_since_ms = state.waits_since_ms or state.now_ms
    if missing and state.now_ms - state.waits_since_ms >= NOTED_AFTER_MS:
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
    return state.ask_epochs_ms


def heard(state: RaftState, sent: InFlight, response: Any) -> None:
    """Take the epoch from an answer to Vote; called before the answer itself is handled."""
    voter_id = sent.destination.node_id
    if isinstance(response, VoteResponse) and voter_id is not None:
        found = partition.quorum_answer(state, response)
        if found is not None and found[0].leader_epoch >= 0:
            state.told_epochs[voter_id] = max(found[0].leader_epoch, state.told_epochs.get(voter_id, 0))


def fetched(state: RaftState, sent: InFlight, high_watermark: int) -> None:
    """End probation if the leader's answer to a Fetch shows that this replica has all committed records."""
    asked = sent.message
    named = isinstance(asked, FetchRequest) and asked.replica_state.replica_id == state.config.key.id
    if named and not missing_voters(state) and 0 <= high_watermark <= state.log.flushed_offset and is_on(state):
        _end(state)


def _end(state: RaftState) -> None:
    state.may_have_forgotten = state.is_nameless = False
    state.out.probation_over = True
