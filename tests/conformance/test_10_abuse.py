"""Bad input: whatever arrives, the node answers the next client and its log keeps its bytes."""

import socket
import struct

import pytest
from conformance import codec
from conformance.codec import API_VERSIONS, BEGIN, DESCRIBE_QUORUM, FETCH, VOTE
from conformance.peers import Client, begin, call, describe, fetch, leo_of, quorum_info, settled
from conformance.scenes import standalone
from conformance.target import HOST

SOFTWARE = {"ClientSoftwareName": "conformance", "ClientSoftwareVersion": "1.0"}


@pytest.fixture(scope="module")
def node(ws):
    n = standalone(ws)
    yield n
    n.kill()


@pytest.fixture(autouse=True)
def unharmed(node):
    """Around every test: the node still leads in the same epoch, and its log and quorum-state are what they were."""
    before = node.log_bytes(), node.quorum_state(), quorum_info(node.port)["LeaderEpoch"]
    yield
    assert node.alive
    assert call(node.port, API_VERSIONS, 3, SOFTWARE)["ErrorCode"] == 0
    assert (node.log_bytes(), node.quorum_state(), quorum_info(node.port)["LeaderEpoch"]) == before


def framed(frame):
    return struct.pack(">i", len(frame)) + frame


def connect(node):
    return socket.create_connection((HOST, node.port), 20)


@pytest.mark.parametrize("seed", range(4))
def test_garbage(node, seed):
    """Random bytes, framed and unframed: the connection is closed at the latest when the sender is done."""
    import random

    rnd = random.Random(seed)
    junk = rnd.randbytes(3000)
    for data in (struct.pack(">i", len(junk)) + junk, b"\x7f" + junk, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        with connect(node) as s:
            s.settimeout(20)
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
            except OSError as e:  # closed by the node, at whatever moment
                assert not isinstance(e, TimeoutError), "the connection is still open"


@pytest.mark.parametrize("size", [-1, -2147483648, 2147483647, 100 * 1024 * 1024 + 1])
def test_impossible_frame_size(node, size):
    """A negative size, or one above socket.request.max.bytes (100 MiB): the connection is closed, nothing is
    allocated.
    """
    with Client(node.port) as c:
        c.sock.sendall(struct.pack(">i", size))
        assert c.closed()


@pytest.mark.parametrize("key", [-1, 999, 32767, 4])
def test_unknown_api_key(node, key):
    """An API key nobody knows, or one of another time, closes the connection."""
    with Client(node.port) as c:
        c.raw(struct.pack(">hhih", key, 0, 7, -1) + b"\0" * 8)
        assert c.closed()


@pytest.mark.parametrize("fault", ["size", "unknown", "cut"])
def test_requests_before_a_malformed_one_are_answered(node, fault):
    """Pipelined requests that came whole are answered, a Fetch when its wait is over; then the connection is closed."""
    quorum = settled(node)
    epoch = quorum["LeaderEpoch"]
    asked = [
        codec.request_frame(API_VERSIONS, 3, 1, SOFTWARE),
        codec.request_frame(FETCH, 17, 2, fetch(epoch, leo_of(quorum, node.node), epoch, wait=200)),
        codec.request_frame(DESCRIBE_QUORUM, 2, 3, describe()),
    ]
    malformed = {
        "size": struct.pack(">i", -1),
        "unknown": framed(struct.pack(">hhih", 999, 0, 7, -1) + b"\0" * 8),
        "cut": framed(asked[2][:-1]),
    }[fault]
    with Client(node.port) as c:
        c.sock.sendall(b"".join(map(framed, asked)) + malformed)
        assert [struct.unpack(">i", c.recv()[:4])[0] for _ in asked] == [1, 2, 3]
        assert c.closed()


def test_200_idle_connections(node):
    """Idle connections do not keep others from being served."""
    idle = [connect(node) for _ in range(200)]
    try:
        for _ in range(5):
            assert call(node.port, DESCRIBE_QUORUM, 2, describe())["ErrorCode"] == 0
        with Client(node.port) as c:
            assert c.call(API_VERSIONS, 3, SOFTWARE)["ErrorCode"] == 0
    finally:
        for s in idle:
            s.close()


@pytest.mark.parametrize(
    ("key", "version", "name"),
    [(FETCH, 17, "FetchRequest"), (VOTE, 2, "VoteRequest"), (BEGIN, 1, "BeginQuorumEpochRequest")],
)
def test_cut_off_bodies(node, key, version, name):
    """A request whose frame ends before its body does: the connection is closed; cut anywhere."""
    body = {
        FETCH: lambda: fetch(1, 0, 0),
        BEGIN: lambda: begin(1, 1),
        VOTE: lambda: {"Topics": [{"TopicName": codec.TOPIC, "Partitions": [{}]}]},
    }[key]()
    whole = codec.request_frame(key, version, 5, body)
    head = len(codec.request_frame(key, version, 5, b""))
    for cut in {head, head + 1, (head + len(whole)) // 2, len(whole) - 1}:
        with Client(node.port) as c:
            c.raw(whole[:cut])
            assert c.closed()
