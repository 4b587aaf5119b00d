"""FetchSnapshot, on both sides, and what a received snapshot changes.

A leader that no longer has the records that a replica needs names its latest snapshot in the answer to a Fetch. The
replica then fetches that snapshot in chunks instead of records:

1. Each chunk is appended to a part file, at the position that the replica asked for.
2. When the snapshot is whole, it is verified and made durable: effect `VerifySnapshot`, event `SnapshotVerified`.
3. It gets its name and takes the place of the log: `InstallSnapshot`, `SnapshotInstalled`. The log then begins, empty,
   at the snapshot's end; voter sets, kraft.version and high watermark are those of the snapshot.

Nothing here waits for the disk. During steps 2 and 3 nothing is fetched, the fetch timer stands still, and pre-votes
are granted when the leader has been silent for a fetch timeout. An interrupted replica goes on at its position with the
same leader; after a restart it starts anew.

A damaged snapshot is fetched again after a pause, which doubles up to half a fetch timeout: the leader may have another
one by then. The 0-0 checkpoint is never served: its voters reach every replica through the first leader's log.

Sources: KIP-630, KIP-853; Kafka 4.3.1 for the order of checks. Kafka 4.3.1 cannot serialise a partition-level error in
FetchSnapshot and answers UNKNOWN_SERVER_ERROR at top level instead: a follower takes that for SNAPSHOT_NOT_FOUND.
"""

from __future__ import annotations

from kraftcore.errors import InvariantError, StorageError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftcore.raft import epochs, floor, partition, succession
from kraftcore.raft.events import (
    Destination,
    InstallSnapshot,
    Received,
    SnapshotInstalled,
    SnapshotVerified,
    SnapshotWritten,
    VerifySnapshot,
)
from kraftcore.raft.roles import Follower, Leader, SnapshotFetch
from kraftcore.raft.state import InFlight, RaftState

MAX_DOUBLINGS = 20  # of the pause after a damaged snapshot, which the fetch timeout bounds


# --- the leader's side ------------------------------------------------------------------------------------------------


