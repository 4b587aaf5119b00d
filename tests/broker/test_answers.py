"""What cannot be told to one client breaks its connection: the broker, and who waits beside it, go on."""

from __future__ import annotations

from pathlib import Path

from broker_rig import open_rig
from transport_rig import in_trio

from kraftcore.core.batch import build_batch
from kraftcore.plugins.broker.partition import PartitionEffects, TopicPartition
from kraftcore.plugins.broker.work.deadlines import Deadlines
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.produce import ProduceRequest

LONGEST = 32767  # bytes of a string in most requests


class Waiting:
    """Waits for a commit, and writes down how it ended."""

    is_over = False

    def __init__(self) -> None:
        self.ends: list[ErrorCode] = []

    def end(self, error: ErrorCode) -> None:
        self.ends.append(error)


class Raising(Waiting):
    def end(self, error: ErrorCode) -> None:
        raise ValueError("it cannot be told")


@in_trio
async def test_a_topic_name_as_long_as_may_be_hurts_nobody(tmp_path: Path):
    """The answer waits for another partition, and comes from the broker's own timer."""
    async with open_rig(tmp_path) as rig:
        await rig.start(1)
        await rig.assign(1, 0, [1, 2])  # 2 is not there: nothing is committed
        kind = ProduceRequest.TopicProduceData
        topics = [
            kind(
                name=name,
                partition_data=[kind.PartitionProduceData(index=0, records=build_batch([b"x"], timestamp_ms=1))],
            )
            for name in ("t", "n" * (LONGEST - 1))
        ]
        answer = await rig.ask(1, ProduceRequest(acks=-1, timeout_ms=0, topic_data=topics), 9)
        told = [each.partition_responses[0] for each in answer.responses]
        assert [each.error_code for each in told] == [
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert [each.error_message for each in told] == [None, None]  # as Kafka: only refused records have a text
        assert (await rig.produce(1, b"y", acks=1)).error_code == 0


@in_trio
async def test_only_refused_records_have_a_text(tmp_path: Path):
    async with open_rig(tmp_path) as rig:
        await rig.start(1, message_max_bytes=1000)
        await rig.assign(1, 0, [1])
        told = await rig.produce(1, bytes(2000))
        assert (told.error_code, told.error_message) == (ErrorCode.MESSAGE_TOO_LARGE, None)
        told = await rig.produce(1, b"x", acks=5)
        assert (told.error_code, told.error_message) == (ErrorCode.INVALID_REQUIRED_ACKS, None)


def test_an_action_that_raises_does_not_hold_up_what_is_due(caplog):
    came: list[int] = []
    deadlines = Deadlines(lambda: 1.0)

    def fail() -> None:
        raise ValueError("no")

    deadlines.after(0, lambda: came.append(1))
    deadlines.after(0, fail)
    deadlines.after(0, lambda: came.append(2))
    deadlines.run_due()
    assert came == [1, 2]
    assert [repr(each.exc_info[1]) for each in caplog.records] == ["ValueError('no')"]
    assert deadlines.due == float("inf")


@in_trio
async def test_a_waiter_that_raises_does_not_keep_it_from_the_others(tmp_path: Path, caplog):
    async with open_rig(tmp_path) as rig:
        await rig.start(1)
        await rig.assign(1, 0, [1])
        waiting = Waiting()
        ended = [(Raising(), ErrorCode.NONE), (waiting, ErrorCode.NONE)]
        rig.brokers[1].replicas.carry_out(TopicPartition("t", 0), PartitionEffects(ended=ended))
        assert waiting.ends == [ErrorCode.NONE]
        assert "ValueError('it cannot be told')" in [repr(each.exc_info[1]) for each in caplog.records if each.exc_info]


@in_trio
async def test_a_topic_is_told_once_however_often_it_is_asked_for(tmp_path: Path):
    """As by Kafka, which looks at names only where no topic is asked for by its id."""
    async with open_rig(tmp_path) as rig:
        await rig.start(1)
        await rig.assign(1, 0, [1])
        await rig.assign(1, 0, [1], topic="u")
        kind = MetadataRequest.MetadataRequestTopic
        by_name = [kind(name=name) for name in ("u", "t", "none", "u", "none")]
        by_id = [kind(name=None, topic_id=rig.topic_ids["t"])] * 2
        answer = await rig.ask(1, MetadataRequest(topics=by_name), 12)
        assert [each.name for each in answer.topics] == ["u", "t", "none"]
        for asked in (by_id, by_name + by_id, [kind(name="u", topic_id=rig.topic_ids["t"])]):
            answer = await rig.ask(1, MetadataRequest(topics=asked), 12)
            assert [each.name for each in answer.topics] == ["t"]
        answer = await rig.ask(1, MetadataRequest(topics=[kind(name="t"), kind(name=None)]), 12)
        assert [each.error_code for each in answer.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
