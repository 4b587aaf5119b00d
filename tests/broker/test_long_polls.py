"""A fetch that waits for more bytes reads once, when there are enough of them."""

from __future__ import annotations

import asking
import trio
from broker_rig import open_rig, until

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
