"""Replication by Fetch, on both sides, and the high watermark.

The leader appends records, and every other replica fetches them. One message does for copying and for acknowledging: a
Fetch names the offset from which a replica wants more, so the replica has everything below that offset, durably.

The leader's side
    A Fetch is valid if its offset and the epoch of the replica's last record lie on the leader's log. Else the answer
    names the place where the two logs part (diverging epoch), or a snapshot to fetch instead.

    The high watermark is the largest offset that a majority of the voter set in force has reached. It is known only
    when a record of the leader's own epoch lies below it (Raft 5.4.2), and never falls, not even when voters change.
    The leader's own log counts as far as it is flushed.

The follower's side
    One Fetch at a time: append, flush, and only then the next Fetch. A follower never truncates its log below what it
    knows to be committed; it refuses a leader that asks for that, see ``floor``.

Sources: KIP-595, KIP-853 "High watermark"; order of checks, and answers, as in Kafka 4.3.1.
"""

from __future__ import annotations

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.errors import ClosedError, CorruptBatchError, LocalError, RemoteProtocolError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.raft import control_records, epochs, partition
from kraftcore.raft.delayed_fetches import DelayedFetches
from kraftcore.raft.duplicate_ids import DuplicateIds
from kraftcore.raft.events import Destination, Propose, Received
from kraftcore.raft.floor import Floor
from kraftcore.raft.probation import Probation
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import DelayedFetch, Follower, Leader, Unattached
from kraftcore.raft.snapshots import Snapshots
from kraftcore.raft.state import InFlight, RaftState, Step
from kraftcore.raft.succession import Succession


