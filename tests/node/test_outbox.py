"""Who is asked: what is known of peers is bounded, and requests wait for nobody else's."""

from __future__ import annotations

import gc
from functools import partial

import pytest

from kraftcore.errors import LocalError
from kraftcore.node import outbox
from kraftcore.node.outbox import Outbox
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.registry import api_of


class Deaf:
    """A transport that reaches nobody, and says so when it is told to."""

    def __init__(self):
        self.waiting = []

    def request(self, address, parts, timeout_ms, answer):
        self.waiting.append(answer)

    def fail(self):
        waiting, self.waiting = self.waiting, []
        for answer in waiting:
            answer(Failure.REFUSED)


@pytest.fixture
def transport():
    return Deaf()


@pytest.fixture
def box(transport, monkeypatch):
    """It remembers 20 peers."""
    monkeypatch.setattr(outbox, "PEERS_MAX", 20)
    return Outbox(transport, "c", "1", lambda line: None)


def test_addresses_that_others_name_do_not_fill_the_memory(transport, box):
    ended = []
    for number in range(200):
        box.send("h", number, DescribeClusterRequest(), 1000, ended.append)
        transport.fail()
    known = {id(each) for each in gc.get_referents(*gc.get_referents(box)) if isinstance(each, Address)}
    assert 0 < len(known) <= 20
    assert ended == [Failure.REFUSED] * 200
    assert box.last("h", 199) is Failure.REFUSED


def test_who_is_waited_for_is_not_forgotten(transport, box):
    ended = []
    for number in range(50):
        box.send("h", number, DescribeClusterRequest(), 1000, ended.append)
    transport.fail()
    assert ended == [Failure.REFUSED] * 50


def test_who_is_asked_again_and_again_is_not_forgotten(transport, box):
    for number in range(100):
        box.send("voter", 1, DescribeClusterRequest(), 1000, lambda answer: None)
        box.send("h", number, DescribeClusterRequest(), 1000, lambda answer: None)
        transport.fail()
    box.send("h", 1000, DescribeClusterRequest(), 1000, lambda answer: None)
    assert box.last("voter", 1) is Failure.REFUSED
    assert box.last("h", 0) is False


class Narrow(Deaf):
    """A transport that takes no long frames, and answers ApiVersions."""

    def request(self, address, parts, timeout_ms, answer):
        if sum(map(len, parts)) > 1000:
            raise LocalError("a long frame")
        super().request(address, parts, timeout_ms, answer)

    def tell_versions(self):
        kind = ApiVersionsResponse.ApiVersion
        key = api_of(DescribeConfigsRequest).key
        told = ApiVersionsResponse(api_keys=[kind(api_key=key, min_version=0, max_version=4)])
        self.waiting.pop()(encode_response(told, 4, 0))


def test_a_request_that_is_too_long_holds_up_none_of_those_that_wait_with_it():
    transport, notes, ended = Narrow(), [], []
    box = Outbox(transport, "c", "1", notes.append)
    for number, name in enumerate(("a", "b" * 2000, "c")):
        request = DescribeConfigsRequest(resources=[DescribeConfigsRequest.DescribeConfigsResource(resource_name=name)])
        box.send("h", 1, request, 1000, partial(lambda number, answer: ended.append((number, answer)), number))
    transport.tell_versions()
    assert ended == [(1, Failure.OTHER)]
    assert len(transport.waiting) == 2
    assert notes == ["a DescribeConfigsRequest to h:1 cannot be sent: a long frame"]
    transport.fail()
    assert ended[1:] == [(0, Failure.REFUSED), (2, Failure.REFUSED)]