def on_fetch_snapshot(state: RaftState, received: Received, request: FetchSnapshotRequest) -> None:
    """Answer with a chunk of a snapshot, or with an error."""
    if not partition.same_cluster(state, request.cluster_id):
        state.reply(received.ticket, FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    topics = request.topics
    if (
        len(topics) != 1
        or topics[0].name != state.config.topic
        or len(topics[0].partitions) != 1
        or topics[0].partitions[0].partition != partition.PARTITION
    ):
        name = topics[0].name if topics else state.config.topic
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state.reply(received.ticket, partition.fetch_snapshot_response(state, received, error, name))
        return
    asked = topics[0].partitions[0]
    error = state.leader_only_error(asked.current_leader_epoch)
    snapshot_id = (asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    role = state.role
    size = 0
    if error is ErrorCode.NONE:
        if snapshot_id == (0, 0) or snapshot_id not in state.snapshots:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        else:
            size = state.snapshots.size(snapshot_id)
            if not 0 <= asked.position < size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        state.reply(received.ticket, partition.fetch_snapshot_response(state, received, error))
        return
    key = ReplicaKey(request.replica_id, asked.replica_directory_id)
    if state.voters.is_voter(key):
        succession.heard_from(state, role, key.id)
    reader = state.snapshots.open(snapshot_id)
    try:
        chunk = reader.read_at(asked.position, partition.bounded(state, max(request.max_bytes, 1)))
    finally:
        reader.close()
    state.reply(
        received.ticket,
        partition.fetch_snapshot_response(
            state,
            received,
            error,
            snapshot_id=partition.snapshot_id(asked.snapshot_id),
            size=size,
            position=asked.position,
            unaligned_records=chunk,
        ),
    )


# --- the follower's side ----------------------------------------------------------------------------------------------


def begin_fetch(state: RaftState, role: Follower, snapshot_id: tuple[int, int]) -> bool:
    """Begin to fetch the snapshot that the leader names.

    Returns:
        False if the id is impossible, the floor forbids the snapshot, or there is no space for it.
    """
    end_offset, epoch = snapshot_id
    if end_offset <= 0 or epoch < 0 or epoch > state.epoch:
        state.note(f"refused snapshot {end_offset}-{epoch} from the leader of epoch {state.epoch}: impossible id")
        return False
    if floor.forbids_snapshot(state, end_offset, epoch):
        return False
    if snapshot_id in state.snapshots:
        role.snapshot = SnapshotFetch(end_offset, epoch, None, is_whole=True)
        state.out.snapshot = InstallSnapshot(end_offset, epoch, None)
        return True
    try:
        role.snapshot = SnapshotFetch(end_offset, epoch, state.snapshots.create(snapshot_id))
    except StorageError as error:
        state.note(f"cannot receive snapshot {end_offset}-{epoch}: {error}")
        return False
    return True


def on_fetch_snapshot_answer(state: RaftState, sent: InFlight, response: FetchSnapshotResponse) -> None:
    """Take a chunk; after the last one have the snapshot verified."""
    source = sent.destination
    answer = partition.fetch_snapshot_answer(state, response)
    if answer is None:
        if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and isinstance(state.role, Follower):
            _give_up(state, state.role, source)
        else:
            epochs.refuse_answer(state, source, response)
        return
    if not epochs.learn_from_answer(state, partition.summary_of(answer), response.node_endpoints, source):
        return
    role = state.role
    if not isinstance(role, Follower) or role.snapshot is None or sent.epoch != state.epoch:
        return
    fetch = role.snapshot
    gone = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
    told = (answer.snapshot_id.end_offset, answer.snapshot_id.epoch)
    if answer.error_code in gone or (answer.error_code == ErrorCode.NONE and min(told) < 0):
        _give_up(state, role, source)
        succession.fetched_well(state, role)
        return
    if answer.error_code != ErrorCode.NONE:
        epochs.refuse_answer(state, source, response, answer)
        return
    data = answer.unaligned_records or b""
    if told != (fetch.end_offset, fetch.epoch) or answer.position != fetch.position or not data:
        state.note(f"refused {len(data)} bytes of snapshot {told} at {answer.position}: not what was asked for")
        _give_up(state, role, source)
        return
    try:
        fetch.part.append(data, position=fetch.position)
    except StorageError as error:
        state.note(f"cannot write snapshot {fetch.end_offset}-{fetch.epoch}: {error}")
        _give_up(state, role, source)
        return
    fetch.position += len(data)
    succession.fetched_well(state, role)
    if fetch.position >= answer.size:
        fetch.is_whole = True
        received = state.received
        received.number += 1
        received.verified[received.number] = (fetch, source)
        state.out.snapshot = VerifySnapshot(received.number, fetch.end_offset, fetch.epoch, fetch.part)


def verified(state: RaftState, event: SnapshotVerified) -> None:
    """Have a snapshot that is whole and durable installed; drop a damaged one."""
    fetch, source = state.received.verified.pop(event.number)
    role = state.role
    if not isinstance(role, Follower) or role.snapshot is not fetch or state.shutting_down:
        fetch.part.close()  # another leader is followed, or this replica shuts down
    elif event.damage:
        _is_of_no_use(state, role, fetch, source, event.damage)
    else:
        state.received.source = source
        state.out.snapshot = InstallSnapshot(fetch.end_offset, fetch.epoch, fetch.part)


def installed(state: RaftState, event: SnapshotInstalled) -> None:
    """Go on from a snapshot that has taken the log's place; drop one that could not be given its name."""
    role = state.role
    if not isinstance(role, Follower) or role.snapshot is None:
        raise InvariantError(f"snapshot {event.end_offset}-{event.epoch} is installed, and {role} did not ask for it")
    fetch, role.snapshot = role.snapshot, None
    if event.problem:
        _is_of_no_use(state, role, fetch, state.received.source, event.problem)
        return
    state.received.damaged = 0
    state.load_history()
    state.out.restore = (event.end_offset, event.epoch)
    state.raise_high_watermark(event.end_offset)
    succession.fetched_well(state, role)


def _is_of_no_use(state: RaftState, role: Follower, fetch: SnapshotFetch, source: Destination | None, why: str) -> None:
    state.note(f"snapshot {fetch.end_offset}-{fetch.epoch} is of no use: {why}")
    role.snapshot = None
    if fetch.part is not None:
        fetch.part.close()
    succession.fetched_well(state, role)
    state.received.damaged += 1
    pause_ms = state.config.retry_backoff_ms << min(state.received.damaged, MAX_DOUBLINGS)
    if source is not None:
        state.back_off(source, min(pause_ms, state.config.fetch_timeout_ms // 2))


def _give_up(state: RaftState, role: Follower, source: Destination) -> None:
    """Drop the snapshot that is being fetched, and go back to Fetch after a backoff."""
    state.back_off(source)
    role.drop_snapshot()


# --- our own snapshots ------------------------------------------------------------------------------------------------


def written(state: RaftState, event: SnapshotWritten) -> None:
    """Forget voter sets and versions that this replica's own new snapshot holds."""
    state.voter_sets.compact_to(event.end_offset)
    state.versions.compact_to(event.end_offset)
