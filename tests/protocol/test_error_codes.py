from __future__ import annotations

from kraftcore.protocol.error_codes import ErrorCode


def test_numbers_have_no_gaps():
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


def test_texts():
    assert ErrorCode.NONE.message is None
    assert all(code.message.endswith((".", ")")) for code in ErrorCode if code is not ErrorCode.NONE)
    assert ErrorCode.INCONSISTENT_CLUSTER_ID.message == (
        "The clusterId in the request does not match that found on the server."
    )


def test_retriable_codes_of_the_quorum():
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.FENCED_LEADER_EPOCH.retriable
    assert not ErrorCode.INCONSISTENT_CLUSTER_ID.retriable
    assert not ErrorCode.BROKER_NOT_AVAILABLE.retriable


def test_unknown_numbers():
    assert ErrorCode.of(0) is ErrorCode.NONE
    assert ErrorCode.of(74) is ErrorCode.FENCED_LEADER_EPOCH
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(ErrorCode.NONE, int)
