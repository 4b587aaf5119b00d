import pytest
from conformance.target import until
from replica_suite import codec
from replica_suite.codec import API_VERSIONS, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from replica_suite.peers import State, call, stop_errors


def leads(scene, topic):
    return codec.err(scene.client.produce(topic, acks=1)["ErrorCode"]) == "NONE"


def test_control_requests_are_offered(scene):
    """ApiVersions lists LeaderAndIsr 0-7, StopReplica 0-4 and UpdateMetadata 0-8, on either listener."""
    for port in (scene.broker.port, scene.broker.client_port):
        r = call(port, API_VERSIONS, 0, {})
        offered = {k["ApiKey"]: (k["MinVersion"], k["MaxVersion"]) for k in r["ApiKeys"]}
        assert [offered[k] for k in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)] == [(0, 7), (0, 4), (0, 8)]


@pytest.mark.parametrize("delete", [False, True])
def test_older_leader_epoch_is_fenced(scene, delete):
    """KIP-570: a request with an older leader epoch is refused with FENCED_LEADER_EPOCH (the KIP says
    STALE_CONTROLLER_EPOCH); all stays."""
    t = scene.lead(epoch=5)
    r = scene.ctl.stop_replica((t, 0, 4, delete))
    assert (r["ErrorCode"], stop_errors(r)) == (0, {(t.name, 0): "FENCED_LEADER_EPOCH"})
    assert leads(scene, t)
    assert [p.name for p in scene.broker.dirs(t.name)] == [f"{t.name}-0"]


@pytest.mark.parametrize("epoch", [5, 6], ids=["equal", "newer"])
def test_equal_or_newer_leader_epoch_stops(scene, epoch):
    """KIP-570: the known leader epoch, or a newer one, is obeyed."""
    t = scene.lead(epoch=5)
    assert stop_errors(scene.ctl.stop_replica((t, 0, epoch, True))) == {(t.name, 0): "NONE"}
    assert scene.broker.dir(t.name) is None


@pytest.mark.parametrize("epoch", [-1, -2], ids=["no epoch", "epoch during delete"])
def test_sentinel_epochs_override_any_epoch(scene, epoch):
    """KIP-570: -1 means no epoch, -2 a topic's deletion (the KIP has -1 alone); neither is compared."""
    t = scene.lead(epoch=5)
    assert stop_errors(scene.ctl.stop_replica((t, 0, epoch, True))) == {(t.name, 0): "NONE"}
    assert scene.broker.dir(t.name) is None


def test_deleted_directory_is_renamed_then_removed(scene):
    """The directory gets the suffix .<32 hex digits>-delete before the answer, and goes after
    log.segment.delete.delay.ms."""
    t = scene.lead()
    scene.client.produce(t, [b"kept until the files go"])
    scene.ctl.stop_replica((t, 0, 0, True))
    (gone,) = scene.broker.dirs(t.name)
    name, _, rest = gone.name.partition(".")
    assert name == f"{t.name}-0" and rest.endswith("-delete")
    assert len(rest) == 32 + len("-delete") and int(rest[:32], 16) >= 0
    until("the directory goes", lambda: not gone.exists(), 10)


def test_unknown_partition(scene):
    """A partition that the broker does not have: no error, whether to be deleted or not, and nothing is made of it."""
    t = scene.topic()
    r = scene.ctl.stop_replica((t, 0, 3, True), (t, 1, 3, False), (t, 2, -1, True))
    assert (r["ErrorCode"], stop_errors(r)) == (0, {(t.name, 0): "NONE", (t.name, 1): "NONE", (t.name, 2): "NONE"})
    assert scene.broker.dirs(t.name) == []


def test_stale_controller_epoch(scene):
    """An older controller is answered STALE_CONTROLLER_EPOCH at the top, without partitions; nothing happens."""
    t = scene.lead()
    r = scene.ctl.stop_replica((t, 0, -2, True), epoch=scene.ctl.epoch - 1)
    assert (codec.err(r["ErrorCode"]), r["PartitionErrors"]) == ("STALE_CONTROLLER_EPOCH", [])
    assert leads(scene, t)


def test_clients_of_a_deleted_partition(scene):
    """NOT_LEADER_OR_FOLLOWER as long as the broker's metadata still has it; UpdateMetadata with leader -2 makes it
    unknown."""
    t = scene.lead()
    assert leads(scene, t)
    scene.ctl.stop_replica((t, 0, 0, True))

    def answers():
        return [
            codec.err(p["ErrorCode"])
            for p in (
                scene.client.produce(t),
                scene.client.fetch(t, version=12),
                scene.client.fetch(t, version=13),
                scene.client.list_offsets(t, -1),
            )
        ]

    assert answers() == ["NOT_LEADER_OR_FOLLOWER"] * 4
    scene.ctl.announce(State(t, leader=-2))
    assert answers() == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]


