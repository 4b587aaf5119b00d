import pytest
from conformance.codec import CODE, err
from conformance.target import new_uuid
from controller_suite.broker_kit import by_name, change, code, state
from controller_suite.brokers import FEATURES, UNASSIGNED
from controller_suite.metadata_log import full, groups, shape


def results(r):
    """AssignReplicasToDirs' answer: {directory: {(topic, partition): error}}"""
    return {
        d["Id"]: {
            (t["TopicId"], p["PartitionIndex"]): err(p["ErrorCode"]) for t in d["Topics"] for p in t["Partitions"]
        }
        for d in r["Directories"]
    }


def test_unregister_takes_the_broker_out_first(ctl):
    """KIP-631: one batch: its partitions without it, then UnregisterBroker v0 with its epoch.

    The answer's message is empty, not null.
    """
    a, b = ctl.up(2)
    t = ctl.topic([b, a])
    m = ctl.log.mark()
    assert ctl.unregister(b.id) == {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": ""}
    recs = ctl.log.since(m)
    assert (
        recs == [change(t, Isr=[a.id], Leader=a.id), full("UnregisterBroker", 0, BrokerId=b.id, BrokerEpoch=b.epoch)]
        and len(groups(recs)) == 1
    )
    assert ctl.log.partition(t)["Replicas"] == [b.id, a.id]  # still a replica


@pytest.mark.parametrize("broker_id", [424242, -1])
def test_unregister_unknown_broker(ctl, broker_id):
    """BROKER_ID_NOT_REGISTERED with a message."""
    m = ctl.log.mark()
    assert ctl.unregister(broker_id) == {
        "ThrottleTimeMs": 0,
        "ErrorCode": CODE["BROKER_ID_NOT_REGISTERED"],
        "ErrorMessage": f"Broker ID {broker_id} is not currently registered",
    }
    assert ctl.log.since(m) == []


def test_directories_of_a_new_topic(ctl):
    """KIP-858: a broker with one directory gets it, one with several stays unassigned until it says where."""
    a, b = ctl.broker(dirs=1).up(), ctl.broker(dirs=2).up()
    t = ctl.topic([a, b])
    assert ctl.log.partition(t)["Directories"] == [a.dirs[0], UNASSIGNED]


def test_assignment_is_recorded(ctl):
    """KIP-858: one PartitionChange v2 with all directories for each partition that changes; the partition epoch rises.

    Again is no change.
    """
    a, b = ctl.broker(dirs=2).up(), ctl.broker(dirs=2).up()
    t = ctl.topic([a, b], [b, a])
    m = ctl.log.mark()
    r = a.assign({a.dirs[0]: [(t, 0)], a.dirs[1]: [(t, 1)]})
    assert code(r) == "NONE" and results(r) == {a.dirs[0]: {(t, 0): "NONE"}, a.dirs[1]: {(t, 1): "NONE"}}
    recs = ctl.log.since(m)
    assert (
        recs == [change(t, 0, Directories=[a.dirs[0], UNASSIGNED]), change(t, 1, Directories=[UNASSIGNED, a.dirs[1]])]
        and recs[0].version == 2
    )
    assert state(ctl, t, 0) == ([a.id, b.id], a.id, 0, 1)
    m = ctl.log.mark()
    assert results(a.assign({a.dirs[0]: [(t, 0)]})) == {a.dirs[0]: {(t, 0): "NONE"}} and ctl.log.since(m) == []


def test_assignment_errors_are_per_partition(ctl):
    """KIP-858: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, and NOT_LEADER_OR_FOLLOWER if the broker is no replica."""
    a, b = ctl.broker(dirs=2).up(), ctl.broker(dirs=2).up()
    t, gone = ctl.topic([b], [b]), new_uuid()
    d = a.dirs[1]
    m = ctl.log.mark()
    assert results(a.assign({d: [(t, 0), (t, 7), (gone, 0)]})) == {
        d: {(t, 0): "NOT_LEADER_OR_FOLLOWER", (t, 7): "UNKNOWN_TOPIC_OR_PARTITION", (gone, 0): "UNKNOWN_TOPIC_ID"}
    }
    assert ctl.log.since(m) == []


@pytest.mark.parametrize("who", ["old epoch", "unknown broker"])
def test_assignment_by_a_stale_broker(ctl, who):
    """STALE_BROKER_EPOCH at the top level, without results."""
    a = ctl.broker(dirs=2).up()
    t = ctl.topic([a])
    r = a.assign({a.dirs[0]: [(t, 0)]}, **({"BrokerEpoch": a.epoch - 1} if who == "old epoch" else {"BrokerId": 55555}))
    assert r == {"ThrottleTimeMs": 0, "ErrorCode": CODE["STALE_BROKER_EPOCH"], "Directories": []}


def test_assignment_to_a_missing_directory_moves_leadership(ctl):
    """KIP-858: a directory that is not among the broker's online ones is recorded, and a second change takes the broker
    out of the ISR.
    """
    a, b = ctl.broker(dirs=2).up(), ctl.broker(dirs=2).up()
    t, lost = ctl.topic([a, b]), new_uuid()
    m = ctl.log.mark()
    assert results(a.assign({lost: [(t, 0)]})) == {lost: {(t, 0): "NONE"}}
    recs = ctl.log.since(m)
    assert recs == [change(t, Directories=[lost, UNASSIGNED]), change(t, Isr=[b.id], Leader=b.id)] and state(
        ctl, t
    ) == ([b.id], b.id, 1, 2)


def test_producer_ids_come_in_blocks(ctl):
    """KIP-730: each broker gets the next block of 1000, recorded as ProducerIds v0 with the id after it."""
    a, b = ctl.up(2)
    m = ctl.log.mark()
    first = a.producer_ids()
    assert (code(first), first["ProducerIdLen"]) == ("NONE", 1000) and first["ProducerIdStart"] % 1000 == 0
    assert b.producer_ids()["ProducerIdStart"] == first["ProducerIdStart"] + 1000
    n = first["ProducerIdStart"]
    recs = ctl.log.since(m)
    assert shape(recs) == ["ProducerIds v0"] * 2
    assert recs == [
        full("ProducerIds", 0, BrokerId=x.id, BrokerEpoch=x.epoch, NextProducerId=n + k)
        for x, k in ((a, 1000), (b, 2000))
    ]


def test_producer_ids_for_a_stale_epoch(ctl):
    """STALE_BROKER_EPOCH; no block is spent."""
    (a,) = ctl.up()
    n = a.producer_ids()["ProducerIdStart"]
    m = ctl.log.mark()
    for change_ in ({"BrokerEpoch": a.epoch + 1}, {"BrokerEpoch": -1}, {"BrokerId": 55555}):
        assert a.producer_ids(**change_) == {
            "ThrottleTimeMs": 0,
            "ErrorCode": CODE["STALE_BROKER_EPOCH"],
            "ProducerIdStart": 0,
            "ProducerIdLen": 0,
        }
    assert ctl.log.since(m) == [] and a.producer_ids()["ProducerIdStart"] == n + 1000


def test_controllers_register(ctl):
    """KIP-919: RegisterController v0 repeats the request.

    Every registration is recorded, also of the same incarnation.
    """
    inc, m = new_uuid(), ctl.log.mark()
    body = {
        "ControllerId": 3000,
        "IncarnationId": inc,
        "ZkMigrationReady": False,
        "Listeners": [{"Name": "CONTROLLER", "Host": "c.example", "Port": 9093, "SecurityProtocol": 0}],
        "Features": [
            {"Name": n, "MinSupportedVersion": lo, "MaxSupportedVersion": hi} for n, (lo, hi) in FEATURES.items()
        ],
    }
    for _ in range(2):
        assert ctl.call("ControllerRegistration", body) == {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": ""}
    recs = ctl.log.since(m)
    assert shape(recs) == ["RegisterController v0"] * 2
    for rec in recs:
        assert by_name(rec["Features"]) == FEATURES
        assert rec == full(
            "RegisterController",
            0,
            ControllerId=3000,
            IncarnationId=inc,
            EndPoints=body["Listeners"],
            Features=rec["Features"],
        )


def test_the_controller_registered_itself(ctl):
    """KIP-919: its own registration is in the log with its listener and what it supports."""
    rec = ctl.log.since(0, "RegisterController", ControllerId=1)[-1]
    assert rec["EndPoints"] == [
        {"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": ctl.nodes[1].port, "SecurityProtocol": 0}
    ]
    assert by_name(rec["Features"]) == FEATURES and rec["ZkMigrationReady"] is False
