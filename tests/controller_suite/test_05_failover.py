import pytest
from conformance import codec
from conformance.codec import CODE, batch, control, metadata
from conformance.target import new_uuid
from controller_suite.broker_kit import FENCED, OK, STALE, UNFENCED, alter, beat, change, code, state
from controller_suite.brokers import FEATURES, UNASSIGNED
from controller_suite.cluster import session
from controller_suite.metadata_log import groups, shape


@pytest.fixture(scope="module")
def three(module_cluster):
    return module_cluster(3)


@pytest.fixture
def trio(three):
    """Three controllers, all running; without topics and brokers at the end."""
    for i in three.ids:
        if not three.nodes[i].alive:
            three.start(i)
    three.forget()
    three.wait_active()
    yield three
    three.clean()


def own_log(c, *batches, epoch=1, **kw):
    """Give a cluster of one a log of this suite's making.

    The first batch is a LeaderChange with version and voters (offsets 0-2).
    """
    n, directory = c.nodes[1], new_uuid()
    voters = [codec.voter(1, directory, n.port)]
    first = batch(
        0,
        1,
        [
            control("LeaderChange", {"LeaderId": 1, "Voters": [{"VoterId": 1}], "GrantingVoters": [{"VoterId": 1}]}),
            control("KRaftVersion", {"KRaftVersion": 1}),
            control("KRaftVoters", {"Voters": voters}),
        ],
    )
    n.prepare(voters, directory, log=[first, *batches], state={"leaderEpoch": epoch}, **kw)
    return c.start()


FINAL = [
    metadata("BeginTransactionRecord", {"Name": "Bootstrap records"}),
    metadata("FeatureLevelRecord", {"Name": "metadata.version", "FeatureLevel": 30}),
    metadata("FeatureLevelRecord", {"Name": "eligible.leader.replicas.version", "FeatureLevel": 1}),
    metadata("EndTransactionRecord", {}),
]


def test_standby_is_not_the_controller(trio):
    """A controller that is not active refuses what writes with NOT_CONTROLLER, each API in its own place.

    Nothing is written.
    """
    (a,) = trio.up()
    t, s, m = trio.topic([a]), trio.standby, trio.log.mark()
    no = CODE["NOT_CONTROLLER"]
    assert a.heartbeat(node=s) == {
        "ThrottleTimeMs": 0,
        "ErrorCode": no,
        "IsCaughtUp": False,
        "IsFenced": True,
        "ShouldShutDown": False,
    }
    assert a.register(node=s, check=False) == {"ThrottleTimeMs": 0, "ErrorCode": no, "BrokerEpoch": -1}
    part = {"PartitionIndex": 0, "NewIsrWithEpochs": [{"BrokerId": a.id, "BrokerEpoch": a.epoch}]}
    assert trio.call(
        "AlterPartition",
        {"BrokerId": a.id, "BrokerEpoch": a.epoch, "Topics": [{"TopicId": t, "Partitions": [part]}]},
        node=s,
    ) == {"ThrottleTimeMs": 0, "ErrorCode": no, "Topics": []}
    who = f"The active controller appears to be node {trio.leader}."
    assert trio.call("UnregisterBroker", {"BrokerId": a.id}, node=s) == {
        "ThrottleTimeMs": 0,
        "ErrorCode": no,
        "ErrorMessage": who,
    }
    assert trio.call("AllocateProducerIds", {"BrokerId": a.id, "BrokerEpoch": a.epoch}, node=s)["ErrorCode"] == no
    assert trio.call("AssignReplicasToDirs", {"BrokerId": a.id, "BrokerEpoch": a.epoch}, node=s) == {
        "ThrottleTimeMs": 0,
        "ErrorCode": no,
        "Directories": [],
    }
    r = trio.call(
        "CreateTopics", {"Topics": [{"Name": "standby", "NumPartitions": 1, "ReplicationFactor": 1}]}, node=s
    )["Topics"][0]
    assert (r["ErrorCode"], r["ErrorMessage"]) == (no, who)
    assert trio.log.since(m) == []


