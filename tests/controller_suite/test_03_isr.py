import pytest
from conformance import codec
from conformance.codec import err
from conformance.target import new_uuid
from controller_suite.broker_kit import BLANK, OK, alter, change, code, elr, fence, state, unfence
from controller_suite.metadata_log import full, groups, shape


@pytest.fixture(scope="module")
def plain(module_cluster):
    """Formatted with eligible.leader.replicas.version 0."""
    return module_cluster(format_args=["--feature", "eligible.leader.replicas.version=0"])


@pytest.fixture
def noelr(plain):
    yield plain
    plain.clean()


@pytest.mark.parametrize("version", [2, 3])
def test_isr_shrinks_and_grows(ctl, version):
    """KIP-497/903: one PartitionChange v2 with the ISR alone; the partition epoch rises, the leader epoch does not.

    The answer is the new state.
    """
    a, b, c = ctl.up(3)
    t = ctl.topic([a, b, c])
    m = ctl.log.mark()
    top, part = a.alter(t, [a, c], version=version)
    assert top == 0 and part == {
        "PartitionIndex": 0,
        "ErrorCode": 0,
        "LeaderId": a.id,
        "LeaderEpoch": 0,
        "Isr": [a.id, c.id],
        "LeaderRecoveryState": 0,
        "PartitionEpoch": 1,
    }
    recs = ctl.log.since(m)
    assert (
        shape(recs) == ["PartitionChange v2"] and recs[0] == change(t, Isr=[a.id, c.id]) and recs[0].present == ["Isr"]
    )
    top, part = a.alter(t, [a, b, c], version=version)
    assert (top, part["PartitionEpoch"], part["Isr"]) == (0, 2, [a.id, b.id, c.id])
    assert ctl.log.since(m)[1:] == [change(t, Isr=[a.id, b.id, c.id])]


def test_the_same_isr_is_no_change(ctl):
    """An AlterPartition that changes nothing succeeds, writes nothing and keeps the partition epoch."""
    a, b = ctl.up(2)
    t = ctl.topic([a, b])
    m = ctl.log.mark()
    top, part = a.alter(t, [a, b])
    assert (top, part["ErrorCode"], part["PartitionEpoch"], part["Isr"]) == (0, 0, 0, [a.id, b.id]) and ctl.log.since(
        m
    ) == []


@pytest.mark.parametrize(
    ("who", "kw", "want"),
    [
        ("leader", {"leader_epoch": 1}, "NOT_CONTROLLER"),
        ("leader", {"partition_epoch": 2}, "NOT_CONTROLLER"),
        ("leader", {"leader_epoch": -1}, "FENCED_LEADER_EPOCH"),
        ("leader", {"partition_epoch": 0}, "INVALID_UPDATE_VERSION"),
        ("follower", {}, "INVALID_REQUEST"),
    ],
    ids=(
        "leader epoch ahead",
        "partition epoch ahead",
        "leader epoch behind",
        "partition epoch behind",
        "not the leader",
    ),
)
@pytest.mark.parametrize("version", [2, 3])
def test_epochs_and_leader_are_checked(ctl, who, kw, want, version):
    """KIP-841: epochs ahead of the controller's mean that it is not the controller; behind, that the leader is.

    Refused partitions carry no state.
    """
    a, b = ctl.up(2)
    t = ctl.topic([a, b])
    a.alter(t, [a], check=True)
    m = ctl.log.mark()
    top, part = (a if who == "leader" else b).alter(t, [a, b], version=version, **kw)
    assert top == 0 and part == {"PartitionIndex": 0, "ErrorCode": codec.CODE[want], **BLANK} and ctl.log.since(m) == []


@pytest.mark.parametrize("epoch", [-1, 0, 1 << 40])
def test_stale_broker_epoch_refuses_the_whole_request(ctl, epoch):
    """STALE_BROKER_EPOCH at the top level and no topics when the sender's broker epoch is not its registered one."""
    (a,) = ctl.up()
    t = ctl.topic([a])
    top, part = a.alter(t, [a], BrokerEpoch=epoch)
    assert (err(top), part) == ("STALE_BROKER_EPOCH", None)


