"""What goes by age and size, and what never does."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import trio
from broker_rig import open_rig, until
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.retention import Retention, retained_start

T = TopicPartition("t", 0)


class Segment(NamedTuple):
    base_offset: int
    next_offset: int
    size: int
    max_timestamp: int


SEGMENTS = [
    Segment(0, 10, 100, 1000),
    Segment(10, 20, 100, 2000),
    Segment(20, 30, 100, 3000),
    Segment(30, 35, 50, 4000),
]


@pytest.mark.parametrize(
    ("retention", "high_watermark", "start"),
    [
        (Retention(), 35, None),
        (Retention(ms=2500), 35, 20),  # the time is 5000: what is older than 2500 goes
        (Retention(ms=2999), 35, 20),
        (Retention(ms=3000), 35, 10),
        (Retention(ms=100), 35, 35),
        (Retention(ms=100), 34, 30),  # not beyond what is committed
        (Retention(bytes=350), 35, None),
        (Retention(bytes=250), 35, 10),
        (Retention(bytes=251), 35, None),
        (Retention(bytes=0), 35, 35),
        (Retention(ms=3500, bytes=200), 35, 10),
    ],
)
def test_whole_segments_go(retention, high_watermark, start):
    assert retained_start(SEGMENTS, high_watermark, 5000, retention) == start


def test_an_empty_log_and_one_without_times_stay():
    assert retained_start([Segment(0, 0, 0, -1)], 0, 10**9, Retention(0, 0)) is None
    assert retained_start([Segment(0, 5, 10, -1)], 5, 10**9, Retention(ms=0)) is None


def test_what_compaction_left_goes_up_to_where_the_next_segment_begins():
    segments = [Segment(0, 7, 30, 1000), Segment(10, 10, 0, -1), Segment(20, 25, 100, 3000), Segment(30, 35, 50, 4000)]
    assert retained_start(segments, 35, 5000, Retention(ms=3500)) == 20
    assert retained_start(segments, 35, 5000, Retention(bytes=150)) == 20
    assert retained_start(segments, 9, 5000, Retention(ms=3500)) is None
    assert retained_start(segments, 10, 5000, Retention(ms=3500)) == 10
    assert retained_start(segments[1:], 35, 5000, Retention()) is None


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 50), st.integers(-1, 100)), max_size=6),
    st.integers(0, 30),
    st.integers(0, 200),
    st.builds(Retention, st.integers(-1, 200), st.integers(-1, 200)),
)
def test_what_stays_is_enough(parts, high_watermark, now_ms, retention):
    segments, end = [], 0
    for count, size, timestamp in parts:
        end += count
        segments.append(Segment(segments[-1].next_offset if segments else 0, end, size, timestamp))
    start = retained_start(segments, high_watermark, now_ms, retention)
    assert start is None or start <= high_watermark
    left = sum(each.size for each in segments)
    for each in segments:
        if start is None or each.next_offset > start:
            break
        left -= each.size
        is_old = retention.ms >= 0 and 0 <= each.max_timestamp < now_ms - retention.ms
        assert is_old or left >= retention.bytes >= 0


def test_a_broker_forgets_and_its_follower_with_it(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            quick = {"segment_bytes": 1024, "retention_bytes": 2048, "retention_check_ms": 20, "retention_ms": -1}
            await rig.start(1, **quick)
            await rig.start(2, **{**quick, "retention_bytes": -1})
            await rig.assign(1, 0, [1, 2])
            for number in range(20):
                assert (await rig.produce(1, b"%02d" % number * 100)).error_code == 0
            logs = [rig.brokers[each].replicas.all[T].partition.log for each in (1, 2)]
            await until(lambda: all(0 < log.log_start_offset < 20 for log in logs))
            await until(lambda: logs[0].size_in_bytes < 2048 + 1024)
            await until(lambda: logs[0].log_start_offset == logs[1].log_start_offset)
            start = logs[0].log_start_offset
            assert logs[0].size_in_bytes >= 2048
            found = []
            while len(found) < 20 - start - 4:  # one answer ends where a segment does
                found += await rig.values(1, start + len(found), wait_ms=60_000, min_bytes=1500)
            assert found == [b"%02d" % number * 100 for number in range(start, start + len(found))]
            await until(lambda: not list(tmp_path.rglob("*.deleted")))

    trio.run(main)
