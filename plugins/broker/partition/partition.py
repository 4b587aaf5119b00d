"""A replica of a partition: its log, its role, its high watermark.

Every event is one call, with the time where it matters. It changes the log at once and returns ``PartitionEffects``
for the caller to carry out. A refused call raises ``RefusedError`` with Kafka's name of the error and changes nothing.

    controller ──> become_leader / become_follower / isr_answered
    clients ─────> append, read, end_of_epoch, find_timestamp      disk ──> synced
    coordinators > end_transaction
    followers ───> read, fetched            leader ──> replicate, truncate, restart_at
    time ────────> check_lag, retained_start, begin_delete_below

While a thread removes part of the log (``is_changing``) requests are refused as by a broker that does not lead. The
high watermark is an exclusive end; it falls only when a follower's log is cut, and is kept from role to role. While
``flush.messages`` asks for a sync (``owes_sync``), records that are not synced yet are not acknowledged, and do not
count for the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.batch.layout import PRODUCER_ID_POSITION
from kraftcore.core.log import Log
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import InvariantError, OversizedBatchError
from kraftcore.plugins.broker.partition.leading import UNKNOWN_OFFSET, Leading
from kraftcore.plugins.broker.partition.retention import Retention, retained_start
from kraftcore.plugins.broker.partition.searching import TimestampSearch
from kraftcore.plugins.broker.partition.state import (
    NO_EPOCH,
    UNKNOWN_BROKER_EPOCH,
    Assignment,
    IsrAnswer,
    IsrProposal,
    PartitionEffects,
    PartitionSettings,
    View,
    Waiter,
    refused,
)
from kraftcore.plugins.broker.producers import AbortedTransaction, Marker, ProducerStates
from kraftcore.plugins.broker.work.heavy_steps import HeavySteps, LoopRoom
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.topics import TopicPartition

_PRODUCER_ID = slice(PRODUCER_ID_POSITION, PRODUCER_ID_POSITION + 8)


class Partition:
    """A replica of a partition: its log, its role, its high watermark.

    Args:
        name: topic and number.
        broker_id: the id of this broker.
        log: the partition's open log, which only the partition changes.
        settings: see ``PartitionSettings``.
        high_watermark: the high watermark last stored; it is bounded by the log's start and end.
        is_eligible: whether a broker, in the incarnation of this broker epoch, may be proposed for the ISR (KIP-841).
        producers: the producers of the log; None: there are none yet, and no snapshots are kept.

    Attributes:
        leader_id: the leader's broker id; None before the first assignment.
        leader_epoch: the leader epoch; -1 before the first assignment.
        partition_epoch: the partition epoch; -1 before the first assignment.
        high_watermark: the high watermark, as far as this replica knows it.
        leading: the state of a leadership; None unless this broker leads.
        is_following: whether the replica fetches from ``leader_id``.
        leader_high_watermark: the high watermark that the leader of this epoch last told a follower; -1: none yet.
        producers: the producers that number their batches.
        settings: may be replaced at any time.
        is_changing: whether a thread is removing part of the log.
        can_propose: whether the controller can be asked for another ISR (AlterPartition names topics by id, and its
            topic may have none); else the assigned one stays.
    """

    def __init__(
        self,
        name: TopicPartition,
        broker_id: int,
        log: Log,
        settings: PartitionSettings,
        high_watermark: int = 0,
        is_eligible: Callable[[int, int], bool] = lambda broker_id, broker_epoch: True,
        producers: ProducerStates | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.producers = ProducerStates(log) if producers is None else producers
        self.leader_id: int | None = None
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.leading: Leading | None = None
        self.is_following = False
        self.leader_high_watermark = UNKNOWN_OFFSET
        self.is_changing = False
        self.can_propose = True
        self._broker_id = broker_id
        self.settings = settings
        self.is_eligible = is_eligible
        self._replicas: tuple[int, ...] = ()

    # --- roles --------------------------------------------------------------------------------------------------------

    def become_leader(self, assignment: Assignment, now_ms: int) -> PartitionEffects:
        """Lead in a newer epoch; or in this one, with other replicas or another ISR (KRaft controllers tell so)."""
        effects = PartitionEffects(has_changed=True)
        end = self.log.log_end_offset
        # A follower's log may have later epochs than this one; by this entry it learns where to cut (KIP-101).
        if self.log.last_epoch is None or self.log.last_epoch < assignment.leader_epoch:
            self.log.assign_epoch_start_offset(assignment.leader_epoch, end)
        if self.leading is not None and assignment.leader_epoch == self.leader_epoch:
            is_newer = assignment.partition_epoch > self.partition_epoch
            self.leading.reassign(self._broker_id, assignment, is_newer=is_newer)
        else:
            if self.leading is not None and assignment.leader_epoch > self.leader_epoch + 1:
                # A leader of an epoch unknown to this broker may have had followers cut their logs.
                self.leading.followers.clear()
            self.leading = Leading(self._broker_id, assignment, end, now_ms, self.leading)
        self._take_over(assignment, is_following=False)
        self._commit(effects, now_ms)
        return effects

    def become_follower(self, assignment: Assignment) -> PartitionEffects:
        """Follow the leader of a newer epoch."""
        effects = PartitionEffects(has_changed=True)
        self._end_leading(effects)
        if assignment.leader_epoch != self.leader_epoch:
            self.leader_high_watermark = UNKNOWN_OFFSET
        self._take_over(assignment, is_following=assignment.leader >= 0)
        return effects

    def stop(self) -> PartitionEffects:
        """Stop replicating and serving, as the replica is removed."""
        effects = PartitionEffects(has_changed=True)
        self._end_leading(effects)
        self.is_following = False
        return effects

    def pause(self) -> None:
        """Stop replicating; everything else stays as it is."""
        self.is_following = False

    def _take_over(self, assignment: Assignment, *, is_following: bool) -> None:
        self.leader_id = assignment.leader
        self.leader_epoch = assignment.leader_epoch
        self.partition_epoch = assignment.partition_epoch
        self._replicas = assignment.replicas
        self.is_following = is_following
        self._keep_tail()

    def use(self, log: Log, producers: ProducerStates) -> None:
        """Go on with another log that holds the same records."""
        self.log, self.producers = log, producers
        self._keep_tail()

    def _keep_tail(self) -> None:
        self.log.keep_tail(0 if self.is_following else self.log.config.tail_bytes)  # followers read from leaders

    def _end_leading(self, effects: PartitionEffects) -> None:
        if self.leading is not None:
            waiting = (*self.leading.syncing, *self.leading.waiting)
            effects.ended += [(waiter, ErrorCode.NOT_LEADER_OR_FOLLOWER) for _, waiter in waiting]
            self.leading = None

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self, current_leader_epoch: int, *, needs_leader: bool = True) -> None:
        """Refuse a request of another leader epoch (-1: it names none), or for a role that this broker does not have.

        Raises:
            RefusedError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch != NO_EPOCH:
            if current_leader_epoch < self.leader_epoch:
                raise refused(ErrorCode.FENCED_LEADER_EPOCH, f"{self.name} is at leader epoch {self.leader_epoch}")
            if current_leader_epoch > self.leader_epoch:
                raise refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.name} is at leader epoch {self.leader_epoch}")
        if needs_leader and self.leading is None:
            raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is not led here")
        self._check_settled()

    def _check_settled(self) -> None:
        if self.is_changing:
            raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"part of the log of {self.name} is being removed")

    def _lead(self) -> Leading:
        if self.leading is None:
            raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is not led here")
        return self.leading

    @property
    def min_insync_replicas(self) -> int:
        """The least size of the ISR for acks=all, at most the number of replicas."""
        return min(self.settings.min_insync_replicas, len(self._replicas))

    # --- leader -------------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: bytearray,
        now_ms: int,
        *,
        waiter: Waiter | None = None,
        needs_isr: bool = False,
        has_sequence: bool = True,
        verified: tuple[int, int] | None = None,
    ) -> tuple[int, PartitionEffects]:
        """Append one batch of a client, which was validated; its offsets and epoch are stamped in place.

        A repeated batch is not appended again; the answer has the offset of the stored batch (KIP-98).

        Args:
            batch: exactly one batch. The log keeps it: never change it again.
            now_ms: the time, milliseconds since 1970.
            waiter: ended when the batch is committed, or when this leadership ends before.
            needs_isr: whether to refuse the batch when the ISR is too small (acks=all).
            has_sequence: whether the producer's sequence is checked; else only its epoch is, as for offsets that a
                coordinator writes in a producer's transaction.
            verified: (producer id, epoch) whose transaction has this partition, as its coordinator said. No other
                producer may begin a transaction with a numbered batch (Kafka 4.3.1, UnifiedLog.append).

        Returns:
            The offset of the first record, and the effects.

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS; INVALID_PRODUCER_EPOCH,
                OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
            StorageError: the disk failed; the log takes nothing more.
        """
        leading = self._lead()
        if needs_isr:
            self._check_isr(leading)
        numbered = RecordBatch(batch, verify=False) if _has_producer(batch) else None
        repeated = None if numbered is None else self.producers.check(numbered, has_sequence=has_sequence)
        if repeated is None:
            if numbered is not None and has_sequence:
                self._check_verified(numbered, verified)
            base = self.log.append_as_leader(batch, self.leader_epoch, now_ms)
            self.producers.appended(numbered, base)
            end = self.log.log_end_offset
        else:
            base, end = repeated.first_offset, repeated.last_offset + 1
        if waiter is not None:
            leading.wait(end, waiter)
        stored_ms = None if repeated is None else repeated.timestamp
        effects = PartitionEffects(has_changed=repeated is None, repeated_ms=stored_ms)
        self._commit(effects, now_ms)
        return base, effects

    def _check_verified(self, batch: RecordBatch, verified: tuple[int, int] | None) -> None:
        """Refuse a batch that would begin a transaction that its coordinator may not know."""
        producer = batch.producer_id, batch.producer_epoch
        if batch.is_transactional and producer != verified and not self.producers.is_in_transaction(*producer):
            raise refused(
                ErrorCode.INVALID_TXN_STATE,
                f"{self.name} is not known to be in a transaction of producer {producer[0]}, epoch {producer[1]}",
            )

    @property
    def owes_sync(self) -> bool:
        """Whether the log has to be synced before the end of it counts (Kafka 4.3.1, UnifiedLog.append)."""
        return self.log.log_end_offset - self.log.flushed_offset >= self.settings.flush_messages

    def wait_synced(self, waiter: Waiter) -> None:
        """Have a waiter wait until all that was appended so far is synced; the caller has to sync it.

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER.
        """
        self._lead().syncing.append((self.log.log_end_offset, waiter))

    def synced(self, now_ms: int) -> PartitionEffects:
        """The log was synced."""
        effects = PartitionEffects()
        leading = self.leading
        if leading is not None:
            while leading.syncing and leading.syncing[0][0] <= self.log.flushed_offset:
                effects.ended.append((leading.syncing.popleft()[1], ErrorCode.NONE))
            self._commit(effects, now_ms)
        return effects

    def end_transaction(self, marker: Marker, now_ms: int, waiter: Waiter) -> PartitionEffects:
        """Append the marker that ends a producer's transaction, as with acks=all, also if it wrote no records here.

        Args:
            marker: see `Marker`.
            now_ms: the time, milliseconds since 1970.
            waiter: ended when the marker is committed, or when this leadership ends before.

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH,
                TRANSACTION_COORDINATOR_FENCED.
            StorageError: the disk failed; the log takes nothing more.
        """
        leading = self._lead()
        self._check_isr(leading)
        self.producers.check_marker(marker)
        base = self.log.append_as_leader(marker.batch(now_ms), self.leader_epoch, now_ms)
        self.producers.ended(marker, base, now_ms)
        leading.wait(self.log.log_end_offset, waiter)
        effects = PartitionEffects(has_changed=True)
        self._commit(effects, now_ms)
        return effects

    def _check_isr(self, leading: Leading) -> None:
        """Refuse an append with acks=all while the ISR is smaller than ``min.insync.replicas``."""
        if len(leading.isr.committed) < self.min_insync_replicas:
            raise refused(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {len(leading.isr.committed)} in-sync replicas, needs {self.min_insync_replicas}",
            )

    def fetched(
        self,
        replica_id: int,
        offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> PartitionEffects:
        """Note a follower's fetch offset, which is the follower's log end offset.

        Args:
            replica_id: the follower's broker id.
            offset: the fetch offset.
            now_ms: the time, milliseconds since 1970.
            broker_epoch: the follower's broker epoch; -1: unknown (Fetch below version 15).
            log_start_offset: the follower's log start offset; -1: unknown.

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER, also for an incarnation that a later one followed, or
                UNKNOWN_LEADER_EPOCH from a broker that has no replica.
        """
        leading = self._lead()
        self.check_replica(replica_id)
        effects = PartitionEffects()
        progress = leading.followers[replica_id]
        if UNKNOWN_BROKER_EPOCH < broker_epoch < progress.broker_epoch:
            raise refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} of epoch {broker_epoch} was followed by one of {progress.broker_epoch}",
            )
        progress.broker_epoch = broker_epoch
        progress.log_start_offset = log_start_offset
        progress.fetched(offset, now_ms, self.log.log_end_offset)
        self._commit(effects, now_ms)
        if (
            leading.isr.is_settled
            and self.can_propose
            and replica_id not in leading.isr.committed
            and offset >= max(self.high_watermark, leading.epoch_start_offset)
            and self.is_eligible(replica_id, broker_epoch)
        ):
            self._propose(effects, leading, (*leading.isr.committed, replica_id))
        return effects

    def is_at_rest_for(self, replica_id: int) -> bool:
        """Whether all records are committed, and a follower in the ISR fetched last from the log's end.

        Until something changes, asking again would only renew the time when it had all: see ``Leading.had_all``.
        """
        leading = self.leading
        if leading is None or self.log.log_end_offset != self.high_watermark:
            return False
        progress = leading.followers.get(replica_id)
        return (
            progress is not None
            and progress.log_end_offset == self.high_watermark
            and replica_id in leading.isr.committed
        )

    def broker_epoch_of(self, replica_id: int) -> int:
        """The broker epoch of a follower's fetching incarnation; -1: unknown."""
        progress = None if self.leading is None else self.leading.followers.get(replica_id)
        return UNKNOWN_BROKER_EPOCH if progress is None else progress.broker_epoch

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The least log start of the leader and of the live followers; -1 while one of them is unknown.

        Args:
            is_alive: whether a broker is alive.

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER.
        """
        followers = self._lead().followers
        starts = [each.log_start_offset for broker_id, each in followers.items() if is_alive(broker_id)]
        return min([self.log.log_start_offset, *starts])

    def nearest_replica(self, near: Collection[int], offset: int) -> int | None:
        """The follower that a consumer should read ``offset`` from (KIP-392).

        Args:
            near: the brokers in the consumer's rack.
            offset: the consumer's fetch offset.

        Returns:
            The broker of the most caught-up replica in the rack; None: there is none, or the leader is in the rack.

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER.
        """
        leading = self._lead()
        if self._broker_id in near:
            return None
        found = [
            (progress.log_end_offset, progress.caught_up_ms, broker_id)
            for broker_id, progress in leading.followers.items()
            if broker_id in near
            and broker_id in leading.isr.committed
            and progress.log_start_offset <= offset <= progress.log_end_offset
        ]
        return max(found)[2] if found else None

    def check_replica(self, replica_id: int, *, has_epoch: bool = True) -> None:
        """Refuse a follower that this broker does not know as assigned; the follower may know a newer assignment.

        Raises:
            RefusedError: UNKNOWN_LEADER_EPOCH if it said in which epoch it believes, else NOT_LEADER_OR_FOLLOWER.
        """
        if replica_id not in self._lead().followers:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise refused(error, f"broker {replica_id} is no replica of {self.name}")

    def check_lag(self, now_ms: int) -> PartitionEffects:
        """Propose an ISR without the followers that have not kept up."""
        effects = PartitionEffects()
        leading = self.leading
        if leading is None:
            return effects
        self._commit(effects, now_ms)
        if leading.isr.is_settled and self.can_propose:
            lagging = leading.lagging(self._broker_id, self.log.log_end_offset, now_ms, self.settings.lag_time_max_ms)
            if lagging:
                kept = tuple(each for each in leading.isr.committed if each not in lagging)
                self._propose(effects, leading, kept)
        return effects

    def isr_answered(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int) -> PartitionEffects:
        """Take over the controller's answer to a proposal."""
        effects = PartitionEffects()
        leading = self.leading
        if leading is None or leading.isr.proposal is not proposal:
            return effects
        before = leading.isr.committed
        if leading.isr.answered(answer, self.leader_epoch, self.partition_epoch):
            effects.proposal = proposal
        effects.has_changed = leading.isr.committed != before
        if answer.error is ErrorCode.NONE and leading.isr.is_settled:
            self.partition_epoch = max(self.partition_epoch, answer.partition_epoch)
        self._commit(effects, now_ms)
        return effects

    def _propose(self, effects: PartitionEffects, leading: Leading, members: tuple[int, ...]) -> None:
        epochs = tuple(self.broker_epoch_of(each) for each in members)
        effects.proposal = IsrProposal(members, self.leader_epoch, self.partition_epoch, epochs)
        leading.isr.propose(effects.proposal)

    def _commit(self, effects: PartitionEffects, now_ms: int) -> None:
        """Raise the high watermark as far as it may go, and end the produces that waited for it."""
        leading = self._lead()
        effects.needs_sync = self.owes_sync
        if len(leading.isr.committed) >= self.min_insync_replicas:
            lag_ms = self.settings.lag_time_max_ms
            end = leading.replicated_end(self.log.log_end_offset, now_ms, lag_ms, self.is_eligible)
            if effects.needs_sync:
                end = min(end, self.log.flushed_offset)
            if end > self.high_watermark:
                self.high_watermark = end
                self.producers.committed(end)
                effects.has_changed = True
        waiting = leading.waiting
        if waiting and waiting[0][0] <= self.high_watermark:
            has_enough = len(leading.isr.maximal) >= self.min_insync_replicas
            error = ErrorCode.NONE if has_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            while waiting and waiting[0][0] <= self.high_watermark:
                effects.ended.append((waiting.popleft()[1], error))

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: below it every transaction has ended with a committed marker."""
        return self.producers.last_stable_offset(self.high_watermark)

    def readable_end(self, view: View) -> int:
        """The exclusive end of the records that a reader with this view may read."""
        if view is View.REPLICA:
            return self.log.log_end_offset
        return self.last_stable_offset if view is View.COMMITTED else self.high_watermark

    def read(self, offset: int, max_bytes: int, view: View, *, at_least_one: bool) -> bytes:
        """Whole batches from ``offset`` on; ``b""`` when there are none yet.

        Raises:
            RefusedError: OFFSET_OUT_OF_RANGE.
            CorruptDataError, StorageError: see ``Log.read``.
        """
        self._check_settled()
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise refused(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} holds {log.log_start_offset} to {log.log_end_offset - 1}"
            )
        return log.read(offset, max_bytes, up_to=self.readable_end(view), at_least_one=at_least_one)

    def aborted_within(self, offset: int, records: bytes) -> list[AbortedTransaction]:
        """The aborted transactions for a reader that gets these records from ``offset`` on."""
        aborted = self.producers.aborted
        if not aborted or not records:
            return []
        *_, last = iter_batches(records, verify=False)
        return aborted.within(offset, last.next_offset)

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        """The end of the largest epoch at or below ``epoch``; None: ``epoch`` is above the log's (KIP-101, KIP-279)."""
        last = self.log.last_epoch
        if epoch == NO_EPOCH or last is None or epoch > max(last, self.leader_epoch if self.leading else NO_EPOCH):
            return None
        if epoch < NO_EPOCH:
            return OffsetAndEpoch(self.log.log_start_offset, epoch)  # as of any epoch below the first
        return self.log.end_offset_for_epoch(epoch)

    def divergence(self, last_fetched_epoch: int, offset: int) -> OffsetAndEpoch | None:
        """Where a follower has to cut its log; None if that log is a prefix of this one (KIP-595).

        Raises:
            RefusedError: OFFSET_OUT_OF_RANGE: it has an epoch of which nothing is known here, or asks for an offset
                that no longer exists; then no answer says where to cut (Kafka 4.3.1, Partition.readRecords).
        """
        found = self.end_of_epoch(last_fetched_epoch)
        if found is None:
            raise refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} knows no leader epoch {last_fetched_epoch}")
        if offset < self.log.log_start_offset:
            raise refused(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} begins at {self.log.log_start_offset}, not at {offset}"
            )
        return found if found.epoch < last_fetched_epoch or found.offset < offset else None

    def find_timestamp(
        self, timestamp_ms: int, view: View, room: LoopRoom, check: Callable[[], object]
    ) -> HeavySteps[tuple[int, int, int] | None]:
        """(offset, timestamp, leader epoch) of the first record at or after a time that may be read, or None.

        Args:
            timestamp_ms: the time.
            view: up to where the client may read.
            room: how many bytes may be searched on the event loop; further searches are yielded for a thread.
            check: raises if this replica may not answer the client, or no longer after a thread's search.

        Raises:
            CorruptDataError, StorageError: see ``Log.read``.
        """
        check()
        base = self.log.offset_for_timestamp(timestamp_ms)
        end = self.readable_end(view)
        while base is not None and base < end:
            start = self.log.log_start_offset  # which may have risen meanwhile
            data = self.log.read(max(base, start), 1, up_to=end, at_least_one=True)
            if not data:
                return None
            search = TimestampSearch(data, timestamp_ms, start)
            try:
                if len(data) > room.left:
                    raise OversizedBatchError("enough was searched here")
                search.run(room.batch_bytes)
                room.left -= search.size
            except OversizedBatchError:
                yield search.run
                check()
            if search.found is None:
                base = search.next_offset
            elif search.found[0] >= self.log.log_start_offset:
                return search.found
        return None

    # --- follower -----------------------------------------------------------------------------------------------------

    def check_following(self, leader_epoch: int) -> bool:
        """Whether the replica still follows in this epoch, so that an answer of the leader may be applied."""
        return self.is_following and leader_epoch == self.leader_epoch and not self.is_changing

    def begins_within(self, records: bytes | memoryview) -> int | None:
        """The leader's first base offset, if this log is empty and starts inside of the leader's first batch.

        A leader whose records were deleted up to the middle of a batch sends all of it. Source: Kafka 4.3.1,
        Partition.appendRecordsToFollowerOrFutureReplica.
        """
        end = self.log.log_end_offset
        if not len(records) or end > self.log.log_start_offset:
            return None
        first = next(iter_batches(records, verify=False, allow_partial=True), None)
        return first.base_offset if first is not None and first.base_offset < end < first.next_offset else None

    def must_restart_at(self, leader_start: int) -> bool:
        """Whether this log, which ends where the leader's starts, may hold records that were never committed.

        A leader knows no epochs below its log start, and cannot say where such a log diverges, nor one without records.
        """
        log, is_known = self.log, self.high_watermark >= leader_start or self.log.last_epoch == self.leader_epoch
        if log.log_start_offset == log.log_end_offset:
            return 0 <= leader_start < log.log_start_offset
        return log.log_end_offset == leader_start and not is_known

    def replicate(self, records: bytes | memoryview, high_watermark: int, now_ms: int) -> PartitionEffects:
        """Append what the leader sent, byte for byte, and follow its high watermark.

        Raises:
            CorruptBatchError: it does not continue the log, or is damaged; nothing was appended.
            StorageError: the disk failed; the log takes nothing more.
        """
        effects = PartitionEffects()
        self.leader_high_watermark = high_watermark
        if len(records):
            # A leader of an older epoch that does not know it yet may have later ones (KAFKA-18723).
            info = self.log.append_as_follower(records, now_ms, max_epoch=self.leader_epoch)
            if info.batches:
                self.producers.replicated(memoryview(records)[: info.size])
                effects.has_changed = True
        end = min(max(high_watermark, self.log.log_start_offset), self.log.log_end_offset)
        if end > self.high_watermark:
            self.high_watermark = end
            self.producers.committed(end)
            effects.has_changed = True
        return effects

    def truncate(self, diverging: OffsetAndEpoch, leader_start: int = UNKNOWN_OFFSET) -> PartitionEffects:
        """Cut the log where the leader's answer says that it diverges, or where an epoch ended that the leader lacks.

        If nothing above the leader's log start is left (-1: it did not say) begin anew there (``must_restart_at``), and
        also if this log starts above the cut: the leader has its records from there on (Kafka's UnifiedLog.truncateTo).
        """
        log = self.log
        if diverging.offset <= leader_start:
            return self.restart_at(leader_start)
        end = diverging.offset
        if diverging.epoch >= 0 and log.last_epoch is not None:
            own = log.end_offset_for_epoch(diverging.epoch)
            end = min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
        if end < log.log_start_offset:
            return self.restart_at(end)
        try:
            log.truncate_to(min(end, log.log_end_offset))
        finally:
            self._stay_within_log()
        self.producers.truncated()  # reads the log, which may be damaged
        return PartitionEffects(has_changed=True)

    def restart_at(self, offset: int) -> PartitionEffects:
        """Empty the log, and start it anew at ``offset``."""
        try:
            self.log.truncate_fully_to(offset, below_start=True)
        finally:
            self._stay_within_log()
        self.producers.restarted()
        return PartitionEffects(has_changed=True)

    def _stay_within_log(self) -> None:  # called also after the disk failed with the log's ends changed
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), self.log.log_end_offset)

    # --- time and space -----------------------------------------------------------------------------------------------

    def retained_start(self, now_ms: int, retention: Retention) -> int | None:
        """The new log start by the retention, for ``log_changes.raise_log_start``; None: the log start stays."""
        return retained_start(self.log.segment_list(), self.high_watermark, now_ms, retention)

    def begin_delete_below(self, offset: int, now_ms: int) -> Callable[[], int] | None:
        """Raise the log start, at most to the high watermark and to the end of what is flushed.

        Returns:
            A function that removes the segments below, for any thread; None: there are none.

        Raises:
            LocalError, StorageError: see ``Log.begin_delete_below``.
        """
        return self.log.begin_delete_below(min(offset, self.high_watermark), now_ms)

    # --- look inside --------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise InvariantError if something does not hold that always must. For tests."""
        log, problems = self.log, []
        if not log.log_start_offset <= self.high_watermark <= log.log_end_offset:
            problems.append(f"high watermark {self.high_watermark} outside the log")
        if self.leading is not None:
            isr = self.leading.isr
            if self.is_following:
                problems.append("it leads and follows")
            if not isr.maximal >= set(isr.committed):
                problems.append(f"in sync {isr.committed}, but counted on {sorted(isr.maximal)}")
            if any(offset <= self.high_watermark for offset, _ in self.leading.waiting):
                problems.append("a produce waits for what is committed")
        if problems:
            raise InvariantError(f"{self.name}: {'; '.join(problems)}")


def _has_producer(batch: bytearray) -> bool:
    return int.from_bytes(batch[_PRODUCER_ID], signed=True) >= 0
