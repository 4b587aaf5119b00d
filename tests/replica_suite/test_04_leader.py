import time

import pytest
from conformance.target import until
from kafka_lab import new_uuid
from replica_suite import codec
from replica_suite.codec import ALTER_PARTITION, FETCH, PRODUCE
from replica_suite.peers import EARLIEST, LATEST, Client, State, fetch_body, produce_body


def name(p):
    return codec.err(p["ErrorCode"])


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(scene, acks):
    """acks 0 is not answered at all; 1 and, with the leader alone in the ISR, all: at once, with offset and log
    start."""
    t = scene.lead()
    p = scene.client.produce(t, [b"a", b"b"], acks=acks)
    if acks:
        assert (name(p), p["BaseOffset"], p["LogStartOffset"]) == ("NONE", 0, 0)
    until("the records are there", lambda: scene.client.values(t) == [b"a", b"b"], 5)
    p = scene.client.produce(t, [b"c"], acks=1)
    assert (name(p), p["BaseOffset"]) == ("NONE", 2)


def test_acks_all_waits_for_the_isr(scene):
    """The answer and the high watermark wait until the follower in the ISR has asked for the offset after the
    record."""
    t = scene.lead(epoch=2, replicas=[1, 2])
    with Client(scene.broker.client_port) as c:
        correlation = c.send(PRODUCE, 9, produce_body(t, [b"a"], acks=-1, timeout_ms=30000))
        assert c.silent(0.5)
        p = scene.peer.fetch(t, 0, replica=2, epoch=2)
        assert [b.values for b in codec.batches(p["Records"])] == [[b"a"]] and p["HighWatermark"] == 0
        assert c.silent(0.3)  # it asked for offset 0, so it has nothing yet
        scene.peer.fetch(t, 1, replica=2, epoch=2, last_epoch=2)
        a = c.reply(PRODUCE, 9, correlation)["Responses"][0]["PartitionResponses"][0]
    assert (name(a), a["BaseOffset"]) == ("NONE", 0)
    assert scene.client.fetch(t)["HighWatermark"] == 1


def test_consumers_see_up_to_the_high_watermark(scene):
    """Above the high watermark a follower gets records, a consumer none; ListOffsets latest is the high watermark for
    clients."""
    t = scene.lead(replicas=[1, 2])
    scene.client.produce(t, [b"a"])
    scene.client.produce(t, [b"b"])
    assert scene.client.values(t) == []
    scene.peer.fetch(t, 1, replica=2, epoch=0, last_epoch=0)
    assert scene.client.values(t) == [b"a"]
    assert scene.client.list_offsets(t, LATEST)["Offset"] == 1
    assert scene.peer.list_offsets(t, LATEST, replica=2)["Offset"] == 2
    p = scene.peer.fetch(t, 1, replica=2, epoch=0, last_epoch=0)
    assert [b.values for b in codec.batches(p["Records"])] == [[b"b"]]


def test_fetch_of_unknown_topics(scene):
    """Version 12 by an unknown name: UNKNOWN_TOPIC_OR_PARTITION; from 13 on by an unknown id: UNKNOWN_TOPIC_ID; each
    for the partition."""
    t = scene.lead()
    for version, error in ((12, "UNKNOWN_TOPIC_OR_PARTITION"), (13, "UNKNOWN_TOPIC_ID"), (17, "UNKNOWN_TOPIC_ID")):
        p = scene.client.fetch(t, version=version, topic_id=new_uuid(), name="nobody")
        assert (name(p), p["HighWatermark"], p["Records"] or b"") == (error, -1, b"")
    for version in (12, 13):
        assert name(scene.client.fetch(t, version=version, partition=9)) == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    ("epoch", "error"), [(4, "FENCED_LEADER_EPOCH"), (5, "NONE"), (6, "UNKNOWN_LEADER_EPOCH"), (-1, "NONE")]
)
def test_current_leader_epoch_is_checked(scene, epoch, error):
    """KIP-320: Fetch, ListOffsets and OffsetForLeaderEpoch compare the sender's leader epoch; -1 is not compared."""
    t = scene.lead(epoch=5)
    scene.client.produce(t, [b"a"])
    assert name(scene.client.fetch(t, epoch=epoch)) == error
    assert name(scene.client.list_offsets(t, LATEST, epoch=epoch)) == error
    assert name(scene.client.end_of_epoch(t, 5, current=epoch)) == error


def test_list_offsets(scene):
    """Earliest, latest, and the first record at or after a time, each with its leader epoch; a time after all records
    finds none."""
    t = scene.lead(epoch=3)
    for i in range(3):
        scene.client.produce(t, raw=codec.batch(0, -1, [b"v"], timestamp=1000 * (i + 1)))

    def found(ts):
        p = scene.client.list_offsets(t, ts)
        return name(p), p["Offset"], p["LeaderEpoch"]

    assert found(EARLIEST) == ("NONE", 0, 3)
    assert found(LATEST) == ("NONE", 3, 3)
    assert found(1500) == ("NONE", 1, 3)
    assert found(3000) == ("NONE", 2, 3)
    assert found(3001) == ("NONE", -1, -1)


