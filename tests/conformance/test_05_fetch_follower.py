"""The node as a follower of a scripted leader: appending, truncating, fetching snapshots, losing its leader."""

import pytest
from conformance import codec
from conformance.codec import FETCH, FETCH_SNAPSHOT, TOPIC, VOTE, batch, metadata
from conformance.peers import FakeLeader
from conformance.scenes import QUIET, Observer, Quorum, history, leader_change, noops, sized_snapshot
from conformance.target import until


def flat(raws):
    return b"".join(raws)


@pytest.fixture(scope="module")
def q(ws):
    """A voter with scenes.history(), of which the fake leader's high watermark never passes offset 10 in this
    module.
    """
    with Quorum(ws, log=history(), state={"leaderEpoch": 8}) as q:
        q.node.start()
        yield q


def test_appends_what_the_leader_gives(q):
    """KIP-595: batches are stored byte for byte as sent; the next fetch starts at the new end with the last batch's
    epoch.
    """
    log = [b.raw for b in q.node.batches()]
    e = q.follow(2, log=log, hwm=10)
    end = q.peers[2].end
    new = [leader_change(end, e, 2, [1, 2, 3]), noops(end + 1, e, 3), noops(end + 4, e, 1)]
    q.peers[2].append(*new, hwm=10)
    f = q.caught_up(2)
    assert (f.part["FetchOffset"], f.part["LastFetchedEpoch"]) == (end + 5, e)
    assert q.node.log_bytes() == flat(log + new)


def test_truncates_where_the_logs_diverge(q):
    """KIP-595: on a diverging epoch the node cuts its log to the common part and fetches on from there."""
    log = [b.raw for b in q.node.batches()]
    e = q.follow(2, log=log, hwm=10)
    base = q.peers[2].end
    q.peers[2].append(leader_change(base, e, 2, [1, 2, 3]), noops(base + 1, e, 4), hwm=10)
    q.caught_up(2)
    assert q.node.end_offset() == base + 5
    # the next leader never saw those five records: its log goes on from base in its own epoch
    e2 = q.next_epoch()
    other = [*log, leader_change(base, e2, 3, [1, 2, 3]), noops(base + 1, e2, 1)]
    mark = q.peers[3].mark()
    q.follow(3, epoch=e2, log=other, hwm=10)
    q.caught_up(3)
    until("both logs agree", lambda: q.node.log_bytes() == flat(other))
    offsets = [
        (s.part["FetchOffset"], s.part["LastFetchedEpoch"])
        for s in q.peers[3].since(mark, FETCH, lambda s: s.part["CurrentLeaderEpoch"] == e2)
    ]
    assert (
        offsets[0] == (base + 5, e) and (base, codec.Batch(log[-1]).epoch) in offsets and offsets[-1] == (base + 2, e2)
    )


def test_truncation_survives_a_crash(q):
    """What was cut stays cut after SIGKILL, and the node resumes from its end in the stored epoch."""
    log = [b.raw for b in q.node.batches()]
    base, last = codec.Batch(log[-1]).last + 1, codec.Batch(log[-1]).epoch
    e = q.follow(
        2, log=[*log, leader_change(base, q.next_epoch(), 2, [1, 2, 3]), noops(base + 1, q.next_epoch(), 2)], hwm=10
    )
    q.caught_up(2)
    q.follow(3, log=log, hwm=10)
    q.caught_up(3)
    q.node.kill()
    assert q.node.log_bytes() == flat(log)
    mark, e = q.peers[3].mark(), q.disk_epoch()
    q.node.start()
    s = q.peers[3].wait(FETCH, lambda s: s.part["CurrentLeaderEpoch"] == e, after=mark)
    assert (s.part["FetchOffset"], s.part["LastFetchedEpoch"]) == (base, last)


def test_corrupt_batch_is_refused(q):
    """A batch whose CRC is wrong is not stored; the node asks again and takes the good one."""
    log = [b.raw for b in q.node.batches()]
    e = q.follow(2, log=log, hwm=10)
    base = q.peers[2].end
    good = batch(base, e, [metadata("NoOpRecord", {})] * 3)
    bad = bytearray(good)
    bad[-1] ^= 0x40
    mark = q.peers[2].mark()

    def asked():  # of this epoch: what a node that was killed had still sent is read late by a busy machine
        return [s.part["FetchOffset"] for s in q.peers[2].since(mark, FETCH) if s.part["CurrentLeaderEpoch"] == e]

    q.peers[2].append(bytes(bad), hwm=10)
    q.peers[2].wait(FETCH, lambda s: len(asked()) >= 4, after=mark)
    assert q.node.log_bytes() == flat(log) and q.node.alive
    assert set(asked()) == {base}
    with q.peers[2].change:
        q.peers[2].log[-1] = good
    q.caught_up(2)
    assert q.node.log_bytes() == flat([*log, good])


