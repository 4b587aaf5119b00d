"""Partitions of a fetch session where nothing moves: they are not read, and whatever changes is told all the same."""

from __future__ import annotations

from functools import partial

import asking
import pytest
import trio.testing
from broker_rig import open_rig, until

from kraftcore.plugins.broker.api import fetch_sessions
from kraftcore.plugins.broker.partition import Partition, TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.fetch import FetchRequest

FOR_EVER = 1 << 60
READ_COMMITTED = 1
ENDS = -1  # epoch of what ends a session
OF_LEADERS_ALONE = 10  # version of Fetch: later ones read from followers, too


class Session:
    """A consumer's fetch session about partition 0 of topics at broker 1."""

    def __init__(self, rig, *topics):
        self.rig = rig
        self.id = self.epoch = 0
        self.changed = dict.fromkeys(topics, 0)

    async def fetch(self, wait_ms=1, isolation=0, version=asking.FETCH_VERSION, max_bytes=1 << 20):
        """What is told of each partition."""
        kind = FetchRequest.FetchTopic
        topics = [
            kind(
                topic=topic,
                partitions=[kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
            for topic, offset in self.changed.items()
        ]
        request = FetchRequest(
            session_id=self.id,
            session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=topics,
        )
        answer = await self.rig.ask(1, request, version)
        assert answer.error_code == ErrorCode.NONE
        self.id, self.epoch = answer.session_id, self.epoch + 1
        self.changed = {}
        return {topic.topic: topic.partitions[0] for topic in answer.responses}

    async def rest(self):
        """Until there is nothing more to be told of any."""
        while await self.fetch():
            pass
        await self.fetch()


@pytest.fixture
def never_looked_at(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "REST_MS", FOR_EVER)


@pytest.fixture
def reads(monkeypatch):
    """The topics whose partitions are read, in order."""
    found = []
    read = Partition.read

    def counted(self, *args, **more):
        found.append(self.name.topic)
        return read(self, *args, **more)

    monkeypatch.setattr(Partition, "read", counted)
    return found


async def told_after(session, act):
    """What a request is told that waits, with nothing new, until something is done."""
    await session.rest()
    return await told_of(session, act)


async def told_of(session, act):
    """What the next request is told, which waits until something is done."""
    found = []

    async def wait():
        found.append(await session.fetch(wait_ms=60_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        await act()
    return found[0]


def with_two_topics(tmp_path, test):
    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            for topic in ("t", "u"):
                await rig.assign(1, 0, [1], topic=topic)
            await test(rig, Session(rig, "t", "u"))

    trio.run(main)


@pytest.mark.usefixtures("never_looked_at")
def test_only_what_moved_is_read(tmp_path, reads):
    async def test(rig, session):
        await session.rest()
        await rig.produce(1, b"one")
        reads.clear()
        told = await session.fetch()
        assert (list(told), asking.values_in(told["t"])) == (["t"], [b"one"])
        assert set(reads) == {"t"}
        assert told["t"].high_watermark == 1

    with_two_topics(tmp_path, test)


@pytest.mark.usefixtures("never_looked_at")
def test_what_moves_again_is_read_in_its_turn(tmp_path):
    """Who was answered least recently comes first, whatever moved first (a script of the twin, seed 90022)."""

    async def test(rig, session):
        await session.rest()
        for topic in ("u", "t"):
            await rig.produce(1, b"of " + topic.encode(), topic=topic)
        told = await session.fetch(max_bytes=1)
        assert {topic: asking.values_in(part) for topic, part in told.items()} == {"t": [b"of t"], "u": []}

    with_two_topics(tmp_path, test)


@pytest.mark.usefixtures("never_looked_at")
def test_what_moves_while_a_request_waits_is_read(tmp_path):
    async def test(rig, session):
        told = await told_after(session, partial(rig.produce, 1, b"one", topic="u"))
        assert asking.values_in(told["u"]) == [b"one"]

    with_two_topics(tmp_path, test)


@pytest.mark.usefixtures("never_looked_at")
def test_a_log_s_start_is_told(tmp_path):
    async def test(rig, session):
        await rig.produce(1, b"one")
        session.changed = {"t": 1, "u": 0}
        await session.rest()
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        deleted = kind(name="t", partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=1)])
        await rig.ask(1, DeleteRecordsRequest(topics=[deleted], timeout_ms=10_000), 2)
        told = await session.fetch()
        assert {topic: each.log_start_offset for topic, each in told.items()} == {"t": 1}

    with_two_topics(tmp_path, test)


@pytest.mark.usefixtures("never_looked_at")
def test_another_leader_is_told(tmp_path):
    async def test(rig, session):
        await session.rest()
        await rig.start(2)
        await rig.assign(2, 1, [1, 2], topic="u")
        told = await session.fetch(version=OF_LEADERS_ALONE)
        assert {topic: each.error_code for topic, each in told.items()} == {"u": ErrorCode.NOT_LEADER_OR_FOLLOWER}

    with_two_topics(tmp_path, test)


@pytest.mark.usefixtures("never_looked_at")
def test_who_reads_further_than_before_is_told_of_all(tmp_path, reads):
    async def test(rig, session):
        await session.rest()
        reads.clear()
        await session.fetch(isolation=READ_COMMITTED)
        assert set(reads) == {"t", "u"}

    with_two_topics(tmp_path, test)


def test_all_are_looked_at_now_and_then(tmp_path, reads, monkeypatch):
    async def test(rig, session):
        await session.rest()
        monkeypatch.setattr(fetch_sessions, "REST_MS", 0)
        log = rig.brokers[1].replicas.all[TopicPartition("u", 0)].partition.log
        log.truncate_fully_to(7)  # nobody said so
        reads.clear()
        told = await session.fetch()
        assert told["u"].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert "t" in reads

    with_two_topics(tmp_path, test)


@pytest.mark.usefixtures("never_looked_at")
def test_a_request_that_waits_in_a_session_that_ends_is_answered(tmp_path):
    async def test(rig, session):
        async def end():
            await rig.ask(1, FetchRequest(session_id=session.id, session_epoch=ENDS, topics=[]), asking.FETCH_VERSION)

        assert await told_after(session, end) == {}

    with_two_topics(tmp_path, test)


def test_one_request_of_a_session_waits_at_a_time(tmp_path):
    async def test(rig, session):
        await session.rest()
        answers = []

        async def wait(epoch):
            request = FetchRequest(session_id=session.id, session_epoch=epoch, max_wait_ms=3_600_000, min_bytes=2)
            answers.append(await rig.ask(1, request, asking.FETCH_VERSION))

        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(wait, session.epoch + number)
                await trio.testing.wait_all_tasks_blocked()
            await until(lambda: answers)
            assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
            await rig.produce(1, b"one")
        assert asking.values_in(asking.fetched(answers[1])) == [b"one"]

    with_two_topics(tmp_path, test)


@pytest.mark.parametrize("in_session", [False, True], ids=["alone", "in a session"])
def test_what_one_request_wrote_to_several_partitions_comes_in_one_answer(tmp_path, in_session):
    async def test(rig, session):
        async def write_to_both():
            both = asking.produce_request(b"to t")
            both.topic_data += asking.produce_request(b"to u", topic="u").topic_data
            await rig.ask(1, both, asking.PRODUCE_VERSION)

        if in_session:
            told = await told_after(session, write_to_both)
        else:
            session.epoch = ENDS
            told = await told_of(session, write_to_both)
        found = {topic: asking.values_in(partition) for topic, partition in told.items()}
        assert found == {"t": [b"to t"], "u": [b"to u"]}

    with_two_topics(tmp_path, test)
