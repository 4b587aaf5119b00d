"""DescribeQuorum (KIP-595, KIP-836 timestamps, KIP-853 directory ids and endpoints)."""

import time

import pytest
from conformance.codec import DESCRIBE_QUORUM, err
from conformance.peers import Follower, call, describe, first, quorum_info
from conformance.target import new_uuid, until


def test_leader_and_its_voters(leading):
    """Version 2: leader, epoch, high watermark, the voters with directory ids and offsets, and their endpoints."""
    b = until(
        "followers keep up",
        lambda: (
            lambda b: (
                b if all(v["LogEndOffset"] == first(b)["HighWatermark"] for v in first(b)["CurrentVoters"]) else None
            )
        )(call(leading.port, DESCRIBE_QUORUM, 2, describe())),
    )
    p = first(b)
    assert (b["ErrorCode"], p["ErrorCode"], p["LeaderId"], p["LeaderEpoch"]) == (0, 0, 1, leading.epoch)
    assert p["HighWatermark"] == leading.node.end_offset()
    want = {1: leading.directory, 2: leading.peers[2].directory, 3: leading.peers[3].directory}
    assert {v["ReplicaId"]: v["ReplicaDirectoryId"] for v in p["CurrentVoters"]} == want
    nodes = {n["NodeId"]: n["Listeners"] for n in b["Nodes"]}
    assert nodes[1] == [{"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": leading.port}] and set(nodes) == {1, 2, 3}


def test_timestamps(leading):
    """KIP-836: the leader's own times are now; a follower's are those of its last fetch."""
    p = quorum_info(leading.port)
    now = time.time() * 1000
    for v in p["CurrentVoters"]:
        assert now - 60_000 < v["LastCaughtUpTimestamp"] <= v["LastFetchTimestamp"] <= now + 5_000
    leader = next(v for v in p["CurrentVoters"] if v["ReplicaId"] == 1)
    assert leader["LastFetchTimestamp"] == leader["LastCaughtUpTimestamp"]


def test_observer_is_listed(solo):
    """A replica that fetches and is no voter is an observer, with the offset it last asked for."""
    q = quorum_info(solo.port)
    f = Follower(solo.port, 31, new_uuid())
    f.step(q["LeaderEpoch"])
    f.step(q["LeaderEpoch"])
    o = [o for o in quorum_info(solo.port)["Observers"] if o["ReplicaId"] == 31]
    assert len(o) == 1 and o[0]["ReplicaDirectoryId"] == f.directory and o[0]["LogEndOffset"] == q["HighWatermark"]
    assert o[0]["LastCaughtUpTimestamp"] > 0
    assert 31 not in {v["ReplicaId"] for v in quorum_info(solo.port)["CurrentVoters"]}


def test_version_0(solo):
    """Version 0 has neither timestamps nor directory ids nor nodes."""
    b = call(solo.port, DESCRIBE_QUORUM, 0, describe())
    assert set(b) <= {"ErrorCode", "Topics", "_tags"}
    for v in first(b)["CurrentVoters"]:
        assert set(v) == {"ReplicaId", "LogEndOffset"}


@pytest.mark.parametrize("version", [0, 2])
def test_what_is_not_the_metadata_partition_is_echoed(solo, version):
    """Another partition, another topic, or several: each that was asked for is answered by itself."""
    topic = "__cluster_metadata"
    for asked in ({topic: [1]}, {"other": [0]}, {"other": [3, 7], topic: [0]}, {topic: [0, 1]}):
        topics = [{"TopicName": t, "Partitions": [{"PartitionIndex": i} for i in ps]} for t, ps in asked.items()]
        b = call(solo.port, DESCRIBE_QUORUM, version, {"Topics": topics})
        assert b["ErrorCode"] == 0
        assert {t["TopicName"]: [p["PartitionIndex"] for p in t["Partitions"]] for t in b["Topics"]} == asked
        parts = [p for t in b["Topics"] for p in t["Partitions"]]
        assert {err(p["ErrorCode"]) for p in parts} == {"UNKNOWN_TOPIC_OR_PARTITION"}
        assert {p["LeaderId"] for p in parts} == {0} and not any(p["CurrentVoters"] for p in parts)
        assert not b.get("Nodes")
        if version >= 2:
            assert {p["ErrorMessage"] for p in parts} == {"This server does not host this topic-partition."}
