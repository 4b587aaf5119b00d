import pytest
from kafka_lab import HOST, new_uuid
from replica_suite import codec
from replica_suite.codec import ZERO_UUID
from replica_suite.peers import State, live_broker
from replica_suite.target import CONTROLLER_ID


@pytest.fixture(autouse=True)
def everyone_again(scene):
    yield
    scene.introduce()


def part(scene, topic, partition=0, **kw):
    m = scene.client.topic_metadata(topic, **kw)
    return next(p for p in m["Partitions"] if p["PartitionIndex"] == partition)


def test_partitions_as_announced(scene):
    """Metadata v12 answers the id, and each partition's leader, leader epoch, replicas, ISR and offline replicas."""
    t = scene.topic()
    assert scene.ctl.update_metadata(
        State(t, 0, leader=2, epoch=7, isr=[2, 1], replicas=[1, 2, 3], OfflineReplicas=[3]),
        State(t, 1, leader=1, epoch=0, isr=[1], replicas=[1]),
    ) == {"ErrorCode": 0}
    m = scene.client.topic_metadata(t)
    assert (m["ErrorCode"], m["Name"], m["TopicId"], m["IsInternal"]) == (0, t.name, t.id, False)
    parts = {p["PartitionIndex"]: p for p in m["Partitions"]}
    assert parts[0] == {
        "ErrorCode": 0,
        "PartitionIndex": 0,
        "LeaderId": 2,
        "LeaderEpoch": 7,
        "ReplicaNodes": [1, 2, 3],
        "IsrNodes": [2, 1],
        "OfflineReplicas": [3],
    }
    assert parts[1] == {
        "ErrorCode": 0,
        "PartitionIndex": 1,
        "LeaderId": 1,
        "LeaderEpoch": 0,
        "ReplicaNodes": [1],
        "IsrNodes": [1],
        "OfflineReplicas": [],
    }


def test_brokers_and_controller(scene):
    """Live brokers with host, port and rack; the sender is the controller clients are told of."""
    live = [
        *scene.ctl.everyone(),
        live_broker(8, {"BROKER": 1111, "CLIENT": 2222}, rack="cellar", host="eight.example"),
    ]
    assert scene.ctl.update_metadata(live=live, controller=8) == {"ErrorCode": 0}
    m = scene.client.metadata("none")
    brokers = {b["NodeId"]: (b["Host"], b["Port"], b["Rack"]) for b in m["Brokers"]}
    assert brokers == {
        1: (HOST, scene.broker.client_port, None),
        2: (HOST, scene.two.port, None),
        3: (HOST, scene.three.port, None),
        CONTROLLER_ID: (HOST, scene.head.port, None),
        8: ("eight.example", 2222, "cellar"),
    }
    assert m["ControllerId"] == 8


def test_deleted_topic(scene):
    """Leader -2 takes the partition out; a topic without partitions is UNKNOWN_TOPIC_OR_PARTITION, its id
    UNKNOWN_TOPIC_ID."""
    t, u = scene.topic(), scene.topic()
    scene.ctl.announce(State(t), State(u))
    assert codec.err(scene.client.topic_metadata(t)["ErrorCode"]) == "NONE"
    scene.ctl.announce(State(t, leader=-2))
    assert codec.err(scene.client.topic_metadata(t)["ErrorCode"]) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert codec.err(scene.client.metadata(ids=[t.id])["Topics"][0]["ErrorCode"]) == "UNKNOWN_TOPIC_ID"
    assert codec.err(scene.client.topic_metadata(u)["ErrorCode"]) == "NONE"


def test_stale_controller_epoch(scene):
    """An older controller is answered STALE_CONTROLLER_EPOCH; clients are told the same as before."""
    t = scene.topic()
    scene.ctl.announce(State(t, leader=2, epoch=3, replicas=[2, 3]))
    before = scene.client.metadata(t)
    r = scene.ctl.update_metadata(State(t, leader=3, epoch=4, replicas=[2, 3]), epoch=scene.ctl.epoch - 1, live=[])
    assert codec.err(r["ErrorCode"]) == "STALE_CONTROLLER_EPOCH"
    assert scene.client.metadata(t) == before