def test_unknown_topic_id_and_partition(ctl):
    """KIP-516: UNKNOWN_TOPIC_ID, and UNKNOWN_TOPIC_OR_PARTITION for a partition that the topic does not have."""
    (a,) = ctl.up()
    t = ctl.topic([a])
    assert alter(a.alter(new_uuid(), [a])) == ("NONE", "UNKNOWN_TOPIC_ID")
    assert alter(a.alter(t, [a], index=1)) == ("NONE", "UNKNOWN_TOPIC_OR_PARTITION")
    ctl.delete(t)
    assert alter(a.alter(t, [a])) == ("NONE", "UNKNOWN_TOPIC_ID")


def test_isr_must_be_replicas_with_the_leader(ctl):
    """INVALID_REQUEST for an empty ISR, one with a broker that is no replica, and one without the leader."""
    a, b, c = ctl.up(3)
    t = ctl.topic([a, b])
    m = ctl.log.mark()
    for isr in ([], [a, c], [b]):
        assert alter(a.alter(t, isr)) == ("NONE", "INVALID_REQUEST")
    assert ctl.log.since(m) == []


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("how", ["fenced", "leaving"])
def test_fenced_and_leaving_replicas_cannot_join(ctl, version, how):
    """KIP-841: INELIGIBLE_REPLICA for a fenced broker and for one in controlled shutdown, also when the request names
    its right epoch.
    """
    a, b = ctl.up(2)
    t = ctl.topic([a, b])
    if how == "fenced":
        b.fence()
    else:
        ctl.topic([b, a])  # it leads something, so it has to wait
        a.heartbeat(offset=0), b.heartbeat(WantShutDown=True)
    m = ctl.log.mark()
    assert alter(a.alter(t, [a, b], version=version)) == ("NONE", "INELIGIBLE_REPLICA") and ctl.log.since(m) == []
    if how == "fenced":
        b.unfence()
        assert alter(a.alter(t, [a, b], version=version)) == OK


def test_broker_epochs_of_isr_members_are_checked(ctl):
    """KIP-903: NewIsrWithEpochs with another epoch than the registered one is INELIGIBLE_REPLICA.

    -1 asks for no check.
    """
    a, b = ctl.up(2)
    t = ctl.topic([a, b])
    a.alter(t, [a], check=True)
    for epoch in (b.epoch - 1, b.epoch + 1, a.epoch):
        assert alter(a.alter(t, [a, b], epochs={b.id: epoch})) == ("NONE", "INELIGIBLE_REPLICA")
    assert alter(a.alter(t, [a, b], epochs={b.id: -1})) == OK


def test_fenced_broker_can_be_a_replica_of_a_new_topic(ctl):
    """KIP-841: it gets its place among the replicas, but neither ISR nor leadership; epochs start at 0."""
    a, b, c = ctl.up(3)
    b.fence()
    m = ctl.log.mark()
    t = ctl.topic([b, a, c])
    recs = ctl.log.since(m)
    assert shape(recs) == ["Topic v0", "Partition v2"] and len(groups(recs)) == 1
    assert recs[1] == full(
        "Partition",
        2,
        PartitionId=0,
        TopicId=t,
        Replicas=[b.id, a.id, c.id],
        Isr=[a.id, c.id],
        Leader=a.id,
        LeaderEpoch=0,
        PartitionEpoch=0,
        Directories=[b.dirs[0], a.dirs[0], c.dirs[0]],
    )


