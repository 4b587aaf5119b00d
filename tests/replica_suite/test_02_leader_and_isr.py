import pytest
from conformance.target import until
from replica_suite import codec
from replica_suite.codec import ZERO_UUID
from replica_suite.peers import State, Topic, lai_errors


def one(scene, state, **kw):
    """The error of a LeaderAndIsr v7 for one partition."""
    r = scene.ctl.leader_and_isr(state, **kw)
    assert r["ErrorCode"] == 0, codec.err(r["ErrorCode"])
    return lai_errors(r)[state.topic.id, state.partition]


def test_become_leader(scene):
    """The named leader makes the log and answers NONE under the topic's id; clients are served once UpdateMetadata has
    come too."""
    t = scene.topic()
    r = scene.ctl.leader_and_isr(State(t, leader=1, epoch=3))
    assert r == {
        "ErrorCode": 0,
        "Topics": [{"TopicId": t.id, "PartitionErrors": [{"PartitionIndex": 0, "ErrorCode": 0}]}],
    }
    assert scene.broker.dir(t.name)
    assert codec.err(scene.client.produce(t)["ErrorCode"]) == "UNKNOWN_TOPIC_OR_PARTITION"
    scene.ctl.announce(State(t, epoch=3))
    p = scene.client.produce(t, [b"a", b"b"])
    assert (codec.err(p["ErrorCode"]), p["BaseOffset"]) == ("NONE", 0)


def test_become_follower(scene):
    """A follower fetches from the named leader at its epoch; clients are sent away with NOT_LEADER_OR_FOLLOWER."""
    t, _log = scene.follow(epoch=4)
    _s, p = scene.two.wait_fetch(t)
    assert (p["CurrentLeaderEpoch"], p["FetchOffset"], p["LastFetchedEpoch"]) == (4, 0, -1)
    assert codec.err(scene.client.produce(t)["ErrorCode"]) == "NOT_LEADER_OR_FOLLOWER"
    assert codec.err(scene.client.list_offsets(t, -1)["ErrorCode"]) == "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize("epoch", [4, 5], ids=["older", "equal"])
def test_not_newer_leader_epoch(scene, epoch):
    """An older or the same leader epoch is STALE_CONTROLLER_EPOCH for that partition, and changes nothing."""
    t = scene.lead(epoch=5)
    assert one(scene, State(t, leader=2, epoch=epoch, replicas=[2, 1])) == "STALE_CONTROLLER_EPOCH"
    assert codec.err(scene.client.produce(t)["ErrorCode"]) == "NONE"
    assert scene.client.values(t, epoch=5) == [b"x"]


def lead(topic, epoch):
    return State(topic, leader=1, epoch=epoch)


def follow(topic, epoch):
    return State(topic, leader=2, epoch=epoch, replicas=[2, 1])


def foreign(topic, epoch):
    return State(topic, leader=2, epoch=epoch, replicas=[2, 3])


@pytest.mark.parametrize(
    ("made", "error", "epoch"),
    [
        ([(lead, 6), (lead, 7)], "NONE", 7),
        ([(lead, 7), (lead, 6)], "NONE", 6),
        ([(lead, 6), (lead, 4)], "NONE", 6),
        ([(lead, 4), (lead, 6)], "NONE", 6),
        ([(foreign, 6), (lead, 5)], "STALE_CONTROLLER_EPOCH", 5),
        ([(lead, 5), (foreign, 6)], "UNKNOWN_TOPIC_OR_PARTITION", 5),
        ([(lead, 6), (follow, 7)], "NONE", None),
        ([(follow, 7), (lead, 6)], "NONE", None),
    ],
)
@pytest.mark.parametrize("version", [4, 7])
def test_a_partition_that_is_named_twice_has_one_answer(scene, made, error, epoch, version):
    """The last state that may be obeyed is obeyed, those that make a follower after those that make a leader; where
    there is none the last refusal stands."""
    t = scene.lead(epoch=5)
    log = scene.two.lead(t, epoch=7)
    r = scene.ctl.leader_and_isr(*(make(t, number) for make, number in made), version=version)
    (told,) = r["PartitionErrors"] if version < 5 else r["Topics"][0]["PartitionErrors"]
    assert codec.err(told["ErrorCode"]) == error
    if epoch is None:
        scene.two.wait_fetch(t, CurrentLeaderEpoch=7)
        assert not log.batches
    else:
        assert codec.err(scene.client.fetch(t, epoch=epoch)["ErrorCode"]) == "NONE"


def test_a_controller_that_is_refused_hears_so_of_each_partition_as_often_as_it_named_it(scene):
    t = scene.topic()
    r = scene.ctl.leader_and_isr(lead(t, 0), lead(t, 1), epoch=scene.ctl.epoch - 1)
    told = [r, *r["Topics"][0]["PartitionErrors"]]
    assert [codec.err(each["ErrorCode"]) for each in told] == ["STALE_CONTROLLER_EPOCH"] * 3


def test_leader_follower_leader(scene):
    """Newer epochs move the role to and fro; the log is the same one."""
    t = scene.lead(epoch=1)
    scene.client.produce(t, [b"first"])
    log = scene.two.lead(t, epoch=2)
    log.batches = [scene.client.fetch(t)["Records"]]
    assert one(scene, State(t, leader=2, epoch=2, replicas=[2, 1])) == "NONE"
    _, p = scene.two.wait_fetch(t, CurrentLeaderEpoch=2)
    assert (p["FetchOffset"], p["LastFetchedEpoch"]) == (1, 1)
    assert one(scene, State(t, leader=1, epoch=3)) == "NONE"
    assert scene.client.produce(t, [b"second"])["BaseOffset"] == 1
    assert scene.client.values(t) == [b"first", b"second"]


