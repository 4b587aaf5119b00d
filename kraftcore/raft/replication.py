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
from kraftcore.raft import (
    control_records,
    delayed_fetches,
    duplicate_ids,
    epochs,
    floor,
    partition,
    probation,
    snapshot_fetch,
    succession,
)
from kraftcore.raft.events import Destination, Propose, Received
from kraftcore.raft.roles import DelayedFetch, Follower, Leader, Unattached
from kraftcore.raft.state import InFlight, RaftState, Step

# --- the leader appends -----------------------------------------------------------------------------------------------


def open_epoch(state: RaftState, leader: Leader, granting: list[int]) -> None:
    """Begin a new leader's epoch with its LeaderChange record.

    The same batch holds KRaftVersion and KRaftVoters when the log does not name the voters yet, because they came
    from the 0-0 checkpoint, or when it names this replica with outdated endpoints or versions.

    Args:
        leader: the new leader's role.
        granting: ids of the voters that voted for it.
    """
    state.log.assign_epoch_start_offset(state.epoch, leader.epoch_start_offset)
    entries = [control_records.leader_change(state.config.key.id, state.voters, granting)]
    if state.version >= 1:
        voters = state.voters_with_own_entry()
        from_checkpoint = (state.voter_sets.latest_offset or 0) < 0
        if from_checkpoint or voters != state.voters:
            entries += [control_records.kraft_version(state.version), control_records.kraft_voters(voters)]
    append_control(state, leader, entries)


def append_control(state: RaftState, role: Leader, entries: list[control_records.ControlEntry]) -> int:
    """Append one control batch and return its first offset; its voters and version are in force at once."""
    return _append(state, role, control_records.control_batch(entries, state.now_ms), is_control=True)


def propose(state: RaftState, event: Propose) -> None:
    """Append a client's batches, or say why not."""
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
            offset = _append(state, role, event.batch)
        except ClosedError:
            raise
        except (LocalError, CorruptBatchError) as error:
            state.finish(event.ticket, ErrorCode.INVALID_RECORD, message=str(error))
        else:
            for batch in event.more:
                _append(state, role, batch)
            state.finish(event.ticket, ErrorCode.NONE, offset)


def _append(state: RaftState, role: Leader, batch: bytearray, *, is_control: bool = False) -> int:
    offset = state.log.append_as_leader(batch, state.epoch, state.now_ms)
    if is_control:
        state.learn_from([RecordBatch(batch, verify=False)])
        state.then(Step.VOTERS_CHANGED, role)
    state.out.flush += len(batch)
    # Fetches are answered before our own flush has ended, so that followers flush at the same time.
    delayed_fetches.appended(state, role, is_control=is_control)
    return offset


def flushed(state: RaftState, offset: int) -> None:
    """Count this leader's own log up to ``offset``, below which it is durable, if the leader is a voter.

    A follower's next Fetch and a candidate's Vote requests wait for a flush, too; they are due now, and sent as such.
    """
    role = state.role
    if isinstance(role, Leader) and state.is_voter and role.watermark.update(state.config.key.id, offset):
        _high_watermark_moved(state, role)


# --- the leader answers -----------------------------------------------------------------------------------------------


def on_fetch(state: RaftState, received: Received, request: FetchRequest) -> None:
    """Check a Fetch: refuse it, send its replica elsewhere, or have it answered by ``delayed_fetches``."""
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
    is_duplicate = duplicate_ids.is_ours(state, key)
    if isinstance(role, Leader) and (
        is_duplicate or (error is ErrorCode.NONE and duplicate_ids.refuses(state, role, key))
    ):
        error = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        state.reply(received.ticket, partition.fetch_error(state, received, error))
        return
    where = _place(state, asked.fetch_offset, asked.last_fetched_epoch)
    if where is not None:
        state.reply(received.ticket, partition.fetch_elsewhere(state, received, role, where))
        return
    _track(state, role, key, asked.fetch_offset)
    fetch = DelayedFetch(
        received.ticket,
        key,
        asked.current_leader_epoch,
        asked.fetch_offset,
        partition.bounded(state, max(request.max_bytes, 0)),
        state.now_ms + _wait_ms(state, key, request.max_wait_ms),
        received.version,
        received.listener,
    )
    state.then(Step.FETCH_ACCEPTED, role, fetch, asked.high_watermark)  # after delayed Fetches


def _wait_ms(state: RaftState, key: ReplicaKey, wanted_ms: int) -> int:
    """How long a Fetch may be kept, ms.

    A voter that asks for longer than half our fetch timeout may have a longer fetch timeout than this replica,
    which would resign before that voter fetches again.
    """
    most_ms = state.config.fetch_timeout_ms // 2
    return most_ms if wanted_ms > most_ms and state.voters.is_voter(key) else wanted_ms


def _place(state: RaftState, offset: int, epoch: int) -> partition.Elsewhere | None:
    """Where a replica at (offset, epoch) must go before it can fetch on; None: it can fetch on from there."""
    log = state.log
    start = log.log_start_offset
    if offset == log.log_end_offset > start and epoch == log.last_epoch:
        return None  # almost every Fetch; the code below would come to the same after look-ups
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


def _track(state: RaftState, role: Leader, key: ReplicaKey, offset: int) -> None:
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
        succession.heard_from(state, role, key.id)
        if role.watermark.update(key.id, offset):
            _high_watermark_moved(state, role)


def voters_changed(state: RaftState, role: Leader) -> None:
    """Compute the high watermark from the members of the voter set in force alone."""
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
        _high_watermark_moved(state, role)


def _high_watermark_moved(state: RaftState, role: Leader) -> None:
    value = role.watermark.value or 0  # never None: a high watermark that moved is known
    _heard_of_high_watermark(state, value)
    state.raise_high_watermark(value)
    state.then(Step.HIGH_WATERMARK_ROSE, role)