def test_downloads_a_snapshot_in_pieces(ws):
    """KIP-630: told of a snapshot, the node fetches it piece by piece, stores it under its name, drops its log, and
    goes on fetching records after it.
    """
    with Quorum(ws) as q:
        p = q.peers[2]
        p.snapshot, p.snapshot_id, p.chunk = sized_snapshot(q.voters, epoch=4, groups=30), (50, 4), 1000
        p.start = 50
        q.node.start()
        q.follow(2, epoch=7, log=[leader_change(50, 7, 2, [1, 2, 3]), noops(51, 7, 4)])
        f = q.caught_up(2)
        assert (f.part["FetchOffset"], f.part["LastFetchedEpoch"]) == (55, 7)
        got = p.since(0, FETCH_SNAPSHOT)
        assert [s.part["Position"] for s in got] == list(range(0, len(p.snapshot), 1000))
        for s in got:
            assert (
                s.body["ClusterId"] == q.cluster and s.body["ReplicaId"] == 1 and s.body["Topics"][0]["Name"] == TOPIC
            )
            assert s.part["SnapshotId"] == {"EndOffset": 50, "Epoch": 4} and s.part["CurrentLeaderEpoch"] == 7
            assert s.part["ReplicaDirectoryId"] == q.directory
        after = p.since(got[-1].order, FETCH)[0]
        assert (after.part["FetchOffset"], after.part["LastFetchedEpoch"]) == (50, 4)
        assert q.node.checkpoints()["00000000000000000050-0000000004.checkpoint"].read_bytes() == p.snapshot
        assert q.node.log_bytes() == flat(p.log)


def test_observer_finds_the_leader(ws):
    """KIP-853: a node without voters asks controller.quorum.bootstrap.servers by Fetch in epoch 0, then follows the
    leader it is told of at the endpoint it is told, and learns the voters from the log.
    """
    with Observer(ws) as o:
        guide = FakeLeader(9, ws.port())
        guide.on[FETCH] = lambda s: guide.fetch_reply(s, error=74, leader=2, epoch=5)
        guide.leader_port = o.leader.port
        try:
            o.node.set(**{"controller.quorum.bootstrap.servers": f"127.0.0.1:{guide.port}"})
            o.node.start()
            s = guide.wait(FETCH)
            assert (s.part["CurrentLeaderEpoch"], s.part["FetchOffset"], s.part["LastFetchedEpoch"]) == (0, 0, 0)
            assert (s.body["ReplicaState"]["ReplicaId"], s.part["ReplicaDirectoryId"]) == (1, o.node.directory)
            s = o.leader.wait(FETCH, lambda s: s.part["FetchOffset"] == 7)
            assert s.part["CurrentLeaderEpoch"] == 5
            assert o.node.log_bytes() == flat(o.leader.log)
            assert (o.node.quorum_state()["leaderId"], o.node.quorum_state()["leaderEpoch"]) == (2, 5)
        finally:
            guide.close()


def test_takes_snapshots_of_its_own(ws):
    """KIP-630: after metadata.log.max.record.bytes.between.snapshots the node writes a checkpoint named after a
    committed end offset and its epoch: header, kraft.version and voters as of that offset, the metadata, footer.
    """
    with Quorum(
        ws,
        props={**QUIET, "metadata.log.max.record.bytes.between.snapshots": 5000},
        log=history(),
        state={"leaderEpoch": 8},
    ) as q:
        q.node.start()
        e = q.follow(2, log=history())
        q.caught_up(2)
        q.peers[2].append(codec.batch(20, e, [codec.control("KRaftVoters", {"Voters": q.voters})]))

        def more():
            end = q.peers[2].end
            q.peers[2].append(
                batch(
                    end,
                    e,
                    [
                        metadata(
                            "ConfigRecord",
                            {
                                "ResourceType": 2,
                                "ResourceName": f"t{end % 100}",
                                "Name": "retention.ms",
                                "Value": str(i),
                            },
                        )
                        for i in range(5)
                    ],
                )
            )
            return [n for n in q.node.checkpoints() if not n.startswith("0" * 20)]

        name = until("a checkpoint is written", more, 40)[0]
        bs = until("it is whole", lambda: codec.batches(q.node.checkpoints()[name].read_bytes(), partial=False))
        end, epoch = (int(x) for x in name.removesuffix(".checkpoint").split("-"))
        assert epoch == e and end in {b.last + 1 for b in q.node.batches()} and end <= q.peers[2].hwm
        assert all(b.valid for b in bs) and [b.base for b in bs] == [0] + [b.last + 1 for b in bs[:-1]]
        r = [r for b in bs for r in b.records]
        assert [x["kind"] for x in r[:3]] == ["SnapshotHeader", "KRaftVersion", "KRaftVoters"] and r[-1][
            "kind"
        ] == "SnapshotFooter"
        assert sorted(r[2]["Voters"], key=lambda v: v["VoterId"]) == q.voters and r[1]["KRaftVersion"] == 1
        assert bs[0].control and bs[-1].control and not any(b.control for b in bs[1:-1])
        assert r[0]["LastContainedLogTimestamp"] == next(b.max_ts for b in q.node.batches() if b.last + 1 == end)


def test_silent_leader_leads_to_a_pre_vote(ws):
    """KIP-996: after the fetch timeout the follower asks every other voter for a pre-vote in the epoch it is in."""
    with Quorum(
        ws,
        props={**QUIET, "controller.quorum.fetch.timeout.ms": 1500, "controller.quorum.election.timeout.ms": 500},
        log=history(),
        state={"leaderId": 2, "leaderEpoch": 8},
    ) as q:
        for p in q.peers.values():
            p.on[VOTE] = p.reject
        q.peers[2].lead(8, history())
        q.node.start()
        q.caught_up(2)
        assert not q.peers[3].since(0, VOTE)
        q.peers[2].resign()
        for p in q.peers.values():
            v = p.wait(VOTE)
            assert v.part["PreVote"] and (v.part["ReplicaEpoch"], v.part["LastOffset"], v.part["LastOffsetEpoch"]) == (
                8,
                20,
                6,
            )
        assert q.node.quorum_state()["leaderEpoch"] == 8