def test_end_of_epochs(scene):
    """OffsetForLeaderEpoch: where an epoch ended; for an epoch without records the one before it; above all -1."""
    t = scene.lead(epoch=2)
    scene.client.produce(t, [b"a", b"b"])
    scene.ctl.assign(State(t, epoch=5))
    scene.client.produce(t, [b"c"])
    scene.ctl.assign(State(t, epoch=6))

    def end(epoch):
        p = scene.client.end_of_epoch(t, epoch, current=6)
        return name(p), p["LeaderEpoch"], p["EndOffset"]

    assert end(2) == ("NONE", 2, 2)
    assert end(4) == ("NONE", 2, 2)
    assert end(5) == ("NONE", 5, 3)
    assert end(6) == ("NONE", 6, 3)
    assert end(7) == ("NONE", -1, -1)
    assert end(1) == ("NONE", 1, 0)


def test_leader_epoch_checkpoint(scene):
    """leader-epoch-checkpoint: version 0, the number of lines, then epoch and start offset; batches are stamped with
    the epoch."""
    t = scene.lead(epoch=2)
    scene.client.produce(t, [b"a", b"b"])
    scene.ctl.assign(State(t, epoch=7))
    scene.client.produce(t, [b"c"])
    file = scene.broker.dir(t.name) / "leader-epoch-checkpoint"
    until("both epochs are written", lambda: file.read_text() == "0\n2\n2 0\n7 2\n", 5)
    assert [(b.base, b.epoch) for b in codec.batches(scene.client.fetch(t)["Records"])] == [(0, 2), (2, 7)]


def test_fetch_waits_for_data(scene):
    """A fetch at the end waits for MaxWaitMs; a record that comes in between ends the waiting."""
    t = scene.lead()
    begin = time.monotonic()
    assert scene.client.values(t, wait=600) == []
    assert time.monotonic() - begin >= 0.55
    with Client(scene.broker.client_port) as c:
        correlation = c.send(FETCH, 17, fetch_body(t, 0, wait=20000))
        assert c.silent(0.3)
        scene.client.produce(t, [b"come"])
        p = c.reply(FETCH, 17, correlation, timeout=10)["Responses"][0]["Partitions"][0]
    assert [b.values for b in codec.batches(p["Records"])] == [[b"come"]]


def test_isr_grows_through_the_controller(scene):
    """A follower that reached the end is proposed by AlterPartition to the controller; it counts for acks=all from then
    on."""
    t = scene.lead(epoch=3, replicas=[1, 2], isr=[1], partition_epoch=11)
    scene.client.produce(t, [b"a"])
    mark = scene.head.mark()
    scene.peer.fetch(t, 1, replica=2, epoch=3, last_epoch=3)
    s = scene.head.wait(ALTER_PARTITION, lambda s: s.part(t) is not None, after=mark)
    p = s.part(t)
    assert s.body["BrokerId"] == 1 and s.body["BrokerEpoch"] > 0
    assert (p["LeaderEpoch"], p["PartitionEpoch"]) == (3, 11)
    assert sorted(p["NewIsr"] if s.version < 3 else [r["BrokerId"] for r in p["NewIsrWithEpochs"]]) == [1, 2]
    with Client(scene.broker.client_port) as c:
        correlation = c.send(PRODUCE, 9, produce_body(t, [b"b"], acks=-1, timeout_ms=30000))
        assert c.silent(0.5)
        scene.peer.fetch(t, 2, replica=2, epoch=3, last_epoch=3)
        a = c.reply(PRODUCE, 9, correlation)["Responses"][0]["PartitionResponses"][0]
    assert (name(a), a["BaseOffset"]) == ("NONE", 1)


def test_acks_all_times_out(scene):
    """Without the follower: REQUEST_TIMED_OUT after TimeoutMs, not before; the record stays in the log and commits
    later."""
    t = scene.lead(replicas=[1, 2])
    begin = time.monotonic()
    assert name(scene.client.produce(t, [b"late"], acks=-1, timeout_ms=700)) == "REQUEST_TIMED_OUT"
    assert time.monotonic() - begin >= 0.65
    assert scene.client.values(t) == []
    scene.peer.fetch(t, 1, replica=2, epoch=0, last_epoch=0)
    assert scene.client.values(t) == [b"late"]


def test_slowest_isr_member_decides(scene):
    """Of three replicas in the ISR the high watermark is the least that leader and followers have; another epoch keeps
    it."""
    t = scene.lead(epoch=1, replicas=[1, 2, 3])
    for v in (b"a", b"b", b"c"):
        scene.client.produce(t, [v])
    scene.peer.fetch(t, 3, replica=2, epoch=1, last_epoch=1)
    assert scene.client.fetch(t)["HighWatermark"] == 0
    scene.peer.fetch(t, 2, replica=3, epoch=1, last_epoch=1)
    assert scene.client.fetch(t)["HighWatermark"] == 2
    scene.ctl.assign(State(t, epoch=2, replicas=[1, 2, 3]))
    assert scene.client.fetch(t)["HighWatermark"] == 2
    assert scene.client.values(t) == [b"a", b"b"]