# --- the follower fetches ---------------------------------------------------------------------------------------------


def advance_follower(state: RaftState, role: Follower) -> int | None:
    """Send the next Fetch or FetchSnapshot; returns when something is due, ms, or None."""
    if state.shutting_down or not state.is_flushed:  # a Fetch acknowledges everything below its offset
        return None
    leader = state.destination(role.leader_id, role.leader_endpoints)
    if leader is None:
        return None
    if state.is_backing_off(leader):
        at = _fetch_from_bootstrap(state)
        ready = state.ready_at(leader)
        return ready if at is None else at if ready is None else min(at, ready)
    # One Fetch at a time to this leader; a Fetch that is still in flight to an earlier leader, or to a bootstrap
    # server that may be dead, does not count.
    if _fetching(state, leader):
        return None
    if not state.is_ready(leader):
        return state.ready_at(leader)
    if role.snapshot is not None:
        if not role.snapshot.is_whole:
            state.send(leader, partition.fetch_snapshot_request(state, role.snapshot))
    else:
        state.send(leader, partition.fetch_request(state), min_version=partition.FETCH_MIN_VERSION)
    return None


def advance_unattached(state: RaftState, role: Unattached) -> int | None:
    """Send a Fetch to a bootstrap server, whose answer names the leader; returns when something is due, ms."""
    return None if state.shutting_down or not state.is_flushed else _fetch_from_bootstrap(state)


def _fetching(state: RaftState, leader: Destination | None = None) -> bool:
    epoch = state.epoch
    for request in state.in_flight.values():
        fits = request.epoch == epoch and (leader is None or request.destination == leader)
        if fits and partition.is_fetch(request.message):
            return True
    return False


def _bootstrap_servers(state: RaftState) -> list[Destination]:
    """The servers to ask for the leader: those configured; without any, the other members of the voter set."""
    known = state.bootstrap
    if known.voters is not state.voters:
        config = state.config
        servers = [Destination(None, host, port) for host, port in config.bootstrap_servers]
        if not servers:
            others = [voter for voter in state.voters if voter.key.id != config.key.id]
            found = [state.destination(voter.key.id, voter.endpoints) for voter in others]
            servers = [to._replace(node_id=None) for to in found if to is not None]
        own = {(endpoint.host, endpoint.port) for endpoint in config.listeners}
        known.servers = [server for server in servers if (server.host, server.port) not in own]
        known.voters = state.voters
    return known.servers


def _fetch_from_bootstrap(state: RaftState) -> int | None:
    servers = _bootstrap_servers(state)
    if not servers or _fetching(state):
        return None
    if state.bootstrap.ask_again_ms > state.now_ms:
        return state.bootstrap.ask_again_ms
    ready = [server for server in servers if state.is_ready(server)]
    if ready:
        to = state.rng.choice(ready)
        state.send(to, partition.fetch_request(state), min_version=partition.FETCH_MIN_VERSION)
        return None
    times = [at for server in servers if (at := state.ready_at(server)) is not None]
    return min(times) if times else None


# --- the follower gets an answer --------------------------------------------------------------------------------------


def on_fetch_answer(state: RaftState, sent: InFlight, response: FetchResponse) -> None:
    """Append the records, truncate the log at the diverging epoch, or begin to fetch a snapshot."""
    source = sent.destination
    answer = partition.fetch_answer(state, response)
    if answer is None:
        epochs.refuse_answer(state, source, response)
        return
    if source.node_id is None:
        state.bootstrap.ask_again_ms = state.now_ms + state.config.discovery_pause_ms
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
        taken = _truncate(state, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
    elif answer.snapshot_id.epoch >= 0 or answer.snapshot_id.end_offset >= 0:
        snapshot_id = (answer.snapshot_id.end_offset, answer.snapshot_id.epoch)
        taken = snapshot_fetch.begin_fetch(state, role, snapshot_id)
    else:
        taken = _append_fetched(state, answer.records or b"", source)
        if taken:
            _follow_high_watermark(state, answer.high_watermark)
            if state.may_have_forgotten:
                probation.fetched(state, sent, answer.high_watermark)
    if taken:
        succession.fetched_well(state, role)
    else:  # asked again at once the leader would give the same answer
        state.back_off(source)


def _append_fetched(state: RaftState, data: bytes, source: Destination) -> bool:
    if not data:
        return True
    before = state.log.log_end_offset
    try:
        batches = list(iter_batches(data, verify=False, allow_partial=True))
        for batch in batches:
            if batch.is_control:  # once in the log it is in force, and is read at each start
                for _ in control_records.voter_changes(batch):
                    pass
                _compare_static_voters(state, batch)
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


def _compare_static_voters(state: RaftState, batch: RecordBatch) -> None:
    """Note a leader that was elected by other static voters than ours: then two majorities need not overlap."""
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


def _follow_high_watermark(state: RaftState, told: int) -> None:
    if told >= 0:
        _heard_of_high_watermark(state, told)
        state.raise_high_watermark(min(told, state.log.log_end_offset))


def _heard_of_high_watermark(state: RaftState, value: int) -> None:
    state.told_high_watermark = value
    if state.first_high_watermark is None:
        state.first_high_watermark = value


def _truncate(state: RaftState, epoch: int, end_offset: int) -> bool:
    log = state.log
    own = state.end_offset_for_epoch(epoch)
    offset = min(own.offset, end_offset) if own.epoch == epoch or epoch == 0 else own.offset
    offset = min(offset, log.log_end_offset)
    if floor.forbids_cut(state, offset):
        return False
    state.forget_history_from(log.truncate_to(offset))
    return True
