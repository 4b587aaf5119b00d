"""What `storage format` writes and refuses, and starting again from disk (KIP-853 "storage format", KIP-858
meta.properties).
"""

import base64

import pytest
from conformance import codec
from conformance.peers import quorum_info
from conformance.scenes import FAST, Quorum, history, noops, opening, settled, standalone, wait_leader
from conformance.target import BOOTSTRAP, META, until


def tree(d):
    return sorted(str(p.relative_to(d)) for p in d.rglob("*") if p.is_file()) if d.exists() else []


def records(data):
    return [r for b in codec.batches(data, partial=False) for r in b.records]


@pytest.fixture(scope="module")
def fresh(ws):
    """A directory formatted with --standalone and never started."""
    n = ws.node(1)
    n.format("--standalone")
    return n


def test_standalone_files(fresh):
    """--standalone writes meta.properties, the bootstrap metadata and the checkpoint 0-0, nothing else."""
    assert tree(fresh.dir) == sorted(["bootstrap.checkpoint", "meta.properties", f"{META}/{BOOTSTRAP}"])


def test_meta_properties(fresh):
    """version 1, the given cluster id, the node id, and a fresh random directory id that is none of the
    reserved ones.
    """
    m = fresh.meta()
    assert (m["version"], m["cluster.id"], m["node.id"]) == ("1", fresh.ws.cluster_id, "1")
    raw = base64.urlsafe_b64decode(m["directory.id"] + "==")
    assert len(raw) == 16 and raw[:15] != b"\0" * 15 and set(m) == {"version", "cluster.id", "node.id", "directory.id"}


def test_standalone_checkpoint(fresh):
    """The checkpoint 0-0 holds header, kraft.version 1, this node as the only voter with its endpoint, and a footer."""
    data = (fresh.part / BOOTSTRAP).read_bytes()
    bs = codec.batches(data, partial=False)
    assert all(b.valid and b.control and b.epoch == 0 for b in bs)
    r = records(data)
    assert [x["kind"] for x in r] == ["SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"]
    assert [x["offset"] for x in r] == [0, 1, 2, 3] and r[1]["KRaftVersion"] == 1
    assert r[2]["Voters"] == [codec.voter(1, fresh.directory_id, fresh.port)]


def test_bootstrap_metadata(fresh):
    """bootstrap.checkpoint holds the feature levels: metadata.version of the release, and no kraft.version
    among them.
    """
    r = records((fresh.dir / "bootstrap.checkpoint").read_bytes())
    assert r[0]["kind"] == "SnapshotHeader" and r[-1]["kind"] == "SnapshotFooter"
    levels = {x["Name"]: x["FeatureLevel"] for x in r if x["kind"] == "FeatureLevelRecord"}
    assert levels["metadata.version"] == 30 and "kraft.version" not in levels


def test_no_initial_controllers(ws):
    """--no-initial-controllers writes no checkpoint 0-0: the node has no voters until it learns them from a leader."""
    n = ws.node(7)
    n.format("--no-initial-controllers")
    assert tree(n.dir) == ["bootstrap.checkpoint", "meta.properties"] and n.meta()["node.id"] == "7"


def test_formatting_twice(fresh):
    """A second format fails and changes nothing; --ignore-formatted turns that into success."""
    before = {f: (fresh.dir / f).read_bytes() for f in tree(fresh.dir)}
    r = fresh.format("--standalone", check=False)
    assert r.rc != 0 and "already formatted" in r.out
    assert fresh.format("--standalone", "--ignore-formatted", check=False).rc == 0
    assert {f: (fresh.dir / f).read_bytes() for f in tree(fresh.dir)} == before


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--standalone", "--no-initial-controllers"),
        ("--initial-controllers", "1@127.0.0.1:1:short"),
        ("--standalone", "--release-version", "9.9"),
        ("--standalone", "--frobnicate"),
    ],
    ids=["none-of-the-three", "two-of-the-three", "bad-directory-id", "unknown-release", "unknown-flag"],
)
def test_bad_flags(ws, args):
    """Unusable flags: exit code not 0, and nothing written."""
    n = ws.node(1)
    r = n.format(*args, check=False)
    assert r.rc != 0 and r.out.strip() and tree(n.dir) == []
    assert n.format("--standalone", check=False).rc == 0  # nothing is in the way of a right one


