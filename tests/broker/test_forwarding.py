"""What an asker is told when the controller's answer to an envelope is another than the one he waits for."""

from __future__ import annotations

import pytest
import trio
from noted_request import NotedRequest

from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER
from kraftcore.plugins.broker.api.config_changes import CHANGES, ConfigChanges
from kraftcore.plugins.broker.api.forwarding import Forwarding
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.work.tasks import TASKS_MAX, Background
from kraftcore.plugins.controller.envelope import unpack
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.envelope import EnvelopeResponse
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.security.principals import Principal

REQUEST = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1000)


def asking(version=6):
    who = Principal("User", "alice")
    return NotedRequest(version, "10.1.2.3:4567", "PLAINTEXT", "me", principal=who, is_by_token=True)


def forward(send, request=REQUEST):
    async def main():
        asked = asking(2 if isinstance(request, DescribeQuorumRequest) else 6)
        async with trio.open_nursery() as nursery:
            Forwarding(send, Background(nursery), RequestCache()).respond(request, asked)
        return asked

    return trio.run(main)


def test_the_envelope_says_who_asks_and_its_answer_is_passed_back():
    async def send(envelope):
        outer = asking()
        request, context = unpack(envelope, outer)
        assert type(request) is DeleteTopicsRequest
        assert [each.name for each in request.topics] == ["t"]
        assert (str(context.asker.principal), context.asker.peer, context.client_id) == ("User:alice", "10.1.2.3", "me")
        assert (context.version, context.asker.is_by_token, context.asker.is_forwarded) == (6, True, True)
        told = DeleteTopicsResponse.DeletableTopicResult(name="t", error_code=ErrorCode.TOPIC_DELETION_DISABLED)
        context.answer(DeleteTopicsResponse(responses=[told]))
        return outer.answers[0]

    asked = forward(send)
    assert [told.error_code for told in asked.answers[0].responses] == [ErrorCode.TOPIC_DELETION_DISABLED]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Failure.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"rubbish"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=None), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_went_wrong_on_the_way_is_told_in_the_requests_own_answer(answer, error):
    async def send(envelope):
        return answer

    asked = forward(send)
    assert [told.error_code for told in asked.answers[0].responses] == [error]


@pytest.mark.parametrize(
    "answer", [Failure.UNSUPPORTED_VERSION, EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)]
)
def test_a_controller_that_does_not_know_the_request_ends_the_connection(answer):
    async def send(envelope):
        return answer

    asked = forward(send)
    assert (asked.answers, asked.closed) == ([], 1)


def test_a_request_whose_answer_cannot_say_it_ends_the_connection():
    async def send(envelope):
        return Failure.TIMED_OUT

    asked = forward(send, DescribeQuorumRequest())
    assert (asked.answers, asked.closed) == ([], 1)


def test_a_topic_that_was_made_is_served_before_its_maker_is_told():
    told = CreateTopicsResponse.CreatableTopicResult(name="t")

    async def send(envelope):
        outer = asking()
        request, context = unpack(envelope, outer)
        assert type(request) is CreateTopicsRequest
        context.answer(CreateTopicsResponse(topics=[told]))
        return outer.answers[0]

    class Opening:
        looks = 0

        def has_all_of(self, topic):
            self.looks += 1
            assert (topic, asked.answers) == ("t", [])
            return self.looks > 3

    async def main():
        cache.topics["t"] = {}
        request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")])
        async with trio.open_nursery() as nursery:
            Forwarding(send, Background(nursery), cache, opening).respond(request, asked)

    asked, cache, opening = asking(), RequestCache(), Opening()
    trio.run(main)
    assert [each.name for each in asked.answers[0].topics] == ["t"]
    assert opening.looks == 4


def test_so_many_wait_and_no_more(caplog):
    async def main():
        async def send(envelope):
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            forwarding = Forwarding(send, Background(nursery), RequestCache())
            asked = [asking() for _ in range(TASKS_MAX + 3)]
            for each in asked:
                forwarding.respond(REQUEST, each)
            assert [each.closed for each in asked] == [0] * TASKS_MAX + [1] * 3
            nursery.cancel_scope.cancel()

        async def fail(envelope):
            raise ZeroDivisionError

        async with trio.open_nursery() as nursery:
            asked = asking()
            Forwarding(fail, Background(nursery), RequestCache()).respond(REQUEST, asked)
        assert (asked.answers, asked.closed) == ([], 1)

    trio.run(main)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("is_incremental", [False, True])
