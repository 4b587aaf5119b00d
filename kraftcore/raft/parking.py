"""Parked Fetches: those that a leader does not answer at once, and when it does.

Voters are answered as soon as records are appended, so that they flush while the leader does; a Fetch that would be
answered with a new high watermark and no records waits ``high_watermark_linger_ms`` for records.

No commit waits for an observer, and an observer applies only committed records. So with ``observer_linger_ms`` all
parked Fetches of observers are answered together, in rounds: after the high watermark has risen, a millisecond later
at the soonest, and no sooner than the linger time after the round before. A commit then costs an observer one Fetch,
not one for its records and one for its high watermark, and commits that follow each other share it. An observer that is
behind the high watermark of the last round is answered at once. Records that are not committed within the linger time,
as while voters cannot be reached, are sent in a round, too. Without ``observer_linger_ms`` observers are answered as
voters are.

Sources: KIP-595, KIP-1166 (the high watermark in a Fetch); Kafka 4.3.1 KafkaRaftClient.handleFetchRequest. The rounds
are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.raft import partition
from kraftcore.raft.duties import Duties, soonest
from kraftcore.raft.events import Received
from kraftcore.raft.roles import Leader, Parked, ParkedFetch

CALLERS_FIRST_MS = 1  # between a commit and the round of it, so that the leader answers its callers first


class Parking:
    """The Fetch requests that a leader has parked, and the conditions that answer each."""

    def __init__(self, replica: Duties) -> None:
        self._replica = replica
        self._state = replica.state

    def take(self, role: Leader, fetch: ParkedFetch, told: int) -> None:
        """Answer a Fetch if there is anything its replica lacks, or park it.

        Args:
            role: the role in which it was found to be valid.
            fetch: from a place on our log.
            told: the high watermark that its replica knows; the largest number before version 18, which does not say.
        """
        state = self._state
        if state.role is not role:  # it committed its own removal
            self._refuse(fetch)
            return
        known = role.watermark.value
        if fetch.deadline_ms <= state.now_ms:
            self._answer(role, (fetch,))
        elif known is not None and state.config.observer_linger_ms and not state.voters.is_voter(fetch.key):
            if fetch.fetch_offset < role.round_told or told < role.round_told:
                self._answer(role, (fetch,))
            else:
                self._park(role, role.parked_observers, fetch)
                if state.log.log_end_offset > fetch.fetch_offset:
                    self._round_by(role, state.now_ms + state.config.observer_linger_ms)
        else:
            behind = known is not None and told < known
            linger_ms = state.config.high_watermark_linger_ms
            # Any record is enough for an answer: MinBytes is ignored, as in Kafka 4.3.1.
            if state.log.log_end_offset > fetch.fetch_offset or (behind and not linger_ms):
                self._answer(role, (fetch,))
                return
            self._park(role, role.parked, fetch)
            if behind and role.news_due_ms is None:
                role.news_due_ms = state.now_ms + linger_ms

    def appended(self, role: Leader, *, is_control: bool) -> None:
        """There are new records; control records may make voters of observers."""
        self._answer(role, role.parked.take())
        role.news_due_ms = None  # those answers told the high watermark, and later ones carry it with these records
        if is_control:
            self._answer(role, role.parked_observers.take())
        elif role.parked_observers.fetches:
            self._round_by(role, self._state.now_ms + self._state.config.observer_linger_ms)

    def committed(self, role: Leader) -> None:
        """The high watermark rose: parked Fetches are answered, for their replicas' state machines wait for it."""
        state = self._state
        # After the linger time, within which records may follow and carry it. Even if none is parked: a Fetch below
        # version 18 does not name the high watermark its replica knows.
        if role.news_due_ms is None:
            role.news_due_ms = state.now_ms + state.config.high_watermark_linger_ms
        if state.config.observer_linger_ms:
            next_ms = role.round_ended_ms + state.config.observer_linger_ms
            if role.parked_observers.fetches or next_ms > state.now_ms:
                self._round_by(role, max(state.now_ms + CALLERS_FIRST_MS, next_ms))
            else:  # no Fetch is parked, and the next one is compared with this high watermark
                role.round_told = role.watermark.value or 0
        self.expire(role)

    def expire(self, role: Leader) -> int | None:
        """Answer parked Fetches whose time is over; returns when the next one's is, ms, or None."""
        now = self._state.now_ms
        if role.news_due_ms is not None and role.news_due_ms <= now:
            role.news_due_ms = None
            self._answer(role, role.parked.take())
        elif role.parked.due_ms is not None and role.parked.due_ms <= now:
            self._answer(role, role.parked.take_due(now))
        if role.round_due_ms is not None and role.round_due_ms <= now:
            role.round_due_ms = None
            role.round_ended_ms = now
            role.round_told = role.watermark.value or 0
            self._answer(role, role.parked_observers.take())
        elif role.parked_observers.due_ms is not None and role.parked_observers.due_ms <= now:
            self._answer(role, role.parked_observers.take_due(now))
        return soonest(
            soonest(role.news_due_ms, role.parked.due_ms), soonest(role.round_due_ms, role.parked_observers.due_ms)
        )

    def fail(self, role: Leader) -> None:
        """Leadership has ended: answer parked Fetches with the error, epoch and leader known now."""
        for fetch in (*role.parked.take(), *role.parked_observers.take()):
            self._refuse(fetch)

    def _park(self, role: Leader, parked: Parked, fetch: ParkedFetch) -> None:
        if parked.is_full:
            self._answer(role, parked.take())
        parked.add(fetch)

    def _round_by(self, role: Leader, due_ms: int) -> None:
        if role.round_due_ms is None or due_ms < role.round_due_ms:
            role.round_due_ms = due_ms

    def _answer(self, role: Leader, fetches: Sequence[ParkedFetch]) -> None:
        # Fetches with the same offset, size, version and listener get one response object.
        state = self._state
        end = state.log.log_end_offset
        made: dict[tuple[int, int, int, str], FetchResponse] = {}
        for fetch in fetches:
            if fetch.fetch_offset < state.log.log_start_offset:  # it was deleted while the Fetch waited
                where = partition.Elsewhere(snapshot=state.snapshots.latest)
                state.reply(fetch.ticket, partition.fetch_elsewhere(state, fetch, role, where))
                continue
            asked = (fetch.fetch_offset, fetch.max_bytes, fetch.version, fetch.listener)
            response = made.get(asked)
            if response is None:
                data = state.log.read(fetch.fetch_offset, fetch.max_bytes) if end > fetch.fetch_offset else b""
                response = made[asked] = partition.fetch_records(state, fetch, role, data)
            state.reply(fetch.ticket, response)

    def _refuse(self, fetch: ParkedFetch) -> None:
        received = Received(fetch.ticket, FetchRequest(), fetch.version, fetch.listener)
        error = self._replica.check_leader_only(fetch.epoch)
        self._state.reply(fetch.ticket, partition.fetch_error(self._state, received, error))