def test_stale_broker_epoch(scene):
    """A broker epoch below the broker's own (0 always is) is answered STALE_BROKER_EPOCH; a greater one is accepted."""
    t = scene.topic()
    r = scene.ctl.update_metadata(State(t), broker_epoch=0)
    assert codec.err(r["ErrorCode"]) == "STALE_BROKER_EPOCH"
    assert codec.err(scene.client.topic_metadata(t)["ErrorCode"]) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert scene.ctl.update_metadata(State(t), broker_epoch=1 << 60) == {"ErrorCode": 0}
    assert codec.err(scene.client.topic_metadata(t)["ErrorCode"]) == "NONE"


def test_topics_by_id(scene):
    """KIP-516: Metadata v12 by id answers name and partitions; an unknown id is UNKNOWN_TOPIC_ID with that id and no
    name."""
    t, unknown = scene.topic(), new_uuid()
    scene.ctl.announce(State(t, leader=2, epoch=1, replicas=[2]))
    a, b = sorted(scene.client.metadata(ids=[t.id, unknown])["Topics"], key=lambda x: x["ErrorCode"])
    assert (a["ErrorCode"], a["Name"], a["TopicId"], [p["LeaderId"] for p in a["Partitions"]]) == (0, t.name, t.id, [2])
    assert (codec.err(b["ErrorCode"]), b["Name"], b["TopicId"], b["Partitions"]) == (
        "UNKNOWN_TOPIC_ID",
        None,
        unknown,
        [],
    )


@pytest.mark.parametrize("version", range(9))
def test_every_version(scene, version):
    """Versions 0-4 (flat), 5-8 (by topic), with ids from 7 on: clients are told the same, the id being zero before
    7."""
    t = scene.topic()
    live = scene.ctl.everyone()
    if version < 3:  # no listener names yet: PLAINTEXT brokers on the listener PLAINTEXT
        live = [live_broker(1, {"PLAINTEXT": 5001}), live_broker(2, {"PLAINTEXT": 5002})]
    state = State(t, 0, leader=2, epoch=5, replicas=[2, 1])
    assert scene.ctl.update_metadata(state, version=version, live=live) == {"ErrorCode": 0}
    if version < 3:
        scene.introduce()  # this broker has no listener of that name, so nobody was reachable
    m = scene.client.topic_metadata(t)
    assert m["TopicId"] == (t.id if version >= 7 else ZERO_UUID)
    (p,) = m["Partitions"]
    assert (codec.err(p["ErrorCode"]), p["LeaderId"], p["LeaderEpoch"], p["ReplicaNodes"], p["IsrNodes"]) == (
        "NONE",
        2,
        5,
        [2, 1],
        [2, 1],
    )


def test_leader_that_is_not_alive(scene):
    """LEADER_NOT_AVAILABLE with leader -1, the leader epoch still told; without a leader likewise."""
    t = scene.topic()
    scene.ctl.announce(
        State(t, 0, leader=66, epoch=4, isr=[66], replicas=[66, 2]),
        State(t, 1, leader=-1, epoch=5, isr=[2], replicas=[2]),
    )
    p, q = part(scene, t, 0), part(scene, t, 1)
    assert (codec.err(p["ErrorCode"]), p["LeaderId"], p["LeaderEpoch"]) == ("LEADER_NOT_AVAILABLE", -1, 4)
    assert (codec.err(q["ErrorCode"]), q["LeaderId"], q["LeaderEpoch"]) == ("LEADER_NOT_AVAILABLE", -1, 5)
    assert p["ReplicaNodes"] == [66, 2] and p["IsrNodes"] == [66] and p["OfflineReplicas"] == []


def test_one_partition_is_deleted(scene):
    """Leader -2 for one partition of several: the others stay, with the id."""
    t = scene.topic()
    scene.ctl.announce(*[State(t, i, leader=2, epoch=i, replicas=[2]) for i in range(3)])
    scene.ctl.announce(State(t, 1, leader=-2, epoch=1, replicas=[2]))
    m = scene.client.topic_metadata(t)
    assert (m["ErrorCode"], m["TopicId"], sorted(p["PartitionIndex"] for p in m["Partitions"])) == (0, t.id, [0, 2])