def test_quorum_state_before_kraft_version_1(ws):
    """KIP-853: while kraft.version is 0 (static voters) quorum-state keeps the older layout, data_version 0 with the
    voters.
    """
    n = ws.node(1)
    n.set(**{"controller.quorum.voters": f"1@127.0.0.1:{n.port}", "controller.quorum.bootstrap.servers": None})
    n.format()
    n.start()
    e = wait_leader(n)["LeaderEpoch"]
    s = n.quorum_state()
    n.kill()
    assert s == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": e,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }


def test_starts_again_from_its_disk(ws):
    """After SIGKILL: same identity, a higher epoch, the old records untouched below the new ones."""
    n = standalone(ws)
    q, log, meta = quorum_info(n.port), n.log_bytes(), n.meta()
    n.kill()
    n.start()
    q2 = wait_leader(n)
    assert q2["LeaderEpoch"] > q["LeaderEpoch"] and q2["HighWatermark"] > q["HighWatermark"] and n.meta() == meta
    assert n.log_bytes().startswith(log)
    new = codec.batches(n.log_bytes()[len(log) :])
    assert new[0].epoch == q2["LeaderEpoch"] and [r["kind"] for r in new[0].records] == ["LeaderChange"]
    n.kill()


@pytest.mark.parametrize("tail", ["half", "garbage", "zeros"])
def test_torn_tail_is_cut_on_start(ws, tail):
    """A half-written batch or junk after the last whole batch is cut off on start, and the log goes on from there."""
    good = [opening(0, 3, 4), noops(4, 3, 3)]
    junk = {"half": noops(7, 3, 9)[:-5], "garbage": b"\x5a\xa5kraft" * 40, "zeros": b"\0" * 200}[tail]
    with Quorum(ws, ids=(), props=FAST, log=[*good, junk], state={"leaderEpoch": 3}) as q:
        q.node.start()
        wait_leader(q.node)
        settled(q.node)
        bs = q.node.batches()
        assert q.node.log_bytes().startswith(b"".join(good))
        assert bs[2].base == 7 and bs[2].epoch == 4 and bs[2].records[0]["kind"] == "LeaderChange"

        def whole():
            data = b"".join(f.read_bytes() for f in sorted(q.node.part.glob("*.log")))
            return data == q.node.log_bytes() and junk not in data

        until("nothing but whole batches is left", whole)


def test_damaged_quorum_state_is_refused(ws):
    """A cut quorum-state stops the start with an error; the file and the log are left alone (a vote may be in
    there).
    """
    with Quorum(ws, ids=(), props=FAST, log=history(), state={"leaderEpoch": 20}) as q:
        f = q.node.part / "quorum-state"
        f.write_text(f.read_text()[:25])
        before = f.read_bytes(), q.node.log_bytes()
        q.node.start(wait=False)
        assert q.node.wait_exit() != 0
        assert (f.read_bytes(), q.node.log_bytes()) == before and "quorum-state" in q.node.output()
        q.node.write_state(leaderEpoch=20)
        q.node.start()  # repaired, it starts
        assert wait_leader(q.node)["LeaderEpoch"] > 20


def test_unformatted_directory_is_refused(ws):
    """Without meta.properties the node does not start."""
    n = ws.node(1)
    n.start(wait=False)
    assert n.wait_exit() != 0
    assert tree(n.dir) == [] or not (n.part / "quorum-state").exists()
    n.wipe().format("--standalone")
    n.start()
    wait_leader(n)
    n.kill()
