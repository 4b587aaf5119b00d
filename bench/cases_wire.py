"""Cases of the wire codec: a follower's Fetch, version 17, header and body."""

from __future__ import annotations

from bench.harness import OURS, Case, Sum
from bench.peers import java_peer, kafka_python_peer, kio_peer, ours_wire

PEERS = (
    (kafka_python_peer.NAME, kafka_python_peer),
    (kio_peer.NAME, kio_peer),
    (java_peer.NAME, java_peer),
)
PARTS = ("request-encode", "request-decode", "response-encode", "response-decode")
ABOUT = {
    "request-encode": "an existing FetchRequest object and its header to bytes",
    "request-decode": "bytes to a FetchRequest object and its header",
    "response-encode": "an existing FetchResponse object (one batch of 100 records) and its header to bytes",
    "response-decode": "bytes to a FetchResponse object and its header; records stay bytes",
}


def cases() -> list[Case | Sum]:
    """The four directions, and their sum: what one exchange costs both ends together."""
    result: list[Case | Sum] = [part(name) for name in PARTS]
    names = tuple(case.name for case in result)
    return [*result, Sum("wire-fetch", names, about="the four wire-fetch cases added up: both ends of one exchange")]


def part(name: str) -> Case:
    """One direction of one message."""
    function = "fetch_" + name.replace("-", "_")
    contenders = {OURS: getattr(ours_wire, function)}
    contenders |= {peer_name: getattr(peer, function) for peer_name, peer in PEERS}
    return Case(f"wire-fetch-{name}", "us", contenders, about=ABOUT[name])
