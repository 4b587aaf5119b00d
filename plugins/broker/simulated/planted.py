"""Mistakes to plant in brokers, to see whether the rules notice; as ``kraftcore.simulation.planted``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from copy import copy
from typing import Any

from kraftcore.core.batch import iter_batches
from kraftcore.core.log import recovery
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.log.listing import Listing
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError, OversizedBatchError
from kraftcore.plugins.broker.api.arrival import Part, Prepared
from kraftcore.plugins.broker.api.produce import ACKS_LEADER, Produce
from kraftcore.plugins.broker.api.waiting_line import WaitingLine
from kraftcore.plugins.broker.kraft.directory_requests import DirectoryRequests
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import (
    Assignment,
    IsrProposal,
    Partition,
    PartitionEffects,
    TopicPartition,
    View,
)
from kraftcore.plugins.broker.partition.isr_state import Isr
from kraftcore.plugins.broker.partition.leading import UNKNOWN_OFFSET, Leading, Progress
from kraftcore.plugins.broker.partition.searching import TimestampSearch
from kraftcore.plugins.broker.partition.state import UNKNOWN_BROKER_EPOCH
from kraftcore.plugins.broker.producers import AbortedTransaction, ProducerState, ProducerStates
from kraftcore.plugins.broker.producers.state import NumberedBatch
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.replication.follower_fetch import RequestedPartition
from kraftcore.plugins.broker.work.disk_steps import DiskSteps
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.topics import PartitionKey
from kraftcore.simulation.planted import Planted

_append = Partition.append
_become_follower = Partition.become_follower
_fetched = Partition.fetched
_propose = Isr.propose
_truncate = Partition.truncate
_must_restart_at = Partition.must_restart_at


def _shrink_at_once(self: Isr, proposal: IsrProposal) -> None:
    _propose(self, proposal)
    self.maximal = frozenset(proposal.isr)
    if len(proposal.isr) < len(self.committed):
        self.committed = proposal.isr


def _cut_at_high_watermark(self: Partition, assignment: Assignment) -> PartitionEffects:
    effects = _become_follower(self, assignment)
    if self.log.log_end_offset > self.high_watermark:
        self.log.truncate_to(self.high_watermark)
        self.producers.truncated()
    return effects


def _never_below_start(
    self: Partition, diverging: OffsetAndEpoch, leader_start: int = UNKNOWN_OFFSET
) -> PartitionEffects:
    return _truncate(self, diverging._replace(offset=max(diverging.offset, self.log.log_start_offset)), leader_start)


def _empty_or_not(self: Partition, leader_start: int) -> bool:
    return self.log.log_start_offset < self.log.log_end_offset and _must_restart_at(self, leader_start)


def _expand_at_once(
    self: Partition, replica_id: int, offset: int, now_ms: int, broker_epoch: int = UNKNOWN_BROKER_EPOCH, *more: Any
) -> PartitionEffects:
    effects = _fetched(self, replica_id, offset, now_ms, broker_epoch, *more)
    leading = self.leading
    if (
        leading is not None
        and leading.isr.is_settled
        and replica_id not in leading.isr.committed
        and self.is_eligible(replica_id, broker_epoch)
    ):
        self._propose(effects, leading, (*leading.isr.committed, replica_id))
    return effects


def _anybody(self: MetadataCache, broker_id: int, broker_epoch: int) -> bool:
    return True


def _kept(
    self: Replicas, names: Collection[TopicPartition], now_ms: Callable[[], int]
) -> DiskSteps[dict[TopicPartition, KraftError]]:
    for name in names:
        found = self.all.pop(name, None)
        if found is not None:
            self.carry_out(name, found.partition.stop())
    yield None
    return {}


def _left(self: LogDirs, directory: Directory, name: TopicPartition) -> DiskSteps[None]:
    yield None


def _told_when_appended(self: Partition, batch: bytearray, now_ms: int, **more: Any) -> tuple[int, PartitionEffects]:
    base, effects = _append(self, batch, now_ms, **more)
    waiter = more.get("waiter")
    if waiter is not None and self.leading is not None and len(self.leading.waiting) > 1:
        effects.ended.append((waiter, ErrorCode.NONE))
        self.leading.waiting.pop()
    return base, effects


def _no_divergence(self: Partition, last_fetched_epoch: int, offset: int) -> OffsetAndEpoch | None:
    return None


def _old_offset_counts(self: Progress, offset: int, now_ms: int, leader_end_offset: int) -> None:
    _progressed(self, leader_end_offset, now_ms, leader_end_offset)


_progressed = Progress.fetched


def _leader_only(self: Leading, log_end_offset: int, *_: Any) -> int:
    return log_end_offset


def _to_the_end(self: Partition, view: View) -> int:
    return int(self.log.log_end_offset)


def _same_end(self: RequestedPartition) -> bool:
    partition = self.partition
    return partition.check_following(self.wanted.leader_epoch) and bool(
        partition.log.log_end_offset == self.wanted.offset
    )


def _not_told(self: DirectoryRequests, key: PartitionKey, actual: Uuid | None, assigned: Uuid) -> bool:
    return False


def _goes_on(self: Replicas, directory: Directory, error: KraftError) -> None:
    directory.failure = error


def _nowhere(self: LogDirs, name: TopicPartition) -> Directory | None:
    return next((each for each in self.directories if name in each.broken), None)


def _nothing_known(self: ProducerStates, batch: Any, **_: object) -> None:
    return None


def _any_epoch(self: ProducerState, batch: NumberedBatch) -> None:
    if batch.producer_epoch >= self.epoch:
        _check_producer(self, batch)


def _left_as_they_were(self: ProducerStates) -> None:
    if self.end_offset < 0:  # the log is opened
        _truncated(self)
    self.end_offset = self._log.log_end_offset


def _all_is_stable(self: ProducerStates, high_watermark: int) -> int:
    return high_watermark


def _none_aborted(self: Partition, offset: int, records: bytes) -> list[AbortedTransaction]:
    return []


def _no_gap(self: Any, end: int, next_base: int, stored: Listing | None) -> bool:
    return False


def _append_anywhere(self: Produce, arrival: Any, part: Part, name: TopicPartition, answer: Any) -> PartitionEffects:
    replica = self._replicas.all.get(name)
    if isinstance(part.outcome, Prepared) and replica is not None and replica.partition.is_following:
        partition, batch = replica.partition, part.outcome.batch
        answer.base_offset = partition.log.append_as_leader(batch, partition.leader_epoch, self._now_ms())
        partition.producers.replicated(memoryview(batch))
        return PartitionEffects()
    return _append_part(self, arrival, part, name, answer)


def _nobody_before(self: WaitingLine, names: Any) -> bool:
    return False


def _one_is_enough(self: Produce, arrival: Any, *more: Any) -> None:
    arrival.request = copy(arrival.request)
    arrival.request.acks = arrival.request.acks and ACKS_LEADER
    _go_on_prepared(self, arrival, *more)


def _search_what_is_light(self: TimestampSearch, *most: int) -> None:
    for batch in iter_batches(self._data, max_decompressed_bytes=most[0] if most else 0):
        with suppress(OversizedBatchError):
            found = batch.find_timestamp(self._timestamp_ms, self._from_offset)
            if found is not None:
                self.found = (*found, batch.leader_epoch)
                return
        self.next_offset = batch.next_offset


_append_part = Produce._append_part
_go_on_prepared = Produce._prepared
_check_producer = ProducerState.check
_truncated = ProducerStates.truncated

_ROWS: tuple[tuple[Any, ...], ...] = (
    ("shrunk-at-once", "a leader without its controller takes others out of the ISR", Isr, "propose", _shrink_at_once),
    (
        "cut-at-high-watermark",
        "a follower cuts its log at its high watermark, not where epochs diverge",
        Partition,
        "become_follower",
        _cut_at_high_watermark,
    ),
    (
        "start-kept",
        "a follower whose log starts behind its leader's end keeps that start",
        Partition,
        "truncate",
        _never_below_start,
        ((Partition, "must_restart_at", _empty_or_not),),
    ),
    (
        "expanded-early",
        "a follower is proposed before it has what is committed",
        Partition,
        "fetched",
        _expand_at_once,
    ),
    ("fenced-proposed", "a fenced broker is proposed for the ISR", MetadataCache, "is_eligible", _anybody),
    (
        "old-log-kept",
        "a deleted partition's log stays, for the next of its name",
        Replicas,
        "delete",
        _kept,
        ((LogDirs, "set_aside", _left),),
    ),
    (
        "told-when-appended",
        "acks=all is answered before the followers have it",
        Partition,
        "append",
        _told_when_appended,
    ),
    (
        "too-few-acknowledged",
        "acks=all asks for no other replica in sync",
        Partition,
        "min_insync_replicas",
        property(lambda self: 1),
    ),
    ("divergence-not-told", "a leader serves any offset and epoch", Partition, "divergence", _no_divergence),
    ("leader-alone", "the high watermark is the leader's end", Leading, "replicated_end", _leader_only),
    ("sent-counts", "a follower counts as having what it is sent", Progress, "fetched", _old_offset_counts),
    ("sequence-not-checked", "a batch that came before is appended again", ProducerStates, "check", _nothing_known),
    ("fenced-epoch-taken", "a batch of a producer's earlier epoch is appended", ProducerState, "check", _any_epoch),
    (
        "producers-not-cut",
        "what is known of producers stays when their batches are cut off",
        ProducerStates,
        "truncated",
        _left_as_they_were,
    ),
    (
        "gap-is-cut",
        "a log is opened up to the first gap that a cleaner left",
        recovery._Recovery,
        "is_cleaners_gap",
        _no_gap,
    ),
    (
        "open-transaction-read",
        "what is read as committed goes up to the high watermark",
        ProducerStates,
        "last_stable_offset",
        _all_is_stable,
    ),
    ("aborted-not-told", "consumers are not told what was aborted", Partition, "aborted_within", _none_aborted),
    (
        "late-answer-taken",
        "an answer is applied to a log that was cut and grew again, as another request was beside it",
        RequestedPartition,
        "still_matters",
        property(_same_end),
    ),
    (
        "directory-not-told",
        "the controller is not told in which log directory a replica is",
        DirectoryRequests,
        "note",
        _not_told,
    ),
    (
        "failed-directory-serves",
        "partitions in a log directory that failed go on",
        Replicas,
        "directory_failed",
        _goes_on,
        ((LogDirs, "directory_of_broken", _nowhere),),
    ),
    (
        "heavy-appended-late",
        "a batch that was checked aside is appended though another leads by now",
        Produce,
        "_append_part",
        _append_anywhere,
    ),
    (
        "heavy-overtaken",
        "a batch is appended before one that came earlier and is still checked aside",
        WaitingLine,
        "is_before",
        _nobody_before,
    ),
    (
        "heavy-told-when-appended",
        "acks=all of a batch that was checked aside is answered before the followers have it",
        Produce,
        "_prepared",
        _one_is_enough,
    ),
    (
        "heavy-not-searched",
        "a time is not looked for in batches that decompress to much",
        TimestampSearch,
        "run",
        _search_what_is_light,
    ),
    ("uncommitted-read", "consumers read to the log's end", Partition, "readable_end", _to_the_end),
)

FAULTS: dict[str, Planted] = {row[0]: Planted(*row) for row in _ROWS}
