"""Fetch answered by a leader (KIP-595, KIP-630 snapshots, KIP-853 directory ids and endpoints, KIP-516 topic ids)."""

import time

import pytest
from conformance import codec, scenes
from conformance.codec import FETCH, VOTE, err
from conformance.peers import Follower, call, fetch, first, quorum_info, vote
from conformance.scenes import in_background
from conformance.target import new_uuid, until


def ask(node, epoch, offset, last_epoch, version=17, **kw):
    b = call(node.port, FETCH, version, fetch(epoch, offset, last_epoch, version=version, **kw))
    assert b["ErrorCode"] == 0, err(b["ErrorCode"])
    return first(b)


def test_epoch_starts_with_a_leader_change(leading):
    """KIP-595: the leader's first record is a LeaderChange control record naming voters and those who granted."""
    start = next(b for b in leading.node.batches() if b.epoch == leading.epoch)
    assert start.control and start.valid and start.magic == 2
    r = start.records[0]
    assert r["kind"] == "LeaderChange" and r["LeaderId"] == 1
    assert [v["VoterId"] for v in r["Voters"]] == [1, 2, 3]
    granted = {v["VoterId"] for v in r["GrantingVoters"]}
    assert 1 in granted and len(granted) >= 2 and granted <= {1, 2, 3}
    assert (start.producer_id, start.producer_epoch, start.sequence) == (-1, -1, -1)


def test_first_leader_writes_version_and_voters(leading):
    """KIP-853: the first leader copies kraft.version and the voter set of the bootstrap checkpoint into its log."""
    r = leading.node.records()[:3]
    assert [x["kind"] for x in r] == ["LeaderChange", "KRaftVersion", "KRaftVoters"]
    assert r[1]["KRaftVersion"] == 1
    assert sorted(r[2]["Voters"], key=lambda v: v["VoterId"]) == leading.voters


def test_fetch_returns_the_log_as_it_is_on_disk(solo):
    """From offset 0 the answer holds the very bytes of the log, the high watermark, the leader and its endpoint."""
    q = quorum_info(solo.port)
    b = call(solo.port, FETCH, 17, fetch(q["LeaderEpoch"], 0, 0))
    p = first(b)
    assert p["Records"] == solo.log_bytes()
    assert (p["HighWatermark"], p["LogStartOffset"]) == (q["HighWatermark"], 0)
    assert p["CurrentLeader"] == {"LeaderId": 1, "LeaderEpoch": q["LeaderEpoch"]}
    assert b["NodeEndpoints"] == [{"NodeId": 1, "Host": "127.0.0.1", "Port": solo.port, "Rack": None}]
    assert b["Responses"][0]["TopicId"] == codec.METADATA_TOPIC_ID and b["SessionId"] == 0


def test_high_watermark_follows_the_majority_of_voters(leading):
    """KIP-595: a record is committed when a majority of voters has fetched past it, not before."""
    leading.pause()
    old, epoch = leading.node.end_offset(), leading.epoch
    job = in_background(leading.update_voter, 2)
    try:
        until("a record is appended", lambda: leading.node.end_offset() > old)
        end = leading.node.end_offset()
        assert quorum_info(leading.port)["HighWatermark"] == old
        f = leading.followers[3]
        p = f.step(epoch)  # fetches at old: now it has the record, the leader does not know yet
        assert f.offset == end and p["HighWatermark"] == old
        assert quorum_info(leading.port)["HighWatermark"] == old
        assert f.step(epoch)["HighWatermark"] == end  # fetching at end acknowledges it
        assert quorum_info(leading.port)["HighWatermark"] == end
    finally:
        leading.resume()
        job.result()


def test_observers_do_not_commit(leading):
    """KIP-595/853: neither an observer nor a voter's id with another directory id counts for the high watermark."""
    leading.pause()
    old, epoch = leading.node.end_offset(), leading.epoch
    job = in_background(leading.update_voter, 3)
    try:
        until("a record is appended", lambda: leading.node.end_offset() > old)
        end = leading.node.end_offset()
        for node, directory in ((50, new_uuid()), (51, codec.ZERO_UUID), (2, new_uuid())):
            f = Follower(leading.port, node, directory)
            while f.offset < end:
                f.step(epoch)
            assert f.step(epoch)["HighWatermark"] == old
        assert quorum_info(leading.port)["HighWatermark"] == old
    finally:
        leading.resume()
        job.result()


