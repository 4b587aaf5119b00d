"""The suite's own codec against bytes that real Kafka 4.3.1 wrote, and a few known values. No node needed."""

import json

from conformance import codec
from golden import GOLDEN


def plain(x):
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items() if k != "_present"}
    return [plain(v) for v in x] if isinstance(x, list) else x


def test_varints():
    for n in (0, 1, -1, 63, 64, -64, -65, 300, 1 << 31, -(1 << 40)):
        assert codec.Reader(codec.varint(n)).varint() == n
    assert codec.uvarint(300).hex() == "ac02" and codec.varint(-1) == b"\1"


def test_uuids():
    assert (
        codec.uuid_raw(codec.METADATA_TOPIC_ID) == b"\0" * 15 + b"\1" and codec.uuid_text(b"\0" * 16) == codec.ZERO_UUID
    )


def test_batch_round_trip():
    raw = codec.batch(
        7,
        3,
        [
            codec.control(
                "LeaderChange", {"LeaderId": 1, "Voters": [{"VoterId": 1}], "GrantingVoters": [{"VoterId": 1}]}
            )
        ],
    )
    b = codec.batches(raw, partial=False)[0]
    assert b.valid and b.control and (b.base, b.last, b.epoch) == (7, 7, 3) and b.records[0]["LeaderId"] == 1


def test_golden_logs():
    """Every record of the golden logs and checkpoints decodes and encodes back to the same bytes."""
    files = [f for f in GOLDEN.rglob("*") if f.suffix in (".log", ".checkpoint") and "__cluster_metadata" in str(f)]
    n = 0
    for f in files:
        for b in codec.batches(f.read_bytes(), partial=False):
            assert b.valid, (f, b)
            for (offset, _key, value), r in zip(b.pairs, b.records, strict=False):
                r, kind = plain(r), r["kind"]
                for k in ("kind", "offset"):
                    r.pop(k)
                if b.control:
                    assert codec.encode(codec.CONTROL_ID[kind][1], r["Version"], r) == value, (f, offset)
                else:
                    assert codec.metadata(kind, r, r.pop("version"))[1] == value, (f, offset)
                n += 1
    assert n > 100


def test_golden_frames():
    """Every captured request and response (pcap_frames.py's JSON lines) decodes and encodes back to the same bytes."""
    files = list(GOLDEN.glob("wire/*.jsonl"))
    seen = set()
    for line in (line for f in files for line in f.read_text().splitlines()):
        j = json.loads(line)
        if (j["api_key"], "request") not in codec.BY_KEY:
            continue
        raw = bytes.fromhex(j["request"])
        key, version, correlation, client, body = codec.parse_request(raw)
        assert codec.request_frame(key, version, correlation, plain(body), client) == raw
        raw = bytes.fromhex(j["response"])
        correlation, body = codec.parse_response(key, version, raw)
        assert codec.response_frame(key, version, correlation, plain(body)) == raw
        seen.add(key)
    assert {1, 18, 52, 53} <= seen
