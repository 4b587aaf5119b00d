"""Mistakes to plant in the protocol, to see whether the checks of the simulator notice.

Each is the kind of slip that a careful reader may miss: a line left out, a comparison off by one, a check of the wrong
thing. It replaces one attribute while the runs last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kraftcore.executor.driver import Driver
from kraftcore.executor.executor import Executor
from kraftcore.executor.proposals import ProposalQueue
from kraftcore.executor.sessions import Sessions
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.raft import barriers, election, floor, leases, membership, partition, probation, replication, succession
from kraftcore.raft.events import Propose, Upgrade
from kraftcore.raft.inquiry import Found, Inquiry
from kraftcore.raft.membership import VoterChangeRefusal
from kraftcore.raft.partition import Elsewhere
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import Candidate, Cause, Leader, Unattached
from kraftcore.raft.state import InFlight, RaftState
from kraftcore.raft.transitions import become
from kraftcore.raft.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake.

    Attributes:
        name: as the command prints it.
        text: what is wrong.
        owner: class or module that gets it.
        attribute: what is replaced there.
        value: by what.
        more: further such places, where one mistake takes several.
    """

    name: str
    text: str
    owner: Any
    attribute: str
    value: Any
    more: tuple[tuple[Any, str, Any], ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """While the context lasts the mistake is there."""
        places = ((self.owner, self.attribute, self.value), *self.more)
        before = [owner.__dict__[attribute] for owner, attribute, _ in places]
        for owner, attribute, value in places:
            setattr(owner, attribute, value)
        try:
            yield
        finally:
            for (owner, attribute, _), was in zip(places, before, strict=True):
                setattr(owner, attribute, was)


_save = RaftState.save_election_state
_track = replication._track
_append = replication._append
_become_prospective = election.become_prospective
_place = replication._place
_start = election.start
_step = Driver._step


def _vote_in_memory(state: RaftState, candidate: ReplicaKey) -> None:
    state.voted_key = candidate


def _save_but_new_epochs(self: RaftState) -> None:
    if not (isinstance(self.role, Unattached) and self.voted_key is None):
        _save(self)


def _track_observers(state: RaftState, role: Leader, key: ReplicaKey, offset: int) -> None:
    _track(state, role, key, offset)
    if not state.voters.is_voter(key):
        slowest = min(role.watermark.voters().items(), key=lambda item: item[1] or 0)[0]
        if role.watermark.update(slowest, offset):
            replication._high_watermark_moved(state, role)


def _truncate_too_far(state: RaftState, epoch: int, end_offset: int) -> bool:
    log = state.log
    own = state.end_offset_for_epoch(epoch)
    offset = max(min(own.offset, end_offset) - 3, log.log_start_offset)
    state.forget_history_from(log.truncate_to(min(offset, log.log_end_offset)))
    return True


def _apply_all(state: RaftState, told: int) -> None:
    if told >= 0:
        state.raise_high_watermark(state.log.log_end_offset)


def _need_less(state: RaftState, role: Leader, doing: str) -> None:
    if state.version < 1:
        raise VoterChangeRefusal(ErrorCode.UNSUPPORTED_VERSION)


def _no_epoch_rule(state: RaftState, role: Leader, doing: str) -> None:
    if role.change is not None:
        raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT)
    _need_less(state, role, doing)


def _committed_voters(self: RaftState) -> VoterSet:
    return self.voter_sets.last_committed(max(self.high_watermark or 0, self.log.log_start_offset))


def _prospective_in_next_epoch(state: RaftState, cause: Any) -> None:
    state.epoch += 1
    _become_prospective(state, cause)


def _oldest_snapshot(state: RaftState, offset: int, epoch: int) -> Elsewhere | None:
    ids = [snapshot_id for snapshot_id in state.snapshots.ids if snapshot_id[0] > 0]
    return Elsewhere(snapshot=ids[0]) if ids and epoch < state.epoch else _place(state, offset, epoch)


def _append_and_count(state: RaftState, role: Leader, batch: bytearray, *, is_control: bool = False) -> int:
    offset = _append(state, role, batch, is_control=is_control)
    if role.watermark.update(state.config.key.id, state.log.log_end_offset):
        replication._high_watermark_moved(state, role)
    return offset