def test_no_topic_on_fenced_brokers_alone(ctl):
    """A manual assignment without any active broker is INVALID_REPLICA_ASSIGNMENT."""
    a, b = ctl.up(2)
    a.fence(), b.fence()
    r = ctl.create("nobody-home", [[a.id, b.id]], check=False)
    assert code(r) == "INVALID_REPLICA_ASSIGNMENT"
    assert (
        r["ErrorMessage"] == "All brokers specified in the manual partition assignment for partition 0 are "
        "fenced or in controlled shutdown."
    )


def test_next_leader_is_the_first_live_replica_in_the_isr(ctl):
    """KIP-841: when the leader is fenced, the first replica (in assignment order) that is in the ISR takes over.

    Both epochs rise.
    """
    a, b, c, d = ctl.up(4)
    t = ctl.topic([a, b, c, d])
    a.alter(t, [d, c, a], check=True)  # b is out of the ISR
    m = ctl.log.mark()
    a.fence()
    assert ctl.log.since(m)[0] == change(t, Isr=[d.id, c.id], Leader=c.id) and state(ctl, t) == (
        [d.id, c.id],
        c.id,
        1,
        2,
    )


def test_last_isr_member_goes_to_the_eligible_replicas(ctl):
    """KIP-966 (feature level 1): the ISR may get empty.

    The last member is remembered as eligible and as last known, and leads again when it returns.
    """
    a, b = ctl.up(2)
    t = ctl.topic([a, b])
    b.fence()
    m = ctl.log.mark()
    a.fence()
    assert ctl.log.since(m)[0] == change(t, Isr=[], Leader=-1, EligibleLeaderReplicas=[a.id], LastKnownElr=[a.id])
    b.unfence()  # was not in the ISR at the end: cannot lead
    assert state(ctl, t) == ([], -1, 1, 2)
    a.unfence()
    assert state(ctl, t) == ([a.id], a.id, 2, 3) and elr(ctl, t) == ([], [])


def test_eligible_replicas_below_min_isr(ctl):
    """KIP-966: while the ISR is smaller than min.insync.replicas, members that leave become eligible.

    Growing to it clears them.
    """
    a, b, c = ctl.up(3)
    t = ctl.topic([a, b, c], configs={"min.insync.replicas": "2"})
    c.fence()
    assert elr(ctl, t) == ([], [])  # two are left: that is enough
    m = ctl.log.mark()
    b.fence()
    assert ctl.log.since(m)[0] == change(t, Isr=[a.id], EligibleLeaderReplicas=[b.id])
    c.unfence()
    m = ctl.log.mark()
    assert alter(a.alter(t, [a, c])) == OK
    assert ctl.log.since(m) == [change(t, Isr=[a.id, c.id], EligibleLeaderReplicas=[])] and elr(ctl, t) == ([], [])


def test_eligible_replica_can_lead(ctl):
    """KIP-966: with an empty ISR an eligible replica that returns becomes leader cleanly (no recovery state) and leaves
    the list.
    """
    a, b = ctl.up(2)
    t = ctl.topic([a, b], configs={"min.insync.replicas": "2"})
    b.fence(), a.fence()
    assert elr(ctl, t) == ([a.id, b.id], [a.id])
    m = ctl.log.mark()
    b.unfence()
    assert ctl.log.since(m) == [
        unfence(b),
        change(t, Isr=[b.id], Leader=b.id, EligibleLeaderReplicas=[a.id], LastKnownElr=[]),
    ]


def test_without_elr_the_last_isr_member_stays(noelr):
    """Feature level 0: fencing the last member takes the leader away, but leaves it in the ISR.

    It leads again when it returns.
    """
    a, b = noelr.up(2)
    t = noelr.topic([a, b])
    b.fence()
    m = noelr.log.mark()
    a.fence()
    assert noelr.log.since(m) == [change(t, Leader=-1), fence(a)] and state(noelr, t) == ([a.id], -1, 1, 2)
    b.unfence()
    m = noelr.log.mark()
    a.unfence()
    assert noelr.log.since(m) == [unfence(a), change(t, Leader=a.id)] and state(noelr, t) == ([a.id], a.id, 2, 3)
