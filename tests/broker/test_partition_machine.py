"""Any events in any order at one replica: what is committed all in sync have, and everybody is answered once."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import RefusedError
from kraftcore.plugins.broker.partition import Assignment, IsrAnswer, Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.protocol.error_codes import ErrorCode

US, OTHERS = 1, (2, 3)
LAG_MS = 100
ERRORS = st.sampled_from(
    [
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
)


class Waiter:
    is_over = False

    def __init__(self, end, *, of_sync=False):
        self.required = end
        self.of_sync = of_sync
        self.ends = []

    def end(self, error):
        self.ends.append(error)


class PartitionMachine(RuleBasedStateMachine):
    @initialize(min_isr=st.integers(1, 3), flush_messages=st.sampled_from((2**63 - 1, 1, 4)))
    def begin(self, min_isr, flush_messages):
        config = LogConfig(segment_bytes=4096, tail_bytes=1000, topic_id=None, producer_snapshots=False)
        self.log = Log.open(SimulatedDisk(random.Random(1)), "/d/t-0", config, now_ms=0)
        self.alive = {US, *OTHERS}
        name = TopicPartition("t", 0)
        settings_ = PartitionSettings(min_isr, LAG_MS, flush_messages)
        self.partition = Partition(name, US, self.log, settings_, is_eligible=lambda each, epoch: each in self.alive)
        self.now, self.epoch, self.partition_epoch = 1_000_000, -1, 0
        self.waiters, self.sent, self.highest = [], [], 0

    # --- the controller -----------------------------------------------------------------------------------------------

    def assignment(self, leader, isr):
        self.epoch += 1
        self.partition_epoch += 1
        return Assignment(leader, self.epoch, self.partition_epoch, (US, *OTHERS), isr)

    @rule(isr=st.sets(st.sampled_from(OTHERS)))
    def lead(self, isr):
        self.sent = []
        effects = self.partition.become_leader(self.assignment(US, (US, *sorted(isr))), self.now)
        self.take(effects)

    @rule(leader=st.sampled_from(OTHERS))
    def follow(self, leader):
        self.sent = []
        self.take(self.partition.become_follower(self.assignment(leader, ())))
        assert all(waiter.ends for waiter in self.waiters)

    @precondition(lambda self: self.sent)
    @rule()
    def agree(self):
        proposal = self.sent.pop(0)
        self.partition_epoch += 1
        answer = IsrAnswer(ErrorCode.NONE, self.epoch, self.partition_epoch, proposal.isr)
        self.take(self.partition.isr_answered(proposal, answer, self.now))
        assert self.partition.leading.isr.committed == proposal.isr

    @precondition(lambda self: self.sent)
    @rule(error=ERRORS)
    def disagree(self, error):
        proposal = self.sent.pop(0)
        before = self.partition.leading.isr.committed
        effects = self.partition.isr_answered(proposal, IsrAnswer(error), self.now)
        assert self.partition.leading.isr.committed == before
        assert (effects.proposal is proposal) == (error is ErrorCode.UNKNOWN_SERVER_ERROR)
        self.take(effects, is_retry=True)

    # --- clients and followers ----------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), needs_isr=st.booleans())
    def produce(self, count, needs_isr):
        batch = build_batch([b"v"] * count, timestamp_ms=self.now)
        before = self.log.log_end_offset
        waiter = Waiter(before + count) if needs_isr else None
        try:
            base, effects = self.partition.append(batch, self.now, waiter=waiter, needs_isr=needs_isr)
        except RefusedError as error:
            assert error.error in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS")
            assert self.log.log_end_offset == before
            return
        assert base == before
        if waiter is not None:
            self.waiters.append(waiter)
        if self.partition.owes_sync:
            self.waiters.append(Waiter(before + count, of_sync=True))
            self.partition.wait_synced(self.waiters[-1])
        self.take(effects)

    @rule()
    def sync(self):
        self.log.flush()
        self.take(self.partition.synced(self.now))
        assert not self.partition.owes_sync
        assert all(waiter.ends for waiter in self.waiters if waiter.of_sync)

    @rule(replica=st.sampled_from((*OTHERS, 9)), back=st.integers(0, 3))
    def fetch(self, replica, back):
        offset = max(self.log.log_end_offset - back, self.log.log_start_offset)
        try:
            self.take(self.partition.fetched(replica, offset, self.now))
        except RefusedError as error:
            is_leader = self.partition.leading is not None
            assert error.error == ("UNKNOWN_LEADER_EPOCH" if is_leader else "NOT_LEADER_OR_FOLLOWER")
            assert replica == 9 or not is_leader

    @rule(broker=st.sampled_from(OTHERS))
    def die_or_live(self, broker):
        self.alive ^= {broker}

    @rule(passed=st.integers(1, 2 * LAG_MS))
    def wait(self, passed):
        self.now += passed
        self.take(self.partition.check_lag(self.now))

    # --- as a follower ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.partition.is_following)
    @rule(count=st.integers(0, 3), committed=st.integers(0, 50))
    def replicate(self, count, committed):
        data = b""
        if count:
            batch = build_batch([b"w"] * count, timestamp_ms=self.now)
            batch[0:8] = self.log.log_end_offset.to_bytes(8)
            batch[12:16] = max(self.epoch, 0).to_bytes(4)
            data = bytes(batch)
        self.take(self.partition.replicate(data, committed, self.now))

    @precondition(lambda self: self.partition.is_following and self.log.log_end_offset > 0)
    @rule(back=st.integers(0, 3), data=st.data())
    def truncate(self, back, data):
        epoch = data.draw(st.integers(-1, max(self.epoch, 0)))
        end = max(self.log.log_end_offset - back, 0)
        self.highest = 0  # the one thing that lowers the high watermark
        self.take(self.partition.truncate(OffsetAndEpoch(end, epoch)))
        assert self.log.log_end_offset <= end or epoch >= 0
        assert self.partition.high_watermark <= self.log.log_end_offset

    # --- what holds ---------------------------------------------------------------------------------------------------

    def take(self, effects, is_retry=False):
        if effects.proposal is not None:
            assert self.partition.leading is not None
            assert US in effects.proposal.isr
            # One that is sent again may be about somebody who died meanwhile: the controller knows better.
            assert is_retry or set(effects.proposal.isr) - set(self.partition.leading.isr.committed) <= self.alive
            self.sent = [effects.proposal]
        for waiter, error in effects.ended:
            waiter.end(error)
            if error is ErrorCode.NONE:
                leading = self.partition.leading
                if waiter.of_sync:
                    assert waiter.required <= self.log.flushed_offset
                    continue
                assert waiter.required <= self.partition.high_watermark
                assert len(leading.isr.maximal) >= self.partition.min_insync_replicas

    @invariant()
    def consistent(self):
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        partition.check_invariants()
        assert all(len(waiter.ends) <= 1 for waiter in self.waiters)
        assert partition.high_watermark >= self.highest
        if partition.leading is not None and partition.high_watermark > self.highest:
            # It rose: whoever may be in sync has what is committed.
            isr, followers = partition.leading.isr, partition.leading.followers
            assert all(followers[each].log_end_offset >= partition.high_watermark for each in isr.maximal - {US})
            assert len(isr.committed) >= partition.min_insync_replicas
            assert partition.high_watermark - self.log.flushed_offset < partition.settings.flush_messages
        self.highest = max(self.highest, partition.high_watermark)


PartitionMachine.TestCase.settings = settings(stateful_step_count=40)
TestPartitionMachine = PartitionMachine.TestCase
