"""Elections: KIP-595 votes, KIP-996 pre-vote, KIP-853 replica keys in votes."""

import pytest
from conformance.codec import BEGIN, VOTE, ZERO_UUID, err
from conformance.peers import call, quorum_info, vote
from conformance.scenes import FAST, Quorum, history
from conformance.target import until

END = {"last_epoch": 6, "last_offset": 20}  # the end of scenes.history()


def test_single_voter_elects_itself(solo):
    """KIP-595: a quorum of one elects itself, raises the epoch and stores the result."""
    q, s = quorum_info(solo.port), solo.quorum_state()
    assert q["LeaderId"] == solo.node and q["LeaderEpoch"] >= 1
    assert s["leaderId"] == solo.node and s["leaderEpoch"] == q["LeaderEpoch"] and s["data_version"] == 1


def test_vote_is_on_disk_before_the_answer(quiet):
    """KIP-595: quorum-state holds epoch and vote (KIP-853: with the directory id) when the grant arrives."""
    e = quiet.next_epoch()
    p = quiet.vote(epoch=e, **END, **quiet.key(2))
    s = quiet.node.quorum_state()
    assert err(p["ErrorCode"]) == "NONE" and p["VoteGranted"] and p["LeaderEpoch"] == e and p["LeaderId"] == -1
    assert s == {
        "leaderId": -1,
        "leaderEpoch": e,
        "votedId": 2,
        "votedDirectoryId": quiet.peers[2].directory,
        "data_version": 1,
    }


def test_one_vote_per_epoch(quiet):
    """A second candidate of the same epoch is refused, the first one may ask again."""
    e = quiet.next_epoch()
    assert quiet.vote(epoch=e, **END, **quiet.key(2))["VoteGranted"]
    other = quiet.vote(epoch=e, last_epoch=6, last_offset=500, **quiet.key(3))
    assert err(other["ErrorCode"]) == "NONE" and not other["VoteGranted"]
    assert quiet.vote(epoch=e, **END, **quiet.key(2))["VoteGranted"]
    assert quiet.node.quorum_state()["votedId"] == 2


def test_older_epoch_is_fenced(quiet):
    """A vote request of an older epoch gets FENCED_LEADER_EPOCH and the current epoch; nothing changes."""
    e = quiet.next_epoch()
    assert quiet.vote(epoch=e, **END, **quiet.key(2))["VoteGranted"]
    before = quiet.node.quorum_state()
    p = quiet.vote(epoch=e - 1, **END, **quiet.key(3))
    assert err(p["ErrorCode"]) == "FENCED_LEADER_EPOCH" and not p["VoteGranted"] and p["LeaderEpoch"] == e
    assert quiet.node.quorum_state() == before


@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "granted"),
    [(6, 20, True), (6, 21, True), (7, 1, True), (6, 19, False), (5, 400, False), (0, 0, False)],
)
def test_candidate_log_must_be_up_to_date(quiet, last_epoch, last_offset, granted):
    """KIP-595: compare last epoch first, then end offset; equal is enough."""
    e = quiet.next_epoch()
    p = quiet.vote(epoch=e, last_epoch=last_epoch, last_offset=last_offset, **quiet.key(3))
    assert err(p["ErrorCode"]) == "NONE" and p["VoteGranted"] is granted
    s = quiet.node.quorum_state()
    assert s["leaderEpoch"] == e and s["votedId"] == (3 if granted else -1)


def test_unknown_cluster_id(quiet):
    """A wrong cluster id is a top-level INCONSISTENT_CLUSTER_ID, even for a higher epoch, and changes nothing."""
    before = quiet.node.quorum_state()
    b = call(
        quiet.port,
        VOTE,
        2,
        vote(quiet.next_epoch(50), **END, **quiet.key(2), **{**quiet.me, "cluster": "not-this-cluster"}),
    )
    assert err(b["ErrorCode"]) == "INCONSISTENT_CLUSTER_ID" and b["Topics"] == []
    assert quiet.node.quorum_state() == before


def test_missing_cluster_id_is_not_checked(quiet):
    """A null cluster id is accepted."""
    e = quiet.next_epoch()
    assert quiet.vote(epoch=e, **END, **{**quiet.key(2), "cluster": None})["VoteGranted"]


