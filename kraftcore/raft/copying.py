"""Copying a leader's latest snapshot to a replica that does not need the snapshot to catch up.

A leader names a snapshot only in answer to a Fetch of records that it has deleted, so a replica that keeps up never
hears of one. A Fetch at offset 0 is answered with the id of the latest snapshot even while the log still holds offset 0
(Kafka 4.3.1, KafkaRaftClient.validateFetchOffsetAndEpoch). This module makes the requests and reads the answers; its
caller sends them.
"""

from __future__ import annotations

from typing import Any

from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftcore.raft import partition
from kraftcore.raft.events import Destination
from kraftcore.raft.ports import WriterPort
from kraftcore.raft.replica import Replica
from kraftcore.raft.roles import Follower, SnapshotFetch
from kraftcore.raft.state import RaftState


class SnapshotCopying:
    """Finds out the leader's latest snapshot, and copies it.

    Args:
        replica: the replica that gets the copy.
    """

    def __init__(self, replica: Replica) -> None:
        self._state = replica.state

    @property
    def leader(self) -> Destination | None:
        """The leader to ask; None: none is known, or the replica itself is fetching a snapshot."""
        role = self._state.role
        if not isinstance(role, Follower) or role.snapshot is not None:
            return None
        return self._state.destination(role.leader_id, role.leader_endpoints)

    def latest_request(self) -> FetchRequest:
        """The request for the latest snapshot's id, in version ``partition.FETCH_MIN_VERSION`` or later."""
        request = partition.fetch_request(self._state)
        request.max_wait_ms, request.max_bytes = 0, 1
        asked = request.topics[0].partitions[0]
        asked.fetch_offset = asked.last_fetched_epoch = 0
        return request

    def latest_in(self, answer: Any) -> tuple[int, int] | None:
        """The latest snapshot that an answer names, if it is newer than ours and holds only records committed here."""
        state = self._state
        told = partition.fetch_answer(state, answer) if isinstance(answer, FetchResponse) else None
        if told is None or told.error_code != ErrorCode.NONE:
            return None
        end_offset, epoch = told.snapshot_id.end_offset, told.snapshot_id.epoch
        latest = state.snapshots.latest
        newest = 0 if latest is None else latest[0]
        if not newest < end_offset <= (state.high_watermark or 0):
            return None
        return (end_offset, epoch) if state.log.epoch_at(end_offset - 1) == epoch else None

    def chunks(self, wanted: tuple[int, int], writer: WriterPort) -> SnapshotChunks:
        """The requests and answers that bring a snapshot, piece by piece, to ``writer``."""
        return SnapshotChunks(self._state, wanted, writer)


class SnapshotChunks:
    """The pieces of one snapshot.

    Attributes:
        position: bytes that were received.
    """

    def __init__(self, state: RaftState, wanted: tuple[int, int], writer: WriterPort) -> None:
        self._state = state
        self._wanted = wanted
        self._writer = writer
        self._size: int | None = None
        self.position = 0

    @property
    def is_complete(self) -> bool:
        """Whether everything was received."""
        return self._size is not None and self.position >= self._size

    def request(self) -> FetchSnapshotRequest:
        """The request for the next piece."""
        fetch = SnapshotFetch(*self._wanted, self._writer, position=self.position)
        return partition.fetch_snapshot_request(self._state, fetch)

    def data_in(self, answer: Any) -> bytes | None:
        """The next piece, if an answer has it; else None."""
        if not isinstance(answer, FetchSnapshotResponse):
            return None
        told = partition.fetch_snapshot_answer(self._state, answer)
        if told is None or told.error_code != ErrorCode.NONE or told.position != self.position:
            return None
        data: bytes = told.unaligned_records or b""
        if not data or (told.snapshot_id.end_offset, told.snapshot_id.epoch) != self._wanted:
            return None
        self._size = told.size
        return data
