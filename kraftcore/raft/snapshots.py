"""FetchSnapshot, both sides, and what a finished snapshot changes.

A leader that no longer has the records a replica needs names its latest snapshot in the Fetch answer. The replica
copies it in chunks; when it is whole it is verified and made durable, and then the log is replaced by it: it starts
there, empty, and so do voter sets, kraft.version and high watermark. Both are effects (`VerifySnapshot`,
`InstallSnapshot`): nobody waits for the disk here. Meanwhile nothing is fetched, the fetch timer stands still, and
pre-votes are granted once the leader has been silent for a fetch timeout. A replica that is interrupted starts over
(after a restart) or goes on at its position (same leader).

A snapshot that turns out to be damaged is fetched again after a pause that doubles up to half a fetch timeout: the
leader may have another one by then.

The 0-0 checkpoint is never served: its voters reach everyone through the first leader's log.

Sources: KIP-630, KIP-853; Kafka 4.3.1 for check order. Kafka 4.3.1 cannot serialise a partition-level error here and
answers UNKNOWN_SERVER_ERROR at top level instead: a follower takes that for SNAPSHOT_NOT_FOUND.
"""

from __future__ import annotations

from kraftcore.errors import InvariantError, StorageError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftcore.raft import partition
from kraftcore.raft.duties import Duties
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
from kraftcore.raft.state import InFlight

MAX_DOUBLINGS = 20  # of the pause after a damaged snapshot, which the fetch timeout bounds


class Snapshots:
    """FetchSnapshot of both sides, and installing what was received; see the module text."""

    def __init__(self, replica: Duties) -> None:
        self._replica = replica
        self._state = replica.state
        self._damaged = 0  # snapshots received in a row that were of no use
        self._number = 0  # of the latest that was to be verified
        self._verified: dict[int, tuple[SnapshotFetch, Destination]] = {}  # what is being verified, and who sent it
        self._source: Destination | None = None  # of what is being installed

    # --- the leader's side --------------------------------------------------------------------------------------------

    def on_fetch_snapshot(self, received: Received, request: FetchSnapshotRequest) -> None:
        """Answer with a chunk."""
        state = self._state
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
        error = self._replica.check_leader_only(asked.current_leader_epoch)
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
            self._replica.succession.heard_from(role, key.id)
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

    # --- the follower's side ------------------------------------------------------------------------------------------

    def begin_fetch(self, role: Follower, snapshot_id: tuple[int, int]) -> bool:
        """The leader names a snapshot to fetch; False if its id is impossible, or the floor forbids it."""
        state = self._state
        end_offset, epoch = snapshot_id
        if end_offset <= 0 or epoch < 0 or epoch > state.epoch:
            state.note(f"refused snapshot {end_offset}-{epoch} from the leader of epoch {state.epoch}: impossible id")
            return False
        if self._replica.floor.forbids_snapshot(end_offset, epoch):
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

    def on_fetch_snapshot_answer(self, sent: InFlight, response: FetchSnapshotResponse) -> None:
        """Take a chunk; after the last one the snapshot is verified."""
        state = self._state
        source = sent.destination
        answer = partition.fetch_snapshot_answer(state, response)
        if answer is None:
            if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and isinstance(state.role, Follower):
                self._give_up(state.role, source)
            else:
                self._replica.refuse_answer(source, response)
            return
        if not self._replica.learn_from_answer(partition.summary_of(answer), response.node_endpoints, source):
            return
        role = state.role
        if not isinstance(role, Follower) or role.snapshot is None or sent.epoch != state.epoch:
            return
        fetch = role.snapshot
        gone = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
        told = (answer.snapshot_id.end_offset, answer.snapshot_id.epoch)
        if answer.error_code in gone or (answer.error_code == ErrorCode.NONE and min(told) < 0):
            self._give_up(role, source)
            self._replica.replication.fetched_well(role)
            return
        if answer.error_code != ErrorCode.NONE:
            self._replica.refuse_answer(source, response, answer)
            return
        data = answer.unaligned_records or b""
        if told != (fetch.end_offset, fetch.epoch) or answer.position != fetch.position or not data:
            state.note(f"refused {len(data)} bytes of snapshot {told} at {answer.position}: not what was asked for")
            self._give_up(role, source)
            return
        try:
            fetch.part.append(data, position=fetch.position)
        except StorageError as error:
            state.note(f"cannot write snapshot {fetch.end_offset}-{fetch.epoch}: {error}")
            self._give_up(role, source)
            return
        fetch.position += len(data)
        self._replica.replication.fetched_well(role)
        if fetch.position >= answer.size:
            fetch.is_whole = True
            self._number += 1
            self._verified[self._number] = (fetch, source)
            state.out.snapshot = VerifySnapshot(self._number, fetch.end_offset, fetch.epoch, fetch.part)

    def verified(self, event: SnapshotVerified) -> None:
        """A received snapshot is whole and durable, or damaged."""
        state = self._state
        fetch, source = self._verified.pop(event.number)
        role = state.role
        if not isinstance(role, Follower) or role.snapshot is not fetch or state.shutting_down:
            fetch.part.close()  # its sender is not the leader any more, or this replica shuts down
        elif event.damage:
            self._is_of_no_use(role, fetch, source, event.damage)
        else:
            self._source = source
            state.out.snapshot = InstallSnapshot(fetch.end_offset, fetch.epoch, fetch.part)

    def installed(self, event: SnapshotInstalled) -> None:
        """A snapshot is in the log's place, or could not be given its name."""
        state = self._state
        role = state.role
        if not isinstance(role, Follower) or role.snapshot is None:
            raise InvariantError(
                f"snapshot {event.end_offset}-{event.epoch} is installed, and {role} did not ask for it"
            )
        fetch, role.snapshot = role.snapshot, None
        if event.problem:
            self._is_of_no_use(role, fetch, self._source, event.problem)
            return
        self._damaged = 0
        state.load_history()
        state.out.restore = (event.end_offset, event.epoch)
        self._replica.replication.raise_high_watermark(event.end_offset)
        self._replica.replication.fetched_well(role)

    def _is_of_no_use(self, role: Follower, fetch: SnapshotFetch, source: Destination | None, why: str) -> None:
        state = self._state
        state.note(f"snapshot {fetch.end_offset}-{fetch.epoch} is of no use: {why}")
        role.snapshot = None
        if fetch.part is not None:
            fetch.part.close()
        self._replica.replication.fetched_well(role)
        self._damaged += 1
        pause_ms = state.config.retry_backoff_ms << min(self._damaged, MAX_DOUBLINGS)
        if source is not None:
            state.back_off(source, min(pause_ms, state.config.fetch_timeout_ms // 2))

    def _give_up(self, role: Follower, source: Destination) -> None:
        """Drop the snapshot that is being fetched, and Fetch again after a backoff."""
        self._state.back_off(source)
        self.drop(role)

    def drop(self, role: Follower) -> None:
        """Close the part file and go back to Fetch; a part that is being verified is closed when that has ended."""
        fetch, role.snapshot = role.snapshot, None
        if fetch is not None and not fetch.is_whole:
            fetch.part.close()

    # --- our own snapshots --------------------------------------------------------------------------------------------

    def written(self, event: SnapshotWritten) -> None:
        """Our state machine's snapshot is durable: older voter sets are in it."""
        state = self._state
        state.voter_sets.compact_to(event.end_offset)
        state.versions.compact_to(event.end_offset)
