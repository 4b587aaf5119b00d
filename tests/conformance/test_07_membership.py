"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter and the kraft.version upgrade (KIP-853)."""

import pytest
from conformance import codec
from conformance.codec import (
    ADD_VOTER,
    API_VERSIONS,
    REMOVE_VOTER,
    UPDATE_FEATURES,
    UPDATE_VOTER,
    err,
)
from conformance.peers import FakeLeader, Follower, call, listeners, quorum_info
from conformance.scenes import FAST, QUIET, Quorum, history, settled, voters_record
from conformance.target import HOST, new_uuid, until


def add(port, node, directory, *ends, cluster=None, timeout_ms=20000, version=1, **more):
    return call(
        port,
        ADD_VOTER,
        version,
        {
            "ClusterId": cluster,
            "TimeoutMs": timeout_ms,
            "VoterId": node,
            "VoterDirectoryId": directory,
            "Listeners": listeners(*ends),
            **more,
        },
        timeout=40,
    )


def remove(port, node, directory, cluster=None):
    return call(
        port, REMOVE_VOTER, 0, {"ClusterId": cluster, "VoterId": node, "VoterDirectoryId": directory}, timeout=40
    )


def voter_ids(node):
    return [sorted(v["VoterId"] for v in r["Voters"]) for r in node.records() if r["kind"] == "KRaftVoters"]


@pytest.fixture(scope="module")
def q(ws):
    """The leader of three voters, with one more controller (4) that is not a voter yet."""
    with Quorum(ws, props=FAST, extra=(4,)) as q:
        q.elected()
        yield q


def test_add_a_voter(q):
    """The joiner is asked for its versions, a VotersRecord with its endpoints and kraft.version range is written, and
    the answer comes after a majority of the new set has it; from then on the joiner is a voter. Removal undoes it.
    """
    four = q.peers[4]
    f = Follower(q.port, 4, four.directory).follow(q.epoch)
    try:
        until(
            "4 is a caught-up observer",
            lambda: [
                o for o in quorum_info(q.port)["Observers"] if o["ReplicaId"] == 4 and o["LastCaughtUpTimestamp"] > 0
            ],
        )
        b = add(q.port, 4, four.directory, four.endpoint, cluster=q.cluster)
        assert err(b["ErrorCode"]) == "NONE", b
        assert four.since(0, API_VERSIONS)
        r = [r for r in q.node.records() if r["kind"] == "KRaftVoters"][-1]
        assert sorted(r["Voters"], key=lambda v: v["VoterId"]) == [*q.voters, four.entry]
        info = quorum_info(q.port)
        assert info["HighWatermark"] > r["offset"]
        assert {v["ReplicaId"]: v["ReplicaDirectoryId"] for v in info["CurrentVoters"]}[4] == four.directory
        assert 4 not in {o["ReplicaId"] for o in info["Observers"]}
        # and out again
        b = remove(q.port, 4, four.directory, cluster=q.cluster)
        assert err(b["ErrorCode"]) == "NONE", b
        assert voter_ids(q.node)[-2:] == [[1, 2, 3, 4], [1, 2, 3]]
        assert 4 not in {v["ReplicaId"] for v in quorum_info(q.port)["CurrentVoters"]}
    finally:
        f.stop()


def test_add_a_voter_that_is_one(q):
    """DUPLICATE_VOTER, by id alone: another directory id makes no difference."""
    before = voter_ids(q.node)
    for d in (q.peers[2].directory, new_uuid()):
        b = add(q.port, 2, d, q.peers[2].endpoint)
        assert err(b["ErrorCode"]) == "DUPLICATE_VOTER" and b["ErrorMessage"]
    assert voter_ids(q.node) == before


def test_add_without_the_quorum_listener(q):
    """INVALID_REQUEST when the endpoints lack the leader's own listener, or there are none."""
    for ends in ((), (("OTHER", HOST, 4444),)):
        b = add(q.port, 9, new_uuid(), *ends)
        assert err(b["ErrorCode"]) == "INVALID_REQUEST" and b["ErrorMessage"]