def test_deletion_can_be_repeated(scene):
    """A repeated deletion is answered like the first, and leaves one renamed directory."""
    t = scene.lead(epoch=2)
    for _ in range(3):
        r = scene.ctl.stop_replica((t, 0, 2, True))
        assert (r["ErrorCode"], stop_errors(r)) == (0, {(t.name, 0): "NONE"})
    assert len(scene.broker.dirs(t.name)) == 1


@pytest.mark.parametrize("version", range(5))
def test_a_partition_that_is_named_twice_has_one_answer(scene, version):
    """It is stopped once, in every version."""
    t = scene.lead(epoch=5)
    r = scene.ctl.stop_replica((t, 0, 5, True), (t, 0, 5, True), version=version, delete=True)
    assert (len(r["PartitionErrors"]), stop_errors(r)) == (1, {(t.name, 0): "NONE"})
    assert len(scene.broker.dirs(t.name)) == 1


def test_the_last_word_on_a_partition_counts(scene):
    """What comes before it in the request is neither answered nor obeyed."""
    t = scene.lead(epoch=5)
    for stops, error in (
        ([(t, 0, 5, True), (t, 0, 4, False)], "FENCED_LEADER_EPOCH"),
        ([(t, 0, 4, True), (t, 0, 5, False)], "NONE"),
    ):
        r = scene.ctl.stop_replica(*stops)
        assert (len(r["PartitionErrors"]), stop_errors(r)) == (1, {(t.name, 0): error})
        assert [each.name for each in scene.broker.dirs(t.name)] == [f"{t.name}-0"]


@pytest.mark.parametrize("version", range(5))
def test_every_version(scene, version):
    """Versions 0 (flat), 1-2 (by topic, flexible from 2), 3-4 (epoch and delete by partition): the same answer in
    each."""
    t, u = scene.topic(), scene.topic()
    for topic, partition in ((t, 0), (t, 1), (u, 0)):
        scene.lead(topic, partition=partition)
    stops = [(x, p, 0, True) for x, p in ((t, 0), (t, 1), (u, 0))]
    r = scene.ctl.stop_replica(*stops, version=version, delete=True)
    assert r["ErrorCode"] == 0
    assert stop_errors(r) == {(t.name, 0): "NONE", (t.name, 1): "NONE", (u.name, 0): "NONE"}
    assert scene.broker.dir(t.name) is None and scene.broker.dir(t.name, 1) is None and scene.broker.dir(u.name) is None


def test_stopped_follower_no_longer_fetches(scene):
    """Without deletion a follower stops fetching and keeps its log; a later LeaderAndIsr lets it go on where it was."""
    t, log = scene.follow(epoch=1, batches=[[b"a"], [b"b"]])
    scene.has(t, log)
    assert stop_errors(scene.ctl.stop_replica((t, 0, 1, False))) == {(t.name, 0): "NONE"}
    assert scene.two.quiet(t, 0.8)
    assert scene.broker.log_bytes(t.name) == log.bytes
    mark = scene.two.mark()
    scene.two.lead(t, 0, 2, log)
    scene.assign(State(t, leader=2, epoch=2, replicas=[2, 1]))
    _, p = scene.two.wait_fetch(t, after=mark)
    assert (p["FetchOffset"], p["CurrentLeaderEpoch"], p["LastFetchedEpoch"]) == (2, 2, 1)


def test_leftover_on_disk_is_deleted(own):
    """After a restart no partition is known until assigned: without deletion the directory stays, with deletion it
    goes."""
    scene = own()
    t, u = scene.lead(), scene.lead()
    scene.client.produce(t)
    scene.restart()
    r = scene.ctl.stop_replica((t, 0, 0, True), (u, 0, 0, False))
    assert stop_errors(r) == {(t.name, 0): "NONE", (u.name, 0): "NONE"}
    assert not scene.broker.dir(t.name) and scene.broker.dir(u.name)
    until("the directory goes", lambda: not scene.broker.dirs(t.name), 10)


def test_checkpoints_forget_a_deleted_partition(scene):
    """The offset checkpoints of the log directory lose the partition soon after; others stay in."""
    names = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint")
    t, u = scene.lead(), scene.lead()
    for x in (t, u):
        scene.client.produce(x, [b"1", b"2"])

    def listed(topic):
        return [(scene.broker.checkpoint(n) or {}).get((topic.name, 0)) is not None for n in names]

    until("both are listed", lambda: listed(t) == listed(u) == [True, True], 10)
    scene.ctl.stop_replica((t, 0, 0, True))
    until("the deleted one is gone", lambda: listed(t) == [False, False], 10)
    assert listed(u) == [True, True]
