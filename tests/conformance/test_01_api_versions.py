"""ApiVersions and request headers on a controller listener (KIP-511, KIP-35, KIP-584; KIP-853 "API versions")."""

import struct

import pytest
from conformance import codec
from conformance.codec import API_VERSIONS, DESCRIBE_QUORUM, VOTE
from conformance.peers import Client, call, describe

SOFTWARE = {"ClientSoftwareName": "conformance", "ClientSoftwareVersion": "1.0"}


def ranges(body):
    return {a["ApiKey"]: (a["MinVersion"], a["MaxVersion"]) for a in body["ApiKeys"]}


def test_raft_apis_and_their_versions(solo):
    """Every raft RPC is offered with exactly the versions of 4.3.1."""
    got = ranges(call(solo.port, API_VERSIONS, 4, SOFTWARE))
    want = {
        1: (4, 18),
        18: (0, 4),
        52: (0, 2),
        53: (0, 1),
        54: (0, 1),
        55: (0, 2),
        59: (0, 1),
        80: (0, 1),
        81: (0, 0),
        82: (0, 0),
    }
    assert {k: got.get(k) for k in want} == want


def test_kraft_version_is_a_supported_and_finalized_feature(solo):
    """KIP-853: kraft.version 0..1 is supported, and finalized at 1 after a dynamic format."""
    b = call(solo.port, API_VERSIONS, 4, SOFTWARE)
    assert {"Name": "kraft.version", "MinVersion": 0, "MaxVersion": 1} in b["SupportedFeatures"]
    assert {"Name": "kraft.version", "MaxVersionLevel": 1, "MinVersionLevel": 1} in b["FinalizedFeatures"]
    assert b["FinalizedFeaturesEpoch"] >= 0


def test_features_that_can_be_off_are_hidden_from_older_clients(solo):
    """KIP-1022: supported features whose minimum is 0 are left out before version 4; finalized ones are all there."""
    old, new = (call(solo.port, API_VERSIONS, version, SOFTWARE) for version in (3, 4))
    assert [each["Name"] for each in old["SupportedFeatures"]] == [
        each["Name"] for each in new["SupportedFeatures"] if each["MinVersion"] > 0
    ]
    assert "kraft.version" not in {each["Name"] for each in old["SupportedFeatures"]}
    assert {"Name": "kraft.version", "MaxVersionLevel": 1, "MinVersionLevel": 1} in old["FinalizedFeatures"]
    assert old["FinalizedFeatures"] == new["FinalizedFeatures"]


NO_NAMES = ["", " ", "-a", "a-", ".1", "1.", "a b", "a_b", "a+b", "a\n", "caf\u00e9"]
NAMES = ["a", "1", "a-b", "librdkafka-1.x", "A.9"]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("field", list(SOFTWARE))
def test_software_that_has_no_name(solo, field, version):
    """KIP-511: names and versions are letters and digits, '-' and '.' between them; the connection stays open."""
    with Client(solo.port) as c:
        for text in NO_NAMES:
            refused = c.call(API_VERSIONS, version, SOFTWARE | {field: text})
            assert codec.err(refused["ErrorCode"]) == "INVALID_REQUEST", text
            assert refused["ApiKeys"] == []
        for text in NAMES:
            assert c.call(API_VERSIONS, version, SOFTWARE | {field: text})["ErrorCode"] == 0, text


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_fixed_layout(solo, version):
    """Versions 0-2 use the non-flexible layout and list the same APIs as version 3."""
    old, new = call(solo.port, API_VERSIONS, version, {}), call(solo.port, API_VERSIONS, 3, SOFTWARE)
    assert old["ErrorCode"] == 0 and ranges(old) == ranges(new)


def test_unknown_api_versions_version(solo):
    """KIP-511: a too new ApiVersions is answered in version 0 with UNSUPPORTED_VERSION and the supported range."""
    with Client(solo.port) as c:
        c.raw(
            codec.encode(
                "RequestHeader", 2, {"RequestApiKey": 18, "RequestApiVersion": 99, "CorrelationId": 77, "ClientId": "x"}
            )
            + b"\0\0\0\0"
        )
        got, b = codec.parse_response(API_VERSIONS, 0, c.recv())
    assert got == 77 and codec.err(b["ErrorCode"]) == "UNSUPPORTED_VERSION"
    assert ranges(b) == {18: (0, 4)}


def test_pipelined_requests_are_answered_in_order(solo):
    """Responses on a connection come in request order, each with its correlation id."""
    with Client(solo.port) as c:
        for i in range(20):
            if i % 2:
                c.send(DESCRIBE_QUORUM, 2, describe(), correlation=1000 - i)
            else:
                c.send(API_VERSIONS, 3, SOFTWARE, correlation=1000 - i)
        got = [struct.unpack(">i", c.recv()[:4])[0] for _ in range(20)]
    assert got == [1000 - i for i in range(20)]


def test_unsupported_version_of_a_raft_api_closes_the_connection(solo):
    """Only ApiVersions negotiates; another API in an unknown version ends the connection, and nobody else's."""
    with Client(solo.port) as bystander, Client(solo.port) as c:
        c.raw(
            codec.encode(
                "RequestHeader",
                2,
                {"RequestApiKey": VOTE, "RequestApiVersion": 40, "CorrelationId": 5, "ClientId": "x"},
            )
            + b"\0" * 8
        )
        assert c.closed()
        assert bystander.call(API_VERSIONS, 3, SOFTWARE)["ErrorCode"] == 0