def test_changes_of_configurations_that_cannot_be_meant_are_refused_and_the_others_passed_on(is_incremental):
    kind = IncrementalAlterConfigsRequest if is_incremental else AlterConfigsRequest
    passed = []

    class Controller:
        async def ask(self, request, context, version):
            passed.extend(each.resource_name for each in request.resources)
            answer = CHANGES[kind].AlterConfigsResourceResponse
            return CHANGES[kind](responses=[answer(resource_name=each.resource_name) for each in request.resources])

        def respond(self, request, context):
            passed.append("all")

    def change(name, *values):
        config = kind.AlterConfigsResource.AlterableConfig
        configs = [config(name=key, value=value) for key, value in values]
        return kind.AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)

    sound = change("sound", ("a", "1"))
    spoiled = [change("null", ("a", None)), change("same", ("a", "1"), ("a", "2")), change("twice"), change("twice")]
    deleting = change("deleting", ("a", None))
    if is_incremental:
        deleting.configs[0].config_operation = 1

    async def main(*resources):
        asked = asking()
        async with trio.open_nursery() as nursery:
            changes = ConfigChanges(Controller(), Background(nursery), Image, 1)
            changes.respond(kind(resources=list(resources)), asked)
        return {each.resource_name: each.error_code for answer in asked.answers for each in answer.responses}

    refused = dict.fromkeys(("null", "same", "twice"), ErrorCode.INVALID_REQUEST)
    assert trio.run(main, *spoiled) == refused
    assert passed == []
    assert trio.run(main, sound, *spoiled) == refused | {"sound": ErrorCode.NONE}
    assert passed == ["sound"]
    assert trio.run(main, deleting) == ({} if is_incremental else {"deleting": ErrorCode.INVALID_REQUEST})
    assert passed == ["sound", *(["all"] if is_incremental else [])]


SET, DELETE, APPEND, SUBTRACT = range(4)
NOT_DYNAMIC = "Cannot update these configs dynamically: [broker.id]"
NO_NUMBER = "Invalid value x for configuration log.retention.ms: Not a number of type LONG"


@pytest.mark.parametrize(
    ("name", "present", "changes", "text"),
    [
        ("1", {}, [("log.retention.ms", SET, "5")], None),
        ("1", {}, [("log.retention.ms", SET, "x")], NO_NUMBER),
        ("", {}, [("log.retention.ms", SET, "x")], NO_NUMBER),
        ("1", {"log.retention.ms": "x"}, [("background.threads", SET, "5")], None),
        ("1", {"log.retention.ms": "x"}, [("log.retention.ms", DELETE, None)], None),
        ("1", {"broker.id": "5"}, [("background.threads", SET, "5")], None),
        ("1", {}, [("broker.id", SET, "5")], NOT_DYNAMIC),
        ("1", {"log.cleanup.policy": "delete"}, [("log.cleanup.policy", APPEND, "compact")], None),
        ("1", {"log.cleanup.policy": "delete"}, [("log.cleanup.policy", SUBTRACT, "x")], None),
        (
            "1",
            {"log.cleanup.policy": "delete"},
            [("log.cleanup.policy", APPEND, "x")],
            "Invalid value x for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "1",
            {},
            [("cordoned.log.dirs", SET, "/a")],
            "cordoned.log.dirs cannot be set: this broker keeps no new partitions away from a log directory",
        ),
        ("1", {}, [("cordoned.log.dirs", SET, "")], None),
        ("2", {}, [("log.cleaner.threads", SET, "2")], "Unexpected broker id, expected 1, but received 2"),
        ("b", {}, [("log.cleaner.threads", SET, "2")], "Node id must be an integer, but it is: b"),
    ],
)
def test_values_that_no_broker_may_have_are_not_passed_on(name, present, changes, text):
    """The controller would take them, and so would every broker that reads them."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        kind.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
    ]
    image = Image()
    for key, value in present.items():
        image.apply(ConfigRecord(resource_type=BROKER, resource_name=name, name=key, value=value))
    passed = []

    class Controller:
        def respond(self, request, context):
            passed.append(request)

    async def main():
        asked = asking()
        async with trio.open_nursery() as nursery:
            changes = ConfigChanges(Controller(), Background(nursery), lambda: image, 1)
            resource = kind(resource_type=BROKER, resource_name=name, configs=configs)
            changes.respond(IncrementalAlterConfigsRequest(resources=[resource]), asked)
        return [(each.error_code, each.error_message) for answer in asked.answers for each in answer.responses]

    assert trio.run(main) == ([] if text is None else [(ErrorCode.INVALID_REQUEST, text)])
    assert len(passed) == (text is None)


def test_all_values_of_a_broker_are_looked_at_where_they_replace_what_is_set():
    kind = AlterConfigsRequest.AlterConfigsResource
    config = kind.AlterableConfig(name="log.retention.ms", value="x")

    async def main():
        asked = asking()
        async with trio.open_nursery() as nursery:
            changes = ConfigChanges(None, Background(nursery), Image, 1)
            resource = kind(resource_type=BROKER, resource_name="1", configs=[config])
            changes.respond(AlterConfigsRequest(resources=[resource]), asked)
        return [each.error_message for answer in asked.answers for each in answer.responses]

    assert trio.run(main) == [NO_NUMBER]
