"""FetchSnapshot answered by a leader (KIP-630)."""

from conformance.codec import FETCH_SNAPSHOT, err
from conformance.peers import call, fetch_snapshot, first, quorum_info
from conformance.scenes import SNAP


def ask(node, kind=None, epoch=None, version=1, end=(30, 2), **kw):
    """The partition of the answer. Kafka 4.3.1 cannot serialise a partition error here (see FINDINGS.md): it answers
    UNKNOWN_SERVER_ERROR for the whole request, which counts as the expected error for it alone."""
    e = quorum_info(node.port)["LeaderEpoch"] if epoch is None else epoch
    b = call(node.port, FETCH_SNAPSHOT, version, fetch_snapshot(e, *end, **kw))
    if kind == "kafka" and err(b["ErrorCode"]) == "UNKNOWN_SERVER_ERROR" and not b["Topics"]:
        return {"ErrorCode": None}
    assert b["ErrorCode"] == 0, err(b["ErrorCode"])
    return first(b)


def failed(kind, p, want):
    return p["ErrorCode"] is None if kind == "kafka" else err(p["ErrorCode"]) == want


def test_whole_snapshot(loaded):
    """The bytes of the checkpoint file, with its size, the position, the id and the leader."""
    data = (loaded.part / SNAP).read_bytes()
    p = ask(loaded)
    assert p["UnalignedRecords"] == data
    assert (p["Size"], p["Position"], p["ErrorCode"]) == (len(data), 0, 0)
    assert p["SnapshotId"] == {"EndOffset": 30, "Epoch": 2}
    assert p["CurrentLeader"] == {"LeaderId": 1, "LeaderEpoch": quorum_info(loaded.port)["LeaderEpoch"]}


def test_in_chunks(loaded):
    """MaxBytes cuts anywhere; the pieces in order make the file."""
    data, got = (loaded.part / SNAP).read_bytes(), b""
    while len(got) < len(data):
        p = ask(loaded, position=len(got), max_bytes=777)
        assert p["Position"] == len(got) and p["Size"] == len(data) and 0 < len(p["UnalignedRecords"]) <= 777
        got += p["UnalignedRecords"]
    assert got == data


def test_unknown_snapshot(loaded, kind):
    """SNAPSHOT_NOT_FOUND for an id that does not exist."""
    for end in ((31, 2), (30, 3), (30, 1)):
        assert failed(kind, ask(loaded, kind, end=end), "SNAPSHOT_NOT_FOUND")


def test_position_beyond_the_end(loaded, kind):
    """POSITION_OUT_OF_RANGE at or past the size; the last byte is still in range."""
    size = len((loaded.part / SNAP).read_bytes())
    for position in (size, size + 1, 1 << 40):
        assert failed(kind, ask(loaded, kind, position=position), "POSITION_OUT_OF_RANGE")
    assert len(ask(loaded, position=size - 1)["UnalignedRecords"]) == 1