class Replication:
    """Appends a leader's records, answers Fetches, fetches as a follower, and moves the high watermark.

    Args:
        state: of the replica.
        floor: forbids truncation below what is committed.
        probation: told of Fetches that were answered.
        succession: told of voters and leaders that show life.
        delayed_fetches: answers Fetches.
        snapshots: fetches the snapshot that a leader names.
    """

    def __init__(
        self,
        state: RaftState,
        floor: Floor,
        probation: Probation,
        succession: Succession,
        delayed_fetches: DelayedFetches,
        snapshots: Snapshots,
    ) -> None:
        self._state = state
        self._floor = floor
        self._probation = probation
        self._succession = succession
        self._delayed_fetches = delayed_fetches
        self._snapshots = snapshots
        self._duplicate_ids = DuplicateIds(state)
        self._ask_again_ms = 0
        self._servers: list[Destination] = []
        self._servers_of: VoterSet | None = None

    # --- the leader appends -------------------------------------------------------------------------------------------

    def open_epoch(self, leader: Leader, granting: list[int]) -> None:
        """Begin a new leader's epoch with its LeaderChange record.

        The same batch holds KRaftVersion and KRaftVoters when the log does not name the voters yet, because they came
        from the 0-0 checkpoint, or when it names this replica with outdated endpoints or versions.

        Args:
            leader: the new leader's role.
            granting: ids of the voters that voted for it.
        """
        state = self._state
        state.log.assign_epoch_start_offset(state.epoch, leader.epoch_start_offset)
        entries = [control_records.leader_change(state.config.key.id, state.voters, granting)]
        if state.version >= 1:
            voters = state.voters_with_own_entry()
            from_checkpoint = (state.voter_sets.latest_offset or 0) < 0
            if from_checkpoint or voters != state.voters:
                entries += [control_records.kraft_version(state.version), control_records.kraft_voters(voters)]
        self.append_control(leader, entries)

    def append_control(self, role: Leader, entries: list[control_records.ControlEntry]) -> int:
        """Append one control batch and return its first offset; its voters and version are in force at once."""
        return self._append(role, control_records.control_batch(entries, self._state.now_ms), is_control=True)

    def propose(self, event: Propose) -> None:
        """Append a client's batches, or say why not."""
        state = self._state
        role = state.role
        if not isinstance(role, Leader) or state.shutting_down:
            state.finish(event.ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif role.transfer is not None:
            state.finish(event.ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER, message="leadership is being handed over")
        else:
            try:
                for batch in (event.batch, *event.more):
                    if RecordBatch(batch, verify=False).is_control:
                        raise LocalError("control batches are written by the consensus alone")
                offset = self._append(role, event.batch)
            except ClosedError:
                raise
            except (LocalError, CorruptBatchError) as error:
                state.finish(event.ticket, ErrorCode.INVALID_RECORD, message=str(error))
            else:
                for batch in event.more:
                    self._append(role, batch)
                state.finish(event.ticket, ErrorCode.NONE, offset)

    def _append(self, role: Leader, batch: bytearray, *, is_control: bool = False) -> int:
        state = self._state
        offset = state.log.append_as_leader(batch, state.epoch, state.now_ms)
        if is_control:
            state.learn_from([RecordBatch(batch, verify=False)])
            state.then(Step.VOTERS_CHANGED, role)
        state.out.flush += len(batch)
        # FetchQueue Fetches are answered before our own flush has ended, so that followers flush at the same time.
        self._delayed_fetches.appended(role, is_control=is_control)
        return offset

    def flushed(self, offset: int) -> None:
        """Count the leader itself, if it is a voter, up to ``offset``: its log is durable below.

        A follower's next Fetch and a candidate's Vote requests, which wait for a flush, are sent as what is due.
        """
        state = self._state
        role = state.role
        if isinstance(role, Leader) and state.is_voter and role.watermark.update(state.config.key.id, offset):
            self._high_watermark_moved(role)

    # --- the leader answers -------------------------------------------------------------------------------------------

    def on_fetch(self, received: Received, request: FetchRequest) -> None:
        """Check a Fetch: refuse it, send its replica elsewhere, or have it answered by ``delayed_fetches``."""
        state = self._state
        ours = partition.names_our_topic_id(state, request.topics)
        error = partition.top_level_error(state, request.cluster_id, ours)
        if error is not ErrorCode.NONE:
            state.reply(received.ticket, FetchResponse(error_code=error))
            return
        asked = request.topics[0].partitions[0]
        key = ReplicaKey(partition.fetching_replica_id(request, received.version), asked.replica_directory_id)
        if (
            request.max_wait_ms < 0
            or asked.fetch_offset < 0
            or asked.last_fetched_epoch < 0
            or asked.last_fetched_epoch > asked.current_leader_epoch
        ):
            error = ErrorCode.INVALID_REQUEST
        else:
            error = state.leader_only_error(asked.current_leader_epoch)
        role = state.role
        is_duplicate = self._duplicate_ids.is_ours(key)
        if isinstance(role, Leader) and (
            is_duplicate or (error is ErrorCode.NONE and self._duplicate_ids.refuses(role, key))
        ):
            error = ErrorCode.DUPLICATE_BROKER_REGISTRATION
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            state.reply(received.ticket, partition.fetch_error(state, received, error))
            return
        where = self._place(asked.fetch_offset, asked.last_fetched_epoch)
        if where is not None:
            state.reply(received.ticket, partition.fetch_elsewhere(state, received, role, where))
            return
        self._track(role, key, asked.fetch_offset)
        fetch = DelayedFetch(
            received.ticket,
            key,
            asked.current_leader_epoch,
            asked.fetch_offset,
            partition.bounded(state, max(request.max_bytes, 0)),
            state.now_ms + self._wait_ms(key, request.max_wait_ms),
            received.version,
            received.listener,
        )
        state.then(Step.FETCH_ACCEPTED, role, fetch, asked.high_watermark)  # after delayed Fetches

    def _wait_ms(self, key: ReplicaKey, wanted_ms: int) -> int:
        """How long a Fetch may be kept, ms.

        A voter that asks for longer than half our fetch timeout may have a longer fetch timeout than this replica,
        which would resign before that voter fetches again.
        """
        state = self._state
        most_ms = state.config.fetch_timeout_ms // 2
        return most_ms if wanted_ms > most_ms and state.voters.is_voter(key) else wanted_ms

    def _place(self, offset: int, epoch: int) -> partition.Elsewhere | None:
        """Where a replica at (offset, epoch) must go before it can fetch on; None: it can fetch on from there."""
        state = self._state
        log = state.log
        start = log.log_start_offset
        if offset == log.log_end_offset > start and epoch == log.last_epoch:
            return None  # almost every Fetch; what follows would say the same after look-ups
        oldest, latest = state.oldest_snapshot, state.snapshots.latest
        if oldest is not None and (
            offset == 0 or offset < start or (offset == start and epoch != oldest[1]) or epoch < oldest[1]
        ):
            return partition.Elsewhere(snapshot=latest)
        if start == 0 and offset == 0:
            return None
        end = state.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return partition.Elsewhere(diverging=(end.epoch, end.offset))
        return None

    def _track(self, role: Leader, key: ReplicaKey, offset: int) -> None:
        state = self._state
        if key.id < 0 or key.id == state.config.key.id:
            return
        now = state.now_ms
        progress = role.progress_of(key, state.voters)
        end = state.log.log_end_offset
        if offset >= end:
            progress.last_caught_up_ms = now
        elif progress.leader_end_offset >= 0 and offset >= progress.leader_end_offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.log_end_offset = offset
        progress.last_fetch_ms = now
        progress.leader_end_offset = end
        if state.voters.is_voter(key):
            self._succession.heard_from(role, key.id)
            if role.watermark.update(key.id, offset):
                self._high_watermark_moved(role)

    def voters_changed(self, role: Leader) -> None:
        """Compute the high watermark from the members of the voter set in force alone."""
        state = self._state
        known: dict[int, int] = {}
        for key, progress in role.replicas.items():
            if progress.log_end_offset is not None and state.voters.is_voter(key):
                known[key.id] = progress.log_end_offset
        if state.is_voter:
            known[state.config.key.id] = state.log.flushed_offset
        for voter_id in role.watermark.voters():
            if voter_id not in known:  # its offset was that of another directory of that id
                role.watermark.forget(voter_id)
        if role.watermark.set_voters(state.voters.ids, known):
            self._high_watermark_moved(role)

    def _high_watermark_moved(self, role: Leader) -> None:
        state = self._state
        value = role.watermark.value or 0  # known, for it moved
        self._heard_of_high_watermark(value)
        state.raise_high_watermark(value)
        state.then(Step.HIGH_WATERMARK_ROSE, role)

    # --- the follower fetches -----------------------------------------------------------------------------------------

    def advance_follower(self, role: Follower) -> int | None:
        """Send the next Fetch or FetchSnapshot; returns when something is due, ms, or None."""
        state = self._state
        if state.shutting_down or not state.is_flushed:  # a Fetch acknowledges everything below its offset
            return None
        leader = state.destination(role.leader_id, role.leader_endpoints)
        if leader is None:
            return None
        if state.is_backing_off(leader):
            at = self._fetch_from_bootstrap()
            ready = state.ready_at(leader)
            return ready if at is None else at if ready is None else min(at, ready)
        # One Fetch at a time to this leader; a Fetch that is still in flight to an earlier leader, or to a bootstrap
        # server that may be dead, does not count.
        if self._fetching(leader):
            return None
        if not state.is_ready(leader):
            return state.ready_at(leader)
        if role.snapshot is not None:
            if not role.snapshot.is_whole:
                state.send(leader, partition.fetch_snapshot_request(state, role.snapshot))
        else:
            state.send(leader, partition.fetch_request(state), min_version=partition.FETCH_MIN_VERSION)
        return None

    def advance_unattached(self, role: Unattached) -> int | None:
        """Send a Fetch to a bootstrap server, whose answer names the leader; returns when something is due, ms."""
        return None if self._state.shutting_down or not self._state.is_flushed else self._fetch_from_bootstrap()

    def _fetching(self, leader: Destination | None = None) -> bool:
        epoch = self._state.epoch
        for request in self._state.in_flight.values():
            fits = request.epoch == epoch and (leader is None or request.destination == leader)
            if fits and partition.is_fetch(request.message):
                return True
        return False

    def _bootstrap_servers(self) -> list[Destination]:
        """The servers to ask for the leader: those configured; without any, the other members of the voter set."""
        state = self._state
        if self._servers_of is not state.voters:
            config = state.config
            servers = [Destination(None, host, port) for host, port in config.bootstrap_servers]
            if not servers:
                others = [voter for voter in state.voters if voter.key.id != config.key.id]
                found = [state.destination(voter.key.id, voter.endpoints) for voter in others]
                servers = [to._replace(node_id=None) for to in found if to is not None]
            own = {(endpoint.host, endpoint.port) for endpoint in config.listeners}
            self._servers = [server for server in servers if (server.host, server.port) not in own]
            self._servers_of = state.voters
        return self._servers

    def _fetch_from_bootstrap(self) -> int | None:
        state = self._state
        servers = self._bootstrap_servers()
        if not servers or self._fetching():
            return None
        if self._ask_again_ms > state.now_ms:
            return self._ask_again_ms
        ready = [server for server in servers if state.is_ready(server)]
        if ready:
            to = state.rng.choice(ready)
            state.send(to, partition.fetch_request(state), min_version=partition.FETCH_MIN_VERSION)
            return None
        times = [at for server in servers if (at := state.ready_at(server)) is not None]
        return min(times) if times else None

    # --- the follower gets an answer ----------------------------------------------------------------------------------

    def on_fetch_answer(self, sent: InFlight, response: FetchResponse) -> None:
        """Append the records, truncate the log at the diverging epoch, or begin to fetch a snapshot."""
        state = self._state
        source = sent.destination
        answer = partition.fetch_answer(state, response)
        if answer is None:
            epochs.refuse_answer(state, source, response)
            return
        if source.node_id is None:
            self._ask_again_ms = state.now_ms + state.config.discovery_pause_ms
        if not epochs.learn_from_answer(state, partition.summary_of(answer), response.node_endpoints, source):
            return
        role = state.role
        if not isinstance(role, Follower) or sent.epoch != state.epoch or role.snapshot is not None:
            return
        asked = sent.message.topics[0].partitions[0]  # type: ignore[attr-defined]
        where = (asked.fetch_offset, asked.last_fetched_epoch)
        if where != (state.log.log_end_offset, state.last_epoch) or not state.is_flushed:
            # Another Fetch was answered first. The offset alone would not show that: the log may have been truncated
            # and filled again, and truncating it by the old answer would remove acknowledged records.
            return
        if answer.error_code != ErrorCode.NONE:
            epochs.refuse_answer(state, source, response, answer)
            return
        if answer.diverging_epoch.epoch >= 0:
            taken = self._truncate(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
        elif answer.snapshot_id.epoch >= 0 or answer.snapshot_id.end_offset >= 0:
            snapshot_id = (answer.snapshot_id.end_offset, answer.snapshot_id.epoch)
            taken = self._snapshots.begin_fetch(role, snapshot_id)
        else:
            taken = self._append_fetched(answer.records or b"", source)
            if taken:
                self._follow_high_watermark(answer.high_watermark)
                if state.may_have_forgotten:
                    self._probation.fetched(sent, answer.high_watermark)
        if taken:
            self._succession.fetched_well(role)
        else:  # asked again at once the leader would give the same answer
            state.back_off(source)

    def _append_fetched(self, data: bytes, source: Destination) -> bool:
        state = self._state
        if not data:
            return True
        before = state.log.log_end_offset
        try:
            batches = list(iter_batches(data, verify=False, allow_partial=True))
            for batch in batches:
                if batch.is_control:  # once in the log it is in force, and is read at each start
                    for _ in control_records.voter_changes(batch):
                        pass
                    self._compare_static_voters(batch)
            state.log.append_as_follower(data, state.now_ms, max_epoch=state.epoch)
        except RemoteProtocolError as error:
            state.note(f"dropped a damaged batch from {source.host}:{source.port}: {error}")
            return False
        end = state.log.log_end_offset
        if end == before:
            state.note(f"dropped records from {source.host}:{source.port}: none is of our epoch or an earlier one")
            return False
        state.learn_from([batch for batch in batches if batch.last_offset < end])
        state.out.flush += len(data)
        return True

    def _compare_static_voters(self, batch: RecordBatch) -> None:
        """Note a leader that was elected by other static voters than ours: then two majorities need not overlap."""
        state = self._state
        own = state.config.static_voters.ids
        if state.version > 0 or not own or batch.leader_epoch != state.epoch:
            return
        ids = control_records.leading_voters(batch)
        if ids is not None and ids != own:
            state.note_seldom(
                f"node {state.leader_id}, which leads, was elected by the voters {sorted(ids)}, and this node has been "
                f"given {sorted(own)}: then two nodes may lead at a time, and what is committed be lost. Set voters "
                "(controller.quorum.voters) alike on all nodes"
            )

    def _follow_high_watermark(self, told: int) -> None:
        if told >= 0:
            self._heard_of_high_watermark(told)
            self._state.raise_high_watermark(min(told, self._state.log.log_end_offset))

    def _heard_of_high_watermark(self, value: int) -> None:
        if self._state.first_high_watermark is None:
            self._state.first_high_watermark = value

    def _truncate(self, epoch: int, end_offset: int) -> bool:
        state = self._state
        log = state.log
        own = state.end_offset_for_epoch(epoch)
        offset = min(own.offset, end_offset) if own.epoch == epoch or epoch == 0 else own.offset
        offset = min(offset, log.log_end_offset)
        if self._floor.forbids_cut(offset):
            return False
        state.forget_history_from(log.truncate_to(offset))
        return True
