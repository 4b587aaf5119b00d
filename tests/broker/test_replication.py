"""Brokers of ours among themselves: what is acknowledged is on all that are in sync, and stays whoever leads."""

from __future__ import annotations

from contextlib import suppress

import trio
from broker_rig import NO_ID, open_rig, until

from kraftcore.errors import InvariantError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replication.follower_fetch import Following
from kraftcore.protocol.error_codes import ErrorCode

T = TopicPartition("t", 0)


def isr(rig, broker_id=1):
    return set(rig.brokers[broker_id].replicas.all[T].partition.leading.isr.committed)


async def replicated(rig, *others, leader=1):
    """Wait until the logs of these are the leader's, byte for byte."""
    await until(lambda: all(rig.log_bytes(each) == rig.log_bytes(leader) != b"" for each in others))


def test_a_fault_in_fetching_stops_a_broker_and_requests_meanwhile_hurt_nobody(tmp_path, monkeypatch):
    def fail(*arguments):
        raise InvariantError("nothing is as it should be")

    async def main():
        monkeypatch.setattr(Following, "round", fail)
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id)
            with suppress(AttributeError):  # it stops while it is told more, and gives no answer
                await rig.assign(1, 0, [1, 2])
            await until(lambda: 2 in rig.failures)
            assert "nothing is as it should be" in str(rig.failures.pop(2))

    trio.run(main)


def test_what_all_have_is_acknowledged_and_read(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2, 3):
                await rig.start(broker_id, min_insync_replicas=2, replica_lag_time_max_ms=600_000)
            await rig.assign(1, 0, [1, 2, 3])
            for number in range(5):
                answer = await rig.produce(1, b"%d" % number)
                assert (answer.error_code, answer.base_offset) == (0, number)
            assert await rig.values(1) == [b"0", b"1", b"2", b"3", b"4"]
            await replicated(rig, 2, 3)
            assert (await rig.produce(2, b"no")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not rig.isr_requests

    trio.run(main)


def test_by_name_where_a_topic_has_no_id(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id)
            await rig.assign(1, 0, [1, 2], topic_id=NO_ID)
            assert (await rig.produce(1, b"a")).error_code == 0
            await replicated(rig, 2)
            assert not (tmp_path / "d2" / "t-0" / "partition.metadata").exists()

    trio.run(main)


def test_the_isr_shrinks_and_grows_and_acks_all_needs_enough(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, min_insync_replicas=2)
            await rig.start(2, min_insync_replicas=2)
            await rig.assign(1, 0, [1, 2])
            # A follower that was slow to begin is out of the ISR for a moment.
            while (answer := await rig.produce(1, b"a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
                await until(lambda: isr(rig) == {1, 2})
            assert answer.error_code == 0
            await rig.stop(2)
            waiting = []

            async def produce():
                waiting.append(await rig.produce(1, b"b"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                await until(lambda: isr(rig) == {1})
                assert (await rig.produce(1, b"c")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
                assert (await rig.produce(1, b"d", acks=1)).base_offset == 2
                assert not waiting
                assert await rig.values(1) == [b"a"]
                await rig.start(2, min_insync_replicas=2)
                await rig.assign(1, 1, [1, 2], [1])
                await until(lambda: isr(rig) == {1, 2})
            assert (waiting[0].error_code, waiting[0].base_offset) == (0, 1)
            assert await rig.values(1) == [b"a", b"b", b"d"]
            await replicated(rig, 2)

    trio.run(main)


def test_the_larger_set_counts_until_the_controller_has_answered(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.start(2)
            await rig.assign(1, 0, [1, 2])
            assert (await rig.produce(1, b"a")).error_code == 0
            rig.answers_isr = False
            await rig.stop(2)
            # Who has all there is stays in sync, however long it is silent.
            assert (await rig.produce(1, b"b", acks=1)).error_code == 0
            await until(lambda: rig.isr_requests)
            answer = await rig.produce(1, b"c", timeout_ms=200)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert await rig.values(1) == [b"a"]

    trio.run(main)


def test_a_new_leader_has_everything_and_the_old_one_cuts_what_nobody_had(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.start(2)
            await rig.assign(1, 0, [1, 2])
            for number in range(3):
                assert (await rig.produce(1, b"%d" % number)).error_code == 0
            rig.network.cut("1", "2")
            assert (await rig.produce(1, b"nobody has it", acks=1)).base_offset == 3
            rig.states[T].leader = 0  # 1 is not told that 2 leads now
            await rig.stop(1)
            rig.network.heal()
            await rig.assign(2, 1, [1, 2], [2])
            assert (await rig.produce(2, b"new")).base_offset == 3
            assert rig.log_bytes(1) != rig.log_bytes(2)
            await rig.start(1)
            await rig.assign(2, 2, [1, 2], [2])
            await replicated(rig, 1, leader=2)
            assert await rig.values(2) == [b"0", b"1", b"2", b"new"]
            epochs = rig.brokers[1].replicas.all[T].partition.log.epoch_entries()
            assert [tuple(entry) for entry in epochs] == [(0, 0), (1, 3)]

    trio.run(main)


def test_deleted_and_made_anew_shows_nothing_old(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 5, [1])
            assert (await rig.produce(1, b"old")).error_code == 0
            assert await rig.delete(1) == 0
            await until(lambda: not list((tmp_path / "d1").glob("t-0*")))
            rig.topic_ids.clear()
            await rig.assign(1, 0, [1])
            assert await rig.values(1) == []

    trio.run(main)


def test_a_follower_of_a_log_that_begins_later_starts_where_it_begins(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1, segment_bytes=1024, recovery_checkpoint_ms=600_000)  # flushes are the test's
            await rig.start(2, segment_bytes=1024)
            await rig.assign(1, 0, [1])
            for _ in range(20):
                assert (await rig.produce(1, b"v" * 200)).error_code == 0
            log = rig.brokers[1].replicas.all[T].partition.log
            log.flush()
            log.delete_below(12, 0)
            await rig.assign(1, 1, [1, 2], [1])
            await until(lambda: isr(rig) == {1, 2})
            follower = rig.brokers[2].replicas.all[T].partition.log
            assert (follower.log_start_offset, follower.log_end_offset) == (12, 20)
            assert follower.read(12, 1 << 20) == log.read(12, 1 << 20)

    trio.run(main)
