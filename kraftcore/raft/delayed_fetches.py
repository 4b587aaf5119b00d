"""Delayed Fetches: the Fetches that a leader does not answer at once, and when it does.

A replica that has everything would ask again and again for nothing, so the leader keeps its Fetch until there is
something new: records, a higher high watermark, or the end of the Fetch's wait time.

Voters are answered as soon as records are appended, so that they flush while the leader flushes. A Fetch that would be
answered with a new high watermark and no records waits ``high_watermark_linger_ms`` for records.

Observers hold no commit up, and they apply only committed records. So with ``observer_linger_ms`` all delayed Fetches
of observers are answered together, in rounds. A round comes after the high watermark has risen: a millisecond later at
the soonest, and not before the linger time since the last round is over. A commit then costs an observer one Fetch,
instead of one for the records and one for the high watermark, and commits that follow each other share that Fetch. An
observer that is behind the high watermark of the last round is answered at once. Records that are not committed within
the linger time, as when voters cannot be reached, are sent in a round, too. Without ``observer_linger_ms`` observers
are answered as voters are.

Sources: KIP-595, KIP-1166 (the high watermark in a Fetch); Kafka 4.3.1 KafkaRaftClient.handleFetchRequest. The rounds
are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.protocol.messages.fetch import FetchResponse
from kraftcore.raft import partition
from kraftcore.raft.roles import DelayedFetch, FetchQueue, Leader
from kraftcore.raft.state import RaftState

CALLERS_FIRST_MS = 1  # between a commit and its round, so that the leader answers the callers that wait for it first


def take(state: RaftState, role: Leader, fetch: DelayedFetch, told: int) -> None:
    """Answer a Fetch at once if its replica lacks anything; else keep it.

    Args:
        role: the role in which the Fetch was found to be valid.
        fetch: from a place on our log.
        told: the high watermark that the replica knows; the largest number below version 18, which does not tell.
    """
    if state.role is not role:  # the leader has resigned since: it committed its own removal
        error = state.leader_only_error(fetch.epoch)
        state.reply(fetch.ticket, partition.fetch_error(state, fetch, error))
        return
    known = role.watermark.value
    if fetch.deadline_ms <= state.now_ms:
        _answer(state, role, (fetch,))
    elif known is not None and state.config.observer_linger_ms and not state.voters.is_voter(fetch.key):
        if fetch.fetch_offset < role.round_told or told < role.round_told:
            _answer(state, role, (fetch,))
        else:
            _delay(state, role, role.delayed_observers, fetch)
            if state.log.log_end_offset > fetch.fetch_offset:
                _round_by(state, role, state.now_ms + state.config.observer_linger_ms)
    else:
        behind = known is not None and told < known
        linger_ms = state.config.high_watermark_linger_ms
        # Any record is enough for an answer: MinBytes is ignored, as in Kafka 4.3.1.
        if state.log.log_end_offset > fetch.fetch_offset or (behind and not linger_ms):
            _answer(state, role, (fetch,))
            return
        _delay(state, role, role.delayed, fetch)
        if behind and role.news_due_ms is None:
            role.news_due_ms = state.now_ms + linger_ms


def appended(state: RaftState, role: Leader, *, is_control: bool) -> None:
    """Answer Fetches of voters, for there are new records; control records may have made voters of observers."""
    _answer(state, role, role.delayed.take())
    role.news_due_ms = None  # these answers told the high watermark
    if is_control:
        _answer(state, role, role.delayed_observers.take())
    elif role.delayed_observers.fetches:
        _round_by(state, role, state.now_ms + state.config.observer_linger_ms)


def committed(state: RaftState, role: Leader) -> None:
    """Answer Fetches because of a higher high watermark, for which their replicas' state machines wait."""
    # They are answered after the linger time, in which records may come that carry the high watermark along. The
    # time is set even if no Fetch waits: one below version 18 does not tell which high watermark its replica knows.
    if role.news_due_ms is None:
        role.news_due_ms = state.now_ms + state.config.high_watermark_linger_ms
    if state.config.observer_linger_ms:
        next_ms = role.round_ended_ms + state.config.observer_linger_ms
        if role.delayed_observers.fetches or next_ms > state.now_ms:
            _round_by(state, role, max(state.now_ms + CALLERS_FIRST_MS, next_ms))
        else:  # no observer waits, and the next Fetch is compared with this high watermark
            role.round_told = role.watermark.value or 0
    expire(state, role)


def expire(state: RaftState, role: Leader) -> int | None:
    """Answer Fetches whose wait time is over; returns when the next one's is, ms, or None."""
    now = state.now_ms
    if role.news_due_ms is not None and role.news_due_ms <= now:
        role.news_due_ms = None
        _answer(state, role, role.delayed.take())
    elif role.delayed.due_ms is not None and role.delayed.due_ms <= now:
        _answer(state, role, role.delayed.take_due(now))
    if role.round_due_ms is not None and role.round_due_ms <= now:
        role.round_due_ms = None
        role.round_ended_ms = now
        role.round_told = role.watermark.value or 0
        _answer(state, role, role.delayed_observers.take())
    elif role.delayed_observers.due_ms is not None and role.delayed_observers.due_ms <= now:
        _answer(state, role, role.delayed_observers.take_due(now))
    first = role.news_due_ms
    for due in (role.delayed.due_ms, role.round_due_ms, role.delayed_observers.due_ms):
        if due is not None and (first is None or due < first):
            first = due
    return first


def _delay(state: RaftState, role: Leader, queue: FetchQueue, fetch: DelayedFetch) -> None:
    if queue.is_full:
        _answer(state, role, queue.take())
    queue.add(fetch)


def _round_by(state: RaftState, role: Leader, due_ms: int) -> None:
    if role.round_due_ms is None or due_ms < role.round_due_ms:
        role.round_due_ms = due_ms


def _answer(state: RaftState, role: Leader, fetches: Sequence[DelayedFetch]) -> None:
    # Fetches with the same offset, size, version and listener get one response object.
    end = state.log.log_end_offset
    made: dict[tuple[int, int, int, str], FetchResponse] = {}
    for fetch in fetches:
        if fetch.fetch_offset < state.log.log_start_offset:  # these records were deleted meanwhile
            where = partition.Elsewhere(snapshot=state.snapshots.latest)
            state.reply(fetch.ticket, partition.fetch_elsewhere(state, fetch, role, where))
            continue
        asked = (fetch.fetch_offset, fetch.max_bytes, fetch.version, fetch.listener)
        response = made.get(asked)
        if response is None:
            data = state.log.read(fetch.fetch_offset, fetch.max_bytes) if end > fetch.fetch_offset else b""
            response = made[asked] = partition.fetch_records(state, fetch, role, data)
        state.reply(fetch.ticket, response)
