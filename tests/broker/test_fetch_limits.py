"""Several partitions in a Fetch: how much the first ones take from what the others may have, as in Kafka."""

from __future__ import annotations

import asking
import pytest
import trio
from broker_rig import open_rig

from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.messages.fetch import FetchRequest

T = TopicPartition("t", 0)


def request(max_bytes, first_max=1 << 20, offset=0):
    kind = FetchRequest.FetchTopic
    topics = [
        kind(
            topic=topic,
            partitions=[kind.FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=most)],
        )
        for topic, at, most in (("t", offset, first_max), ("u", 0, 1 << 20))
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=topics)


# Three batches of 370 to 380 bytes are in "t"; one of about 70 is in "u".
@pytest.mark.parametrize(
    ("max_bytes", "first_max", "offset", "batches"),
    [
        (1000, 1 << 20, 0, (2, 0)),  # what is left of the third one takes the rest
        (1000, 800, 0, (2, 1)),  # a limit of its own, and some of the whole is left
        (850, 800, 0, (2, 0)),
        (1000, 1 << 20, 1, (2, 1)),  # it holds no more
        (100, 1 << 20, 0, (1, 0)),  # the first one always comes
        (1000, 0, 0, (1, 1)),
        (5000, 1 << 20, 0, (3, 1)),
    ],
)
@pytest.mark.parametrize("place", ["in memory", "on disk", "before the last segment"])
def test_a_partition_that_has_more_takes_its_limit(tmp_path, max_bytes, first_max, offset, batches, place):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            for topic in ("t", "u"):
                await rig.assign(1, 0, [1], topic=topic)
            for number in range(3):
                await rig.produce(1, bytes([number]) * 300)
            await rig.produce(1, b"v", topic="u")
            log = rig.brokers[1].replicas.all[T].partition.log
            if place != "in memory":
                if place == "before the last segment":
                    log.roll(now_ms=1)
                    await rig.produce(1, b"next")
                await rig.stop(1)
                await rig.start(1)
                for topic in ("t", "u"):
                    await rig.assign(1, 1, [1], topic=topic)
            answer = await rig.ask(1, request(max_bytes, first_max, offset), asking.FETCH_VERSION)
            found = [topic.partitions[0] for topic in answer.responses]
            assert tuple(len(asking.values_in(each)) for each in found) == batches

    trio.run(main)
