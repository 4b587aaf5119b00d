from conformance.target import until
from replica_suite import codec
from replica_suite.codec import FETCH
from replica_suite.peers import State, diverging


def test_the_fetch_of_a_follower(scene):
    """Fetch by topic id with the replica id, the assigned leader epoch, the end of the log and its last epoch (-1: no
    record)."""
    t, _log = scene.follow(epoch=4)
    s, p = scene.two.wait_fetch(t)
    assert s.version >= 13 and s.body["Topics"][0].get("TopicId")
    replica = s.body["ReplicaState"] if s.version >= 15 else s.body
    assert replica["ReplicaId"] == 1
    assert (p["Partition"], p["CurrentLeaderEpoch"], p["FetchOffset"], p["LastFetchedEpoch"], p["LogStartOffset"]) == (
        0,
        4,
        0,
        -1,
        0,
    )
    assert s.body["MaxWaitMs"] == 200  # replica.fetch.wait.max.ms


def test_batches_are_stored_as_they_come(scene):
    """Byte for byte, the leader's epochs and times included; the next fetch is at the new end with the last batch's
    epoch."""
    t, log = scene.follow(epoch=5, batches=[(2, [b"a", b"b"]), (4, [b"c"]), (5, [b"d", b"e", b"f"])])
    _, p = scene.caught_up(t, log)
    assert (p["FetchOffset"], p["LastFetchedEpoch"]) == (6, 5)
    assert scene.broker.log_bytes(t.name) == log.bytes
    scene.two.publish(lambda: log.append(b"g"))
    scene.caught_up(t, log)
    assert scene.broker.log_bytes(t.name) == log.bytes


def test_epochs_come_from_the_batches(scene):
    """leader-epoch-checkpoint of a follower: the epochs of the batches, not the one it was assigned."""
    t, log = scene.follow(epoch=9, batches=[(2, [b"a", b"b"]), (4, [b"c"]), (4, [b"d"])])
    scene.has(t, log)
    until("the checkpoint is written", lambda: scene.broker.epochs(t.name) == [(2, 0), (4, 2)], 5)


def test_high_watermark_of_the_leader(scene):
    """The follower's high watermark is the leader's, as far as its own log goes; replication-offset-checkpoint has
    it."""
    t, log = scene.follow(epoch=1, batches=[[b"a"], [b"b"], [b"c"]], hwm=2)
    scene.has(t, log)

    def stored():
        return (scene.broker.checkpoint("replication-offset-checkpoint") or {}).get((t.name, 0))

    until("2 is stored", lambda: stored() == 2, 10)

    def far():
        log.hwm = 50

    scene.two.publish(far)
    until("the end of the log is stored", lambda: stored() == 3, 10)


def test_offset_checkpoints_are_text(scene):
    """Version 0, the number of lines, then topic, partition and offset; for recovery points and high watermarks
    alike."""
    t, log = scene.follow(epoch=1, batches=[[b"a", b"b"]])
    scene.has(t, log)
    for file in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        until(f"{file} lists it", lambda: (scene.broker.checkpoint(file) or {}).get((t.name, 0)) is not None, 10)
        lines = (scene.broker.log_dirs[0] / file).read_text().split("\n")
        assert lines[0] == "0" and lines[-1] == "" and int(lines[1]) == len(lines) - 3
        assert [x for x in lines if x.startswith(t.name + " ")] == [f"{t.name} 0 {2 if file.startswith('repl') else 0}"]


def test_truncates_on_a_diverging_epoch(scene):
    """KIP-595: told that its last epoch ended earlier, the follower cuts its log there and fetches on; epochs are cut
    too."""
    t, log = scene.follow(epoch=3, batches=[(1, [b"a"]), (1, [b"b"]), (3, [b"c"]), (3, [b"d"])], hwm=1)
    scene.has(t, log)
    new = scene.three.lead(t, 0, 4)
    new.batches = log.batches[:2]
    new.append(b"C", epoch=4)

    new.script = lambda asked: diverging(1, 2) if asked["LastFetchedEpoch"] == 3 else None
    scene.assign(State(t, leader=3, epoch=4, replicas=[3, 1, 2]))
    _, p = scene.three.wait_fetch(t)
    assert (p["CurrentLeaderEpoch"], p["FetchOffset"], p["LastFetchedEpoch"]) == (4, 4, 3)
    _, p = scene.three.wait_fetch(t, FetchOffset=2)
    assert p["LastFetchedEpoch"] == 1
    scene.has(t, new)
    until("the epochs are cut", lambda: scene.broker.epochs(t.name) == [(1, 0), (4, 2)], 5)