def test_next_controller_knows_the_same_brokers(trio):
    """After kill -9 of the active controller the next one writes nothing but its LeaderChange.

    Epochs and fencing of brokers are as before.
    """
    a, b = trio.up(2)
    b.fence()
    m, before = trio.log.mark(), (trio.epoch(), trio.leader)
    trio.failover()
    assert trio.epoch() > before[0] and trio.leader != before[1]
    assert {r.kind for r in trio.log.since(m)} == {"LeaderChange"}
    assert beat(a.heartbeat()) == UNFENCED and beat(a.heartbeat(BrokerEpoch=a.epoch + 1)) == STALE
    assert beat(b.heartbeat(WantFence=True)) == FENCED
    assert {r.kind for r in trio.log.since(m)} == {"LeaderChange"}


def test_next_controller_goes_on_counting(trio):
    """Partition epochs, leader epochs, producer ids and broker epochs continue where the dead controller left them."""
    a, b = trio.up(2)
    t = trio.topic([a, b], name="counting")
    a.alter(t, [a], check=True), a.alter(t, [a, b], check=True)
    n = a.producer_ids()["ProducerIdStart"]
    trio.failover()
    top, part = a.alter(t, [a])
    assert top == 0 and part == {
        "PartitionIndex": 0,
        "ErrorCode": 0,
        "LeaderId": a.id,
        "LeaderEpoch": 0,
        "Isr": [a.id],
        "LeaderRecoveryState": 0,
        "PartitionEpoch": 3,
    }
    a.heartbeat(), b.heartbeat()
    assert alter(a.alter(t, [a, b], partition_epoch=2)) == ("NONE", "INVALID_UPDATE_VERSION")
    assert b.producer_ids()["ProducerIdStart"] == n + 1000
    assert code(trio.create("counting", [[a.id]], check=False)) == "TOPIC_ALREADY_EXISTS"
    c, m = trio.broker(), trio.log.mark()
    assert c.register()["BrokerEpoch"] == m > b.epoch


def test_restarted_controller_is_a_standby(trio):
    """The killed controller comes back, registers its new incarnation with the active one, and refuses writes."""
    old = trio.leader
    trio.failover()
    now, m = trio.leader, trio.log.mark()
    trio.start(old)
    rec = trio.log.wait(m, "RegisterController", ControllerId=old)
    assert rec["EndPoints"][0]["Port"] == trio.nodes[old].port and trio.leader == now
    assert code(trio.broker().heartbeat(node=old)) == "NOT_CONTROLLER"


def test_silent_broker_is_fenced_by_the_next_controller(cluster):
    """Sessions start anew with the new controller.

    A broker that died before it is fenced one session later, its leadership moves.
    """
    c = cluster(3, **session(4000))
    a, b = c.up(2, beat=0.2)
    t = c.topic([a, b])
    a.quiet()
    a.heartbeat()
    m = c.log.mark()
    c.failover()
    c.log.wait(m, "BrokerRegistrationChange", BrokerId=a.id, Fenced=1)
    assert state(c, t) == ([b.id], b.id, 1, 1) and c.log.broker(b.id)["Fenced"] is False


def test_restart_from_the_log(cluster):
    """A single controller killed and started again: brokers, partitions and producer ids are as before.

    Its registration is the only record.
    """
    c = cluster()
    a, b, d = c.up(3)
    t = c.topic([a, b, d])
    d.fence(), a.alter(t, [b, a], check=True)
    n, was, m = a.producer_ids()["ProducerIdStart"], c.log.partition(t), c.log.mark()
    c.restart()
    assert shape(c.log.since(m)) == ["LeaderChange v0", "RegisterController v0"]
    assert c.log.partition(t) == was
    assert beat(a.heartbeat(offset=0)) == ("NONE", False, False, False) and beat(d.heartbeat(WantFence=True)) == FENCED
    assert alter(a.alter(t, [a, b, d])) == ("NONE", "INELIGIBLE_REPLICA") and alter(a.alter(t, [a])) == OK
    assert a.producer_ids()["ProducerIdStart"] == n + 1000
    assert (
        code(a.register(check=False, IncarnationId=new_uuid())) == "DUPLICATE_BROKER_REGISTRATION"
    )  # sessions of unfenced brokers begin anew


