"""Bodies that Kafka 4.3.1's own generated classes wrote, for every message and version."""

from __future__ import annotations

from collections import defaultdict

import pytest
from messages import classes, golden_vectors

from kraftcore.core.wire import decode, decode_prefix, encode

VECTORS = defaultdict(list)
for _name, _version, _kind, _raw in golden_vectors():
    VECTORS[_name].append((_version, _kind, _raw))


def test_all_vectors_are_there():
    assert sum(map(len, VECTORS.values())) == 1328
    removed = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}
    expected = {name for name in classes() if name.removesuffix("Request").removesuffix("Response") not in removed}
    assert set(VECTORS) == expected


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_bodies_decode_and_encode_to_the_same_bytes(name):
    cls = classes()[name]
    for version, kind, raw in VECTORS[name]:
        message = decode(cls, raw, version)
        assert encode(message, version) == raw, (version, kind)
        assert decode(cls, raw, version) == message
        assert decode_prefix(cls, b"ab" + raw + b"c", version, 2) == (message, len(raw) + 2)
        if kind == "default":
            assert encode(cls(), version) == raw, version
            assert message == cls(), version
        else:
            assert (message == cls()) == (raw == encode(cls(), version)), version


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_versions_are_those_of_the_vectors(name):
    spoken = sorted({version for version, _, _ in VECTORS[name]})
    low, high = classes()[name].schema.versions
    assert spoken == list(range(low, high + 1))


def test_filled_values_are_what_was_filled_in():
    message = decode(classes()["VotersRecord"], {k: r for v, k, r in VECTORS["VotersRecord"]}["filled"], 0)
    assert message.version == 513
    (voter,) = message.voters
    assert voter.voter_id == 16909060
    assert bytes(voter.voter_directory_id) == bytes(range(1, 17))
    (endpoint,) = voter.endpoints
    assert (endpoint.name, endpoint.host, endpoint.port) == ("h\u00e9", "h\u00e9", 60001)
    assert voter.kraft_version_feature.max_supported_version == 513