def test_vote_survives_kill_9(quiet):
    """After SIGKILL and restart the node remembers its vote: the other candidate is refused, the first granted."""
    e = quiet.next_epoch()
    assert quiet.vote(epoch=e, **END, **quiet.key(3))["VoteGranted"]
    before = quiet.node.quorum_state()
    quiet.node.kill()
    quiet.node.start()
    assert quiet.node.quorum_state() == before
    other = quiet.vote(epoch=e, last_epoch=6, last_offset=90, **quiet.key(2))
    assert err(other["ErrorCode"]) == "NONE" and not other["VoteGranted"]
    assert quiet.vote(epoch=e, **END, **quiet.key(3))["VoteGranted"]


def test_election_asks_pre_votes_then_votes(ws):
    """KIP-996: pre-vote at the current epoch without touching the disk, then a real vote for itself at the next
    epoch, stored before it is sent; requests name the addressed voter (KIP-853) and the end of the log; a majority is
    enough.
    """
    with Quorum(ws, props=FAST, log=history(), state={"leaderEpoch": 8}) as q:
        disk = []

        def grant(s):
            disk.append((s.part["PreVote"], q.node.quorum_state()))
            return q.peers[2].grant(s)

        q.peers[2].on[VOTE] = grant
        q.peers[3].on[VOTE] = q.peers[3].reject
        q.node.start()
        b = q.peers[2].wait(BEGIN, timeout=40)
        assert b.part["LeaderEpoch"] == 9 and b.part["LeaderId"] == 1
        pre = q.peers[2].since(0, VOTE, lambda s: s.part["PreVote"])[0]
        real = q.peers[2].since(0, VOTE, lambda s: not s.part["PreVote"])[0]
        assert pre.version == 2 and pre.order < real.order
        assert (pre.part["ReplicaEpoch"], real.part["ReplicaEpoch"]) == (8, 9)
        for s in (pre, real):
            assert s.body["ClusterId"] == q.cluster and s.body["VoterId"] == 2
            assert s.part["VoterDirectoryId"] == q.peers[2].directory
            assert (s.part["ReplicaId"], s.part["ReplicaDirectoryId"]) == (1, q.directory)
            assert (s.part["LastOffsetEpoch"], s.part["LastOffset"]) == (6, 20)
        for was_pre, state in disk:
            if was_pre:
                assert state == {
                    "leaderId": -1,
                    "leaderEpoch": 8,
                    "votedId": -1,
                    "votedDirectoryId": ZERO_UUID,
                    "data_version": 1,
                }
            else:
                assert state == {
                    "leaderId": -1,
                    "leaderEpoch": 9,
                    "votedId": 1,
                    "votedDirectoryId": q.directory,
                    "data_version": 1,
                }
        assert len(disk) >= 2
        until("the leader is stored", lambda: q.node.quorum_state()["leaderId"] == 1)
        assert q.node.quorum_state()["leaderEpoch"] == 9


def test_candidate_goes_on_after_a_restart(ws):
    """A node that finds its own vote on disk is a candidate of that epoch again: it asks for real votes there,
    without a pre-vote and without raising the epoch, and grants that epoch's vote to nobody else.
    """
    # Time for the votes to come: after it the next epoch would begin.
    with Quorum(ws, props={**FAST, "controller.quorum.election.timeout.ms": 10_000}, log=history()) as q:
        q.node.write_state(leaderEpoch=8, votedId=1, votedDirectoryId=q.directory)
        q.node.start()
        s = q.peers[2].wait(VOTE)
        assert (s.part["PreVote"], s.part["ReplicaEpoch"]) == (False, 8)
        assert q.peers[2].wait(BEGIN).part["LeaderEpoch"] == 8
        assert not q.vote(epoch=8, last_epoch=7, last_offset=900, **q.key(3))["VoteGranted"]


def test_without_answers_no_epoch_is_burnt(ws):
    """KIP-996: a voter that reaches nobody repeats pre-votes, but neither leads nor raises its epoch."""
    with Quorum(ws, props=FAST, log=history(), state={"leaderEpoch": 8}) as q:
        q.peers[3].close()
        q.peers[2].on[VOTE] = q.peers[2].reject
        q.node.start()
        q.peers[2].wait(VOTE, lambda s: len(q.peers[2].since(0, VOTE)) >= 3, timeout=40)
        assert {(s.part["PreVote"], s.part["ReplicaEpoch"]) for s in q.peers[2].since(0, VOTE)} == {(True, 8)}
        assert q.node.quorum_state()["leaderEpoch"] == 8 and q.node.quorum_state()["votedId"] == -1
        assert quorum_info(q.port) is None