def test_an_empty_metadata_log_is_bootstrapped(cluster):
    """A log with control records only.

    The first active controller writes the features of bootstrap.checkpoint in a transaction of one batch.
    """
    c = own_log(cluster(formatted=False, start=False))
    recs = [r for r in c.log.records if r.offset >= 4]
    assert shape(recs) == ["BeginTransaction v0", "FeatureLevel v0", "EndTransaction v0", "RegisterController v0"]
    assert recs[0]["Name"] == "Bootstrap records" and recs[1] == {"Name": "metadata.version", "FeatureLevel": 30}
    assert len(groups(recs[:3])) == 1


def test_half_a_transaction_is_aborted(cluster):
    """KIP-868: records of a transaction that the last controller did not end never take effect.

    The next one aborts it.
    """
    ghost = new_uuid()
    c = own_log(
        cluster(formatted=False, start=False),
        batch(3, 1, FINAL),
        batch(
            7,
            1,
            [
                metadata("BeginTransactionRecord", {"Name": "unfinished"}),
                metadata("TopicRecord", {"Name": "ghost", "TopicId": ghost}),
            ],
        ),
    )
    recs = c.log.since(9)
    assert (
        shape(recs) == ["LeaderChange v0", "AbortTransaction v0", "RegisterController v0"]
        and recs[1]["Reason"] == "Controller failover"
    )
    (a,) = c.up()
    assert code(c.create("ghost", [[a.id]], check=False)) == "NONE"
    assert alter(a.alter(ghost, [a])) == ("NONE", "UNKNOWN_TOPIC_ID")


def test_state_from_a_snapshot(cluster):
    """KIP-630: broker epochs, partition state and producer ids come from a checkpoint when the log below is gone."""
    c = cluster(formatted=False, start=False)
    inc, place, t, n, directory = new_uuid(), new_uuid(), new_uuid(), c.nodes[1], new_uuid()
    voters = [codec.voter(1, directory, n.port)]
    feats = [{"Name": k, "MinSupportedVersion": lo, "MaxSupportedVersion": hi} for k, (lo, hi) in FEATURES.items()]
    snap = codec.snapshot(
        2,
        [
            FINAL[1:3],
            [
                metadata(
                    "RegisterBrokerRecord",
                    {
                        "BrokerId": 7,
                        "IncarnationId": inc,
                        "BrokerEpoch": 20,
                        "Fenced": False,
                        "LogDirs": [place],
                        "Features": feats,
                        "EndPoints": [{"Name": "P", "Host": "h.example", "Port": 1, "SecurityProtocol": 0}],
                        "Rack": None,
                    },
                    4,
                )
            ],
            [
                metadata("TopicRecord", {"Name": "solid", "TopicId": t}),
                metadata(
                    "PartitionRecord",
                    {
                        "PartitionId": 0,
                        "TopicId": t,
                        "Replicas": [7, 8],
                        "Isr": [7],
                        "Leader": 7,
                        "LeaderEpoch": 5,
                        "PartitionEpoch": 9,
                        "Directories": [place, UNASSIGNED],
                    },
                    2,
                ),
            ],
            [metadata("ProducerIdsRecord", {"BrokerId": 7, "BrokerEpoch": 20, "NextProducerId": 5000})],
        ],
        voters=voters,
    )
    n.prepare(
        voters,
        directory,
        log=[batch(30, 2, [metadata("NoOpRecord", {})] * 4)],
        start=30,
        state={"leaderEpoch": 2},
        snapshots={"00000000000000000030-0000000002.checkpoint": snap},
    )
    c.start()
    b = c.broker(7, dirs=[place], incarnation=inc)
    b.epoch = 20
    assert beat(b.heartbeat(offset=34)) == UNFENCED and beat(b.heartbeat(BrokerEpoch=21)) == STALE
    for epochs, want in (
        ((5, 8), "INVALID_UPDATE_VERSION"),
        ((4, 9), "FENCED_LEADER_EPOCH"),
        ((5, 10), "NOT_CONTROLLER"),
        ((5, 9), "NONE"),
    ):
        assert alter(b.alter(t, [7], leader_epoch=epochs[0], partition_epoch=epochs[1])) == ("NONE", want)
    assert b.producer_ids()["ProducerIdStart"] == 5000
    assert code(c.create("solid", [[7]], check=False)) == "TOPIC_ALREADY_EXISTS"
    m = c.log.mark()
    b.fence()
    assert c.log.since(m)[0] == change(t, Isr=[], Leader=-1, EligibleLeaderReplicas=[7], LastKnownElr=[7])