def test_a_newer_epoch_moves_to_the_new_leader(scene):
    """LeaderAndIsr names another leader: the fetching goes there, from the end of the log, and ends at the old one."""
    t, log = scene.follow(epoch=1, batches=[[b"a"]])
    scene.caught_up(t, log)
    other = scene.three.lead(t, 0, 2)
    other.batches = list(log.batches)
    scene.assign(State(t, leader=3, epoch=2, replicas=[3, 2, 1]))
    _, p = scene.three.wait_fetch(t)
    assert (p["CurrentLeaderEpoch"], p["FetchOffset"], p["LastFetchedEpoch"]) == (2, 1, 1)
    assert scene.two.quiet(t, 0.6)
    scene.three.publish(lambda: other.append(b"b"))
    scene.has(t, other)


def test_kill_9_and_on(own):
    """After SIGKILL and a new assignment the follower has its log and goes on from its end and last epoch."""
    scene = own()
    t, log = scene.follow(epoch=2, batches=[(1, [b"a", b"b"]), (2, [b"c"])])
    scene.caught_up(t, log)
    scene.restart()
    assert scene.broker.log_bytes(t.name) == log.bytes
    mark = scene.two.mark()
    scene.two.lead(t, 0, 3, log)
    scene.assign(State(t, leader=2, epoch=3, replicas=[2, 1]))
    _, p = scene.two.wait_fetch(t, after=mark)
    assert (p["CurrentLeaderEpoch"], p["FetchOffset"], p["LastFetchedEpoch"]) == (3, 3, 2)
    scene.two.publish(lambda: log.append(b"d"))
    scene.has(t, log)
    assert scene.broker.topic_id(t.name) == t.id


def test_follower_becomes_leader(scene):
    """What was copied is served, new records get the new epoch, and OffsetForLeaderEpoch knows all epochs."""
    t, log = scene.follow(epoch=3, batches=[(2, [b"a", b"b"]), (3, [b"c"])])
    scene.has(t, log)
    scene.lead(t, epoch=6)
    assert scene.client.produce(t, [b"d"])["BaseOffset"] == 3
    assert [(b.base, b.epoch) for b in codec.batches(scene.client.fetch(t)["Records"])] == [(0, 2), (2, 3), (3, 6)]
    ends = [scene.client.end_of_epoch(t, e) for e in (2, 3, 5, 6)]
    assert [(p["LeaderEpoch"], p["EndOffset"]) for p in ends] == [(2, 2), (3, 3), (3, 3), (6, 4)]
    assert scene.two.quiet(t, 0.4)


def test_two_leaders_at_once(scene):
    """Partitions of one topic from two brokers; each fetch names only its leader's partitions."""
    t = scene.topic()
    a, b = scene.two.lead(t, 0, 1), scene.three.lead(t, 1, 1)
    a.append(b"from two")
    b.append(b"from three")
    scene.ctl.assign(State(t, 0, 2, 1, replicas=[2, 1]), State(t, 1, 3, 1, replicas=[3, 1]))
    scene.has(t, a, 0)
    scene.has(t, b, 1)
    assert not scene.two.since(0, FETCH, lambda s: s.part(t, 1) is not None)
    assert not scene.three.since(0, FETCH, lambda s: s.part(t, 0) is not None)


def test_torn_tail_is_cut_at_start(own):
    """Killed in the middle of a write: the next start keeps the whole batches, and the fetching goes on behind them."""
    scene = own()
    t, log = scene.follow(epoch=1, batches=[[b"a"], [b"b"]])
    scene.caught_up(t, log)
    scene.broker.kill()
    (file,) = scene.broker.dir(t.name).glob("*.log")
    with open(file, "ab") as f:
        f.write(codec.batch(2, 1, [b"half of this is missing" * 9])[:70])
    scene.start()
    assert scene.broker.log_bytes(t.name) == log.bytes
    scene.two.lead(t, 0, 2, log)
    mark = scene.two.mark()
    scene.assign(State(t, leader=2, epoch=2, replicas=[2, 1]))
    _, p = scene.two.wait_fetch(t, after=mark)
    assert (p["FetchOffset"], p["LastFetchedEpoch"]) == (2, 1)


def test_log_start_follows_the_leader(scene):
    """The leader's log start moves up: the follower's too, as far as its high watermark; log-start-offset-checkpoint
    keeps it."""
    t, log = scene.follow(epoch=1, batches=[[b"a"], [b"b"], [b"c"]])
    scene.has(t, log)

    def cut():
        log.start = 2

    scene.two.publish(cut)
    scene.two.wait_fetch(t, LogStartOffset=2)
    until(
        "it is stored", lambda: (scene.broker.checkpoint("log-start-offset-checkpoint") or {}).get((t.name, 0)) == 2, 10
    )
    scene.two.publish(lambda: log.append(b"d"))
    scene.caught_up(t, log)
    scene.lead(t, epoch=2)
    assert scene.client.list_offsets(t, -2)["Offset"] == 2
    assert codec.err(scene.client.fetch(t, 1)["ErrorCode"]) == "OFFSET_OUT_OF_RANGE"
    assert scene.client.values(t, 2) == [b"c", b"d"]