def _append_twice(state: RaftState, role: Leader, batch: bytearray, *, is_control: bool = False) -> int:
    offset = _append(state, role, bytearray(batch), is_control=is_control)
    if len(batch) % 7 == 0:  # a retry after an answer that got lost
        _append(state, role, bytearray(batch), is_control=is_control)
    return offset


def _grant_again(state: RaftState, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    return up_to_date and not isinstance(state.role, Leader | Candidate)


def _grant_anyone(state: RaftState, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    return _may_grant(state, candidate, True, pre_vote)


_may_grant = election._may_grant


def _barrier_at_once(state: RaftState, event: Any) -> None:
    value = state.role.watermark.value if isinstance(state.role, Leader) else None
    if value is None:
        state.finish(event.ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        state.finish(event.ticket, ErrorCode.NONE, value)


def _count_from_arrival(state: RaftState, role: Leader, sent: InFlight, response: Any) -> None:
    _promised(state, role, replace(sent, sent_ms=state.now_ms), response)


_promised = leases.promised


def _lead_again(state: RaftState, saved_leader_id: int | None) -> None:
    if saved_leader_id == state.config.key.id and state.is_voter:
        become(state, Candidate(election._own_tally(state), state.random_election_deadline()), Cause.VOTED_FOR_ITSELF)
        return
    _start(state, saved_leader_id)


def _upgraded_at_once(state: RaftState, role: Leader, event: Upgrade) -> None:
    state.finish(event.ticket, ErrorCode.NONE)


def _nothing(*_: Any) -> None:
    return None


def _yes(*_: Any) -> bool:
    return True


def _own_epoch_forgotten(start: int, voters: Any) -> Watermark:
    return Watermark(0, voters)


def _send_before_saving(self: Driver, event: Any) -> None:
    late: list[Any] = []
    save = self._save
    setattr(self, "_save", late.append)  # noqa: B010
    try:
        _step(self, event)
    finally:
        setattr(self, "_save", save)  # noqa: B010
    for state in late:
        save(state)


def _decide_at_high_watermark(self: Executor, now_ms: int) -> None:
    decided = self.decisions.decide(self.high_watermark, self.replica.epoch, now_ms)
    decided.offset = self.log.log_end_offset
    if decided.batches:
        self.handle(now_ms, Propose(decided, decided.batches[0], tuple(decided.batches[1:])))


_ROWS: tuple[tuple[str, str, Any, str, Any], ...] = (
    ("vote-not-persisted", "a vote is granted without saving it", election, "_vote_for", _vote_in_memory),
    (
        "epoch-not-persisted",
        "a higher epoch is adopted without saving it",
        RaftState,
        "save_election_state",
        _save_but_new_epochs,
    ),
    (
        "majority-off-by-one",
        "half of the voters count as a majority",
        VoterSet,
        "majority",
        property(lambda self: max(1, len(self) // 2)),
    ),
    ("observers-counted", "observers move the high watermark", replication, "_track", _track_observers),
    (
        "older-epoch-committed",
        "records of older epochs are committed by counting",
        election,
        "Watermark",
        (_own_epoch_forgotten),
    ),
    (
        "truncate-too-far",
        "a follower cuts its log below the high watermark",
        replication,
        "_truncate",
        (_truncate_too_far),
    ),
    (
        "uncommitted-applied",
        "a follower applies up to its log's end",
        replication,
        "_follow_high_watermark",
        (_apply_all),
    ),
    ("two-changes", "a second voter change while one is in flight", membership, "_need_quiet", _need_less),
    (
        "change-before-own-epoch",
        "a voter change before the leader's own epoch is committed",
        membership,
        "_need_quiet",
        _no_epoch_rule,
    ),
    (
        "committed-voter-set",
        "the voter set in force is the last committed one",
        RaftState,
        "voters",
        property(_committed_voters),
    ),
    (
        "removed-leader-stays",
        "a leader that is removed goes on leading",
        succession,
        "resign_if_removed",
        _nothing,
    ),
    (
        "pre-vote-raises-epoch",
        "a prospective raises its epoch",
        election,
        "become_prospective",
        (_prospective_in_next_epoch),
    ),
    (
        "oldest-snapshot-sent",
        "replicas of older epochs are sent the oldest snapshot",
        replication,
        "_place",
        (_oldest_snapshot),
    ),
    (
        "acknowledged-before-flush",
        "a follower fetches on before its flush",
        RaftState,
        "is_flushed",
        (property(_yes)),
    ),
    (
        "leader-counts-unflushed",
        "a leader counts its log before its flush",
        replication,
        "_append",
        (_append_and_count),
    ),
    ("appended-twice", "a retried proposal is appended again", replication, "_append", _append_twice),
    (
        "directory-ignored",
        "a voter is known by its id alone",
        ReplicaKey,
        "matches",
        (lambda self, other: self.id == other.id),
    ),
    ("voter-key-ignored", "requests for another voter are answered", partition, "is_for_us", _yes),
    ("votes-twice", "a vote is granted though another was", election, "_may_grant", _grant_again),
    ("stale-log-elected", "a vote is granted to a shorter log", election, "_may_grant", _grant_anyone),
    ("divergence-ignored", "a leader serves any offset and epoch", replication, "_place", _nothing),
    ("barrier-unasked", "a read barrier asks nobody", barriers, "begin", _barrier_at_once),
    (
        "barrier-not-recounted",
        "a read barrier is not counted again when voters change",
        barriers,
        "voters_changed",
        _nothing,
    ),
    (
        "lease-from-arrival",
        "a lease begins when the promise arrives, not when it was asked for",
        leases,
        "promised",
        _count_from_arrival,
    ),
    ("promise-forgotten", "a voter that starts is not bound by what it promised before", leases, "started", _nothing),
    ("drift-ignored", "a leader counts all of a promise, whatever its clock does", leases, "SHARE", (1, 1)),
    (
        "promise-broken",
        "a voter votes and stands although it promised not to",
        leases,
        "promise",
        lambda state, asked_ms: min(asked_ms, state.config.leader_lease_ms),
    ),
    (
        "inherited-upgrade-answered",
        "an upgrade that an earlier leader wrote is answered before it is committed",
        membership,
        "_upgraded",
        _upgraded_at_once,
    ),
    (
        "removed-voter-sits",
        "a replica that is no voter by its own log does not stand when it is needed",
        election,
        "_stand_if_needed",
        _nothing,
    ),
    (
        "removal-not-refused",
        "a voter is removed though the others are no majority",
        membership,
        "_need_majority",
        _nothing,
    ),
    ("voters-not-undone", "a truncation leaves the voter set", RaftState, "forget_history_from", _nothing),
    ("leads-again", "a leader that restarts runs in its old epoch", election, "start", _lead_again),
    (
        "sent-before-saved",
        "requests and answers leave before epoch and vote are saved",
        Driver,
        "_step",
        _send_before_saving,
    ),
    ("retry-applied-again", "a retried proposal is applied again", Sessions, "admit", _nothing),
    (
        "decided-too-low",
        "a decision learns the high watermark for the log's end",
        Executor,
        "_decide",
        _decide_at_high_watermark,
    ),
    (
        "groups-kept",
        "a former leader goes on waiting for its batches",
        ProposalQueue,
        "fail_appended",
        _nothing,
    ),
    (
        "floor-ignored",
        "after a restart a log is cut below what was known to be committed",
        floor,
        "known_offset",
        lambda state: state.high_watermark or 0,
    ),
    (
        "begun-without-asking",
        "a node with a lost disk begins a quorum without asking",
        Inquiry,
        "found",
        property(lambda self: Found.NOTHING),
    ),
    (
        "probation-skipped",
        "a static voter that formatted itself counts at once",
        probation,
        "is_on",
        lambda state: False,
    ),
)

FAULTS: dict[str, Planted] = {row[0]: Planted(*row) for row in _ROWS}


def catch(fault: Planted, run: Callable[[int], str | None], seeds: int) -> tuple[int, str] | None:
    """Run seed after seed with a mistake until a check notices.

    Args:
        fault: the mistake.
        run: runs a seed and returns the rule that was broken, or None.
        seeds: how many to try.

    Returns:
        How many seeds it took, and the rule; None if nothing was noticed.
    """
    with fault.planted():
        for seed in range(1, seeds + 1):
            rule = run(seed)
            if rule is not None:
                return seed, rule
    return None
