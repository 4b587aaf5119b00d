"""A fetch that waits for more bytes reads once, when there are enough of them."""

from __future__ import annotations

import asking
import pytest
import trio
from broker_rig import open_rig, until

from kraftcore.core.batch import iter_batches
from kraftcore.plugins.broker.api import fetch
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode

T = TopicPartition("t", 0)
OF_LEADERS_ALONE = 10  # version of Fetch: later ones read from followers, too


def count_reads(rig):
    """The reads of broker 1 from now on."""
    partition = rig.brokers[1].replicas.all[T].partition
    reads, read = [], partition.read

    def counted(*args, **more):
        reads.append(args)
        return read(*args, **more)

    partition.read = counted
    return reads


def test_a_fetch_that_waits_reads_when_there_is_enough(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            log = rig.brokers[1].replicas.all[T].partition.log
            reads, found = count_reads(rig), []

            async def poll():
                found.extend(await rig.values(1, 2, wait_ms=60_000, min_bytes=1500))

            for number in range(2):
                await rig.produce(1, b"%d" % number)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                await until(lambda: len(reads) == 1)
                sizes = []
                for number in range(2, 12):
                    assert not found
                    await rig.produce(1, b"%d" % number * 100)
                    sizes.append(log.bytes_in_memory(2, number + 1))
                    if sizes[-1] < 1500:
                        assert len(reads) == 1
                    else:
                        break
                assert len(sizes) > 5
            assert found == [b"%d" % number * 100 for number in range(2, 2 + len(sizes))]
            assert len(reads) == 2

    trio.run(main)


@pytest.mark.parametrize("size", [3_000, 270_000])
def test_what_is_no_longer_in_memory_is_not_read_again(tmp_path, size):
    """A batch of the larger size is not kept in memory at all."""

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            log = rig.brokers[1].replicas.all[T].partition.log
            while log.tail_base_offset < 5:
                assert (await rig.produce(1, b"v" * 30_000)).error_code == 0
            before = log.log_end_offset
            reads, found = count_reads(rig), []

            async def poll():
                min_bytes = log.segment_at(0).span(0, before) + 2 * size
                found.append(await rig.fetch(1, wait_ms=60_000, min_bytes=min_bytes))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                await until(lambda: reads)
                for _ in range(2):
                    assert len(reads) == 1
                    assert not found
                    assert (await rig.produce(1, b"v" * size)).error_code == 0
            assert len(reads) == 2
            *_, last = iter_batches(bytes(found[0].records))
            assert last.next_offset > before

    trio.run(main)


def test_a_fetch_waits_for_no_more_than_an_answer_may_hold(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            reads, answers = count_reads(rig), []

            async def poll():
                request = asking.fetch_request(wait_ms=60_000, min_bytes=10**6, max_bytes=2000)
                answers.append(asking.fetched(await rig.ask(1, request, asking.FETCH_VERSION)))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                await until(lambda: reads)
                for _ in range(3):
                    assert not answers
                    await rig.produce(1, b"v" * 700)
            assert len(asking.values_in(answers[0])) == 2

    trio.run(main)


def test_a_change_of_leader_ends_the_waiting(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id)
            await rig.assign(1, 0, [1])
            await rig.produce(1, b"v")
            reads, answers = count_reads(rig), []

            async def poll():
                request = asking.fetch_request(wait_ms=600_000, min_bytes=10**6)
                answers.append(asking.fetched(await rig.ask(1, request, OF_LEADERS_ALONE)))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                await until(lambda: reads)
                await rig.assign(2, 1, [1, 2])
            assert answers[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    trio.run(main)


def test_where_too_many_wait_the_one_that_waited_longest_is_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "WAITING_MAX", 24)  # four with one partition each

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            await rig.assign(1, 0, [1])
            reads, answered = count_reads(rig), set()

            async def poll(number, text):
                found = await rig.fetch(1, wait_ms=3_600_000, rack_id=text)
                assert found.error_code == 0
                answered.add(number)

            async with trio.open_nursery() as nursery:

                async def begin(number, text=""):
                    before = len(reads)
                    nursery.start_soon(poll, number, text)
                    await until(lambda: len(reads) > before)

                for number in range(4):
                    await begin(number)
                assert not answered
                await begin(4)
                await until(lambda: answered == {0})
                await begin(5, "r" * 3000)  # its texts count, too
                await until(lambda: answered == {0, 1, 2, 3})
                await begin(6, "r" * 30_000)  # nobody waits beside this, nor does it
                await until(lambda: answered == set(range(7)))
                for number in range(7, 11):  # what was counted is counted no more
                    await begin(number)
                assert answered == set(range(7))
                assert (await rig.produce(1, b"v")).error_code == 0
                await until(lambda: answered == set(range(11)))

    trio.run(main)
