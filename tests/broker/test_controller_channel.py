"""The way to the active controller: when a request is sent again."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kraftcore.plugins.broker.controller_channel import ControllerChannel
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse


def ids(error):
    return AllocateProducerIdsResponse(error_code=error)


def topics(error):
    return CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name="t", error_code=error)])


def send(request, *answers):
    """What the channel returns, and how many of these answers it took."""
    left = list(answers)

    async def answer(*told):
        return left.pop(0)

    async def main():
        channel = ControllerChannel(lambda: Address("c", 9093), answer)
        return await channel.send_to_controller(request, 1000)

    found = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return found, len(answers) - len(left)


@pytest.mark.parametrize(
    ("request_", "response"), [(AllocateProducerIdsRequest(), ids), (CreateTopicsRequest(), topics)]
)
def test_a_node_that_is_not_the_active_controller_is_not_believed(request_, response):
    good, refused = response(ErrorCode.NONE), response(ErrorCode.POLICY_VIOLATION)
    wrong = response(ErrorCode.NOT_CONTROLLER)
    assert send(request_, wrong, Failure.RESET, wrong, good) == (good, 4)
    assert send(request_, refused, good) == (refused, 1)


def test_it_ends_when_its_time_is_over_or_the_controller_does_not_know_the_request():
    wrong = ids(ErrorCode.NOT_CONTROLLER)
    assert send(AllocateProducerIdsRequest(), *[wrong] * 30)[0] is Failure.TIMED_OUT
    assert send(AllocateProducerIdsRequest(), Failure.UNSUPPORTED_VERSION, wrong) == (Failure.UNSUPPORTED_VERSION, 1)