def test_partition_metadata_file(scene):
    """KIP-516: partition.metadata, two lines: version: 0 and topic_id: the id in base64."""
    t = scene.lead()
    file = scene.broker.dir(t.name) / "partition.metadata"
    until("the file is written", file.exists, 5)
    assert file.read_text().splitlines() == ["version: 0", f"topic_id: {t.id}"]


def test_inconsistent_topic_id(scene):
    """KIP-516: another id than the log's is INCONSISTENT_TOPIC_ID, whatever the epoch; log, id and role stay (the KIP
    would delete it)."""
    t = scene.lead(epoch=2)
    scene.client.produce(t, [b"old"])
    other = t.again()
    for epoch in (1, 2, 9):
        assert one(scene, State(other, leader=1, epoch=epoch)) == "INCONSISTENT_TOPIC_ID"
    assert scene.broker.topic_id(t.name) == t.id and not scene.broker.deleted(t.name)
    assert scene.client.values(t, epoch=2) == [b"old"]


@pytest.mark.parametrize("version", [4, 7], ids=["version 4", "zero id"])
def test_partition_without_id(scene, version):
    """A version without ids, or the zero id: the log is made, without partition.metadata."""
    t = Topic(scene.topic().name, ZERO_UUID)
    r = scene.ctl.leader_and_isr(State(t), version=version)
    assert lai_errors(r, version) == {(t.name if version < 5 else ZERO_UUID, 0): "NONE"}
    scene.ctl.announce(State(t))
    assert codec.err(scene.client.produce(t)["ErrorCode"]) == "NONE"
    assert scene.client.values(t, version=12) == [b"x"]
    assert not (scene.broker.dir(t.name) / "partition.metadata").exists()


def test_id_is_added_later_in_the_same_epoch(scene):
    """KIP-516: a partition without id takes one in its present leader epoch; the answer is NONE and the file is
    written."""
    t = scene.topic()
    assert lai_errors(scene.ctl.leader_and_isr(State(t, epoch=3), version=4), 4) == {(t.name, 0): "NONE"}
    assert one(scene, State(t, epoch=3)) == "NONE"
    assert until("the file is written", lambda: scene.broker.topic_id(t.name), 5) == t.id
    assert one(scene, State(t, epoch=3)) == "STALE_CONTROLLER_EPOCH"  # nothing left to add


def test_answer_is_grouped_by_topic_id(scene):
    """From version 5 on the answer names topics by id; partitions of three topics, one of them refused."""
    t, u, v = scene.topic(), scene.topic(), scene.lead(epoch=6)
    r = scene.ctl.leader_and_isr(State(t, 0), State(t, 1), State(u, 4), State(v, 0, epoch=5), State(v, 2))
    assert sorted(x["TopicId"] for x in r["Topics"]) == sorted([t.id, u.id, v.id])
    assert lai_errors(r) == {
        (t.id, 0): "NONE",
        (t.id, 1): "NONE",
        (u.id, 4): "NONE",
        (v.id, 0): "STALE_CONTROLLER_EPOCH",
        (v.id, 2): "NONE",
    }


def test_not_a_replica(scene):
    """The broker is not among the replicas: UNKNOWN_TOPIC_OR_PARTITION for that partition, and no log is made."""
    t = scene.topic()
    assert one(scene, State(t, leader=2, replicas=[2, 3])) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert one(scene, State(t, partition=1, leader=1, replicas=[2, 3], isr=[2])) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert scene.broker.dirs(t.name) == []


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_stale_controller_epoch(scene, version):
    """An older controller: STALE_CONTROLLER_EPOCH at the top and for each partition; nothing happens."""
    t = scene.topic()
    r = scene.ctl.leader_and_isr(State(t, 0), State(t, 1), version=version, epoch=scene.ctl.epoch - 1)
    name = t.name if version < 5 else t.id
    assert codec.err(r["ErrorCode"]) == "STALE_CONTROLLER_EPOCH"
    assert lai_errors(r, version) == {(name, 0): "STALE_CONTROLLER_EPOCH", (name, 1): "STALE_CONTROLLER_EPOCH"}
    assert scene.broker.dirs(t.name) == []


def test_recreated_with_a_new_id(scene):
    """KIP-516: after deletion the name can come back with another id, at a lower epoch, in a new and empty
    directory."""
    t = scene.lead(epoch=8)
    scene.client.produce(t, [b"old"])
    scene.ctl.stop_replica((t, 0, -2, True))
    new = t.again()
    assert one(scene, State(new, epoch=0)) == "NONE"
    scene.ctl.announce(State(new, epoch=0))
    assert len(scene.broker.deleted(t.name)) == 1
    assert scene.client.values(new) == []
    assert scene.client.produce(new, [b"new"])["BaseOffset"] == 0
    assert until("the file is written", lambda: scene.broker.topic_id(t.name), 5) == new.id
    assert one(scene, State(t, epoch=9)) == "INCONSISTENT_TOPIC_ID"


def test_many_partitions(scene):
    """150 partitions in one request: each answered, each with its directory and its id."""
    t, n = scene.topic(), 150
    r = scene.ctl.leader_and_isr(*[State(t, p) for p in range(n)])
    assert lai_errors(r) == {(t.id, p): "NONE" for p in range(n)}
    assert {d.name for d in scene.broker.dirs(t.name)} == {f"{t.name}-{p}" for p in range(n)}
    until("all ids are written", lambda: all(scene.broker.topic_id(t.name, p) == t.id for p in range(n)), 10)