def test_epochs_are_checked(solo):
    """An older epoch is FENCED_LEADER_EPOCH, a newer one UNKNOWN_LEADER_EPOCH; both name the leader and carry
    no data.
    """
    e = quorum_info(solo.port)["LeaderEpoch"]
    for asked, want in ((e - 1, "FENCED_LEADER_EPOCH"), (e + 1, "UNKNOWN_LEADER_EPOCH")):
        p = ask(solo, asked, 0, 0)
        assert err(p["ErrorCode"]) == want and not p["Records"] and p["HighWatermark"] == -1
        assert p["CurrentLeader"] == {"LeaderId": 1, "LeaderEpoch": e}


@pytest.mark.parametrize(
    ("offset", "last_epoch", "want"),
    [
        (41, 5, (5, 40)),
        (33, 5, None),
        (36, 2, (2, 35)),
        (38, 3, (2, 35)),
        (38, 4, (2, 35)),
        (1000, 5, (5, 40)),
        (36, 5, None),
        (35, 2, None),
    ],
)
def test_diverging_epoch(loaded, offset, last_epoch, want):
    """KIP-595: a fetch that does not fit the log's epochs is told the largest epoch not above its own, and that epoch's
    end.
    """
    e = quorum_info(loaded.port)["LeaderEpoch"]
    p = ask(loaded, e, offset, last_epoch)
    assert p["ErrorCode"] == 0
    if want is None:
        assert p["DivergingEpoch"] == {"Epoch": -1, "EndOffset": -1} and p["Records"]
    else:
        assert p["DivergingEpoch"] == {"Epoch": want[0], "EndOffset": want[1]} and not p["Records"]


@pytest.mark.parametrize(("offset", "last_epoch"), [(29, 2), (1, 1), (10, 2)])
def test_below_the_log_start_there_is_a_snapshot(loaded, offset, last_epoch):
    """KIP-630: below the log start the answer names the latest snapshot instead of records."""
    p = ask(loaded, quorum_info(loaded.port)["LeaderEpoch"], offset, last_epoch)
    assert p["ErrorCode"] == 0 and p["SnapshotId"] == {"EndOffset": 30, "Epoch": 2}
    assert not p["Records"] and p["DivergingEpoch"]["Epoch"] == -1


def test_long_poll_waits_for_data(solo):
    """A fetch at the log's end is held for MaxWaitMs and then answered empty; with MaxWaitMs 0 it is answered now."""
    q = quorum_info(solo.port)
    end = q["HighWatermark"]
    t = time.monotonic()
    p = ask(solo, q["LeaderEpoch"], end, q["LeaderEpoch"], wait=1500)
    took = time.monotonic() - t
    assert p["ErrorCode"] == 0 and not p["Records"] and p["HighWatermark"] == end and took > 1.4
    t = time.monotonic()
    p = ask(solo, q["LeaderEpoch"], end, q["LeaderEpoch"], wait=0)
    assert not p["Records"] and time.monotonic() - t < 1.4


def test_min_bytes_is_ignored(solo):
    """Any record at hand is an answer, however many bytes were asked for."""
    q = quorum_info(solo.port)
    p = ask(solo, q["LeaderEpoch"], 0, 0, wait=60_000, min_bytes=8 << 20)
    assert p["ErrorCode"] == 0 and p["Records"] == solo.log_bytes()


def test_a_held_fetch_learns_the_epoch_that_deposed_the_leader(ws):
    """A leader that meets a higher epoch answers the Fetches it holds: they are fenced, and told the new epoch."""
    with scenes.Quorum(ws, props=scenes.FAST) as q:
        q.elected()
        scenes.settled(q.node)
        info = quorum_info(q.port)
        epoch, end = q.epoch, info["HighWatermark"]
        directory = new_uuid()
        held = in_background(
            ask, q.node, epoch, end, q.node.batches()[-1].epoch, replica=61, directory=directory, wait=15_000
        )
        until("the Fetch is held", lambda: 61 in {o["ReplicaId"] for o in quorum_info(q.port)["Observers"]})
        q.pause()
        call(q.port, VOTE, 2, vote(epoch + 7, 2, epoch + 6, end + 100, candidate_dir=q.peers[2].directory))
        p = held.result()
        assert err(p["ErrorCode"]) == "FENCED_LEADER_EPOCH" and not p["Records"]
        assert p["CurrentLeader"]["LeaderEpoch"] >= epoch + 7  # by then it may have run again