def test_remove_an_unknown_voter(q):
    """VOTER_NOT_FOUND for an id that is no voter, and for a voter's id with another directory id."""
    before = voter_ids(q.node)
    for node, d in ((9, new_uuid()), (2, new_uuid())):
        b = remove(q.port, node, d)
        assert err(b["ErrorCode"]) == "VOTER_NOT_FOUND" and b["ErrorMessage"]
    assert voter_ids(q.node) == before


def test_joiner_that_lags_is_not_added(q):
    """REQUEST_TIMED_OUT when the joiner has not fetched to the end of the log; nothing is written."""
    five, before = FakeLeader(5, q.ws.port()), voter_ids(q.node)
    try:
        b = add(q.port, 5, five.directory, five.endpoint, timeout_ms=3000)
        assert err(b["ErrorCode"]) == "REQUEST_TIMED_OUT" and b["ErrorMessage"]
        assert voter_ids(q.node) == before
    finally:
        five.close()


def test_voter_reports_its_endpoint(ws):
    """KIP-853: a voter whose entry in the voter set has another endpoint than its own tells the leader by
    UpdateRaftVoter.
    """
    with Quorum(
        ws, props={**QUIET, "controller.quorum.fetch.timeout.ms": 3000}, log=history(), state={"leaderEpoch": 8}
    ) as q:
        q.node.start()
        e = q.follow(2, log=history())
        mark = q.peers[2].mark()
        q.peers[2].append(voters_record(20, e, [codec.voter(1, q.directory, 9), *q.voters[1:]]))
        s = q.peers[2].wait(UPDATE_VOTER, after=mark)
        assert s.body["ClusterId"] == q.cluster and s.body["CurrentLeaderEpoch"] == e
        assert (s.body["VoterId"], s.body["VoterDirectoryId"]) == (1, q.directory)
        assert s.body["Listeners"] == [{"Name": "CONTROLLER", "Host": HOST, "Port": q.port}]
        assert s.body["KRaftVersionFeature"] == {"MinSupportedVersion": 0, "MaxSupportedVersion": 1}


def test_membership_needs_kraft_version_1(ws):
    """With static voters kraft.version is 0: adding and removing is UNSUPPORTED_VERSION. UpdateFeatures 0->1 writes a
    KRaftVersion and a KRaftVoters record; from then on members can change."""
    with Quorum(ws, dynamic=False, props=FAST) as q:
        q.elected()
        four = FakeLeader(4, ws.port())
        try:
            assert {r["kind"] for b in q.node.batches() if b.control for r in b.records} == {"LeaderChange"}
            b = add(q.port, 4, four.directory, four.endpoint)
            assert err(b["ErrorCode"]) == "UNSUPPORTED_VERSION" and b["ErrorMessage"]
            assert err(remove(q.port, 2, q.peers[2].directory)["ErrorCode"]) == "UNSUPPORTED_VERSION"
            # a controller asks its own voters to support the version: they register, and tell the leader their
            # directory ids and version ranges by UpdateRaftVoter
            for i in (2, 3):
                assert q.register(i)["ErrorCode"] == 0
            settled(q.node)
            for i in (2, 3):
                assert q.update_voter(i)["ErrorCode"] == 0
            said = []

            def upgrade():
                b = call(
                    q.port,
                    UPDATE_FEATURES,
                    1,
                    {"FeatureUpdates": [{"Feature": "kraft.version", "MaxVersionLevel": 1, "UpgradeType": 1}]},
                )
                said.append(b)
                return b["ErrorCode"] == 0 and all(r["ErrorCode"] == 0 for r in b["Results"])

            assert until("kraft.version is upgraded", upgrade, every=0.5), said
            r = until(
                "both records are there",
                lambda: (lambda r: r if len(r) >= 2 else None)(
                    [
                        r
                        for b in q.node.batches()
                        if b.control
                        for r in b.records
                        if r["kind"] in ("KRaftVersion", "KRaftVoters")
                    ]
                ),
            )
            assert [x["kind"] for x in r[:2]] == ["KRaftVersion", "KRaftVoters"] and r[0]["KRaftVersion"] == 1
            assert sorted(r[1]["Voters"], key=lambda v: v["VoterId"]) == q.voters
            settled(q.node)
            b = remove(q.port, 9, new_uuid())
            assert err(b["ErrorCode"]) == "VOTER_NOT_FOUND"
        finally:
            four.close()
