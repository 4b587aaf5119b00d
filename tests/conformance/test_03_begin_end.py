"""BeginQuorumEpoch and EndQuorumEpoch (KIP-595, endpoints and replica keys by KIP-853)."""

from conformance.codec import BEGIN, END, FETCH, VOTE, err
from conformance.peers import FakeLeader, call, end, first
from conformance.scenes import FAST, Quorum, history, in_background
from conformance.target import until


def test_begin_makes_a_follower(quiet):
    """KIP-853: the node stores the new leader and fetches from the endpoint the request names, not the one it had."""
    e = quiet.next_epoch()
    quiet.peers[3].close()  # no connection to voter 3 may be left over from before
    moved = FakeLeader(3, quiet.ws.port(), directory=quiet.peers[3].directory).lead(e, history())
    try:
        b = quiet.begin(e, 3, endpoints=[moved.endpoint])
        p = first(b)
        assert err(p["ErrorCode"]) == "NONE" and (p["LeaderId"], p["LeaderEpoch"]) == (3, e)
        assert b["NodeEndpoints"] == [{"NodeId": 3, "Host": "127.0.0.1", "Port": moved.port}]
        s = quiet.node.quorum_state()
        assert (s["leaderId"], s["leaderEpoch"]) == (3, e)
        f = moved.wait(FETCH, lambda s: s.part["CurrentLeaderEpoch"] == e)
        assert (f.part["FetchOffset"], f.part["LastFetchedEpoch"]) == (20, 6)
        assert f.body["ReplicaState"]["ReplicaId"] == 1 and f.part["ReplicaDirectoryId"] == quiet.directory
        assert f.body["ClusterId"] == quiet.cluster
    finally:
        moved.close()
        quiet.peers[3].open()
        quiet.follow(2, log=history())


def test_begin_of_an_older_epoch_is_fenced(quiet):
    """An older leader gets FENCED_LEADER_EPOCH and learns the current epoch, leader and endpoint."""
    e = quiet.follow(2, log=history())
    b = quiet.begin(e - 1, 3)
    p = first(b)
    assert err(p["ErrorCode"]) == "FENCED_LEADER_EPOCH" and (p["LeaderId"], p["LeaderEpoch"]) == (2, e)
    assert b["NodeEndpoints"] == [{"NodeId": 2, "Host": "127.0.0.1", "Port": quiet.peers[2].port}]
    assert quiet.node.quorum_state()["leaderId"] == 2


def test_begin_with_a_wrong_cluster_id(quiet):
    """INCONSISTENT_CLUSTER_ID at the top level; nothing changes."""
    before = quiet.node.quorum_state()
    b = quiet.begin(quiet.next_epoch(), 3, cluster="elsewhere")
    assert err(b["ErrorCode"]) == "INCONSISTENT_CLUSTER_ID" and b["Topics"] == []
    assert quiet.node.quorum_state() == before


def test_begin_can_be_repeated(quiet):
    """The same leader may announce itself again in the same epoch."""
    e = quiet.follow(3, log=history())
    before = quiet.node.quorum_state()
    for _ in range(3):
        p = first(quiet.begin(e, 3))
        assert err(p["ErrorCode"]) == "NONE" and (p["LeaderId"], p["LeaderEpoch"]) == (3, e)
    assert quiet.node.quorum_state() == before


def test_new_leader_announces_itself(leading):
    """KIP-853: BeginQuorumEpoch v1 goes to every other voter, with its voter key and the leader's endpoints."""
    for i in leading.ids:
        s = leading.peers[i].wait(BEGIN)
        assert s.version == 1 and s.body["ClusterId"] == leading.cluster
        assert (s.body["VoterId"], s.part["VoterDirectoryId"]) == (i, leading.peers[i].directory)
        assert (s.part["LeaderId"], s.part["LeaderEpoch"]) == (1, leading.epoch)
        assert s.body["LeaderEndpoints"] == [{"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": leading.port}]


def test_end_lets_the_preferred_candidate_start_at_once(quiet):
    """KIP-853: first in the resigning leader's list means an election now, long before the fetch timeout."""
    e = quiet.follow(2, log=history())
    quiet.caught_up(2)
    for p in quiet.peers.values():
        p.on[VOTE] = p.reject
    mark = quiet.peers[3].mark()
    quiet.peers[2].resign()
    p = first(
        call(
            quiet.port, END, 1, end(e, 2, [(1, quiet.directory), (3, quiet.peers[3].directory)], cluster=quiet.cluster)
        )
    )
    assert err(p["ErrorCode"]) == "NONE" and p["LeaderEpoch"] == e
    v = quiet.peers[3].wait(VOTE, after=mark, timeout=20)
    assert v.part["PreVote"] and v.part["ReplicaEpoch"] == e


def test_end_of_an_older_epoch_is_fenced(quiet):
    """FENCED_LEADER_EPOCH with the current leader; no election follows from it."""
    e = quiet.follow(2, log=history())
    b = call(quiet.port, END, 1, end(e - 1, 3, [(1, quiet.directory)], cluster=quiet.cluster))
    p = first(b)
    assert err(p["ErrorCode"]) == "FENCED_LEADER_EPOCH" and (p["LeaderId"], p["LeaderEpoch"]) == (2, e)
    quiet.caught_up(2)
    assert quiet.node.quorum_state()["leaderId"] == 2


def test_stopped_leader_resigns_to_the_most_caught_up_voter(ws):
    """On an orderly stop the leader sends EndQuorumEpoch to the voters, the candidates ordered by log end offset."""
    with Quorum(ws, props=FAST) as q:
        e = q.elected()
        q.pause(2)
        end_before = q.node.end_offset()
        job = in_background(q.update_voter, 3)
        until("the leader wrote a record", lambda: q.node.end_offset() > end_before)
        until("voter 3 copied it", lambda: q.followers[3].offset == q.node.end_offset())
        job.result()
        stop = in_background(q.node.stop)
        for i in (2, 3):
            s = q.peers[i].wait(END)
            assert s.version == 1 and (s.part["LeaderId"], s.part["LeaderEpoch"]) == (1, e)
            assert [(c["CandidateId"], c["CandidateDirectoryId"]) for c in s.part["PreferredCandidates"]] == [
                (3, q.peers[3].directory),
                (2, q.peers[2].directory),
            ]
        stop.result(60)
        assert q.node.quorum_state()["leaderEpoch"] == e
