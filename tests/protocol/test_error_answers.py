"""Responses with a chosen error, made of requests by the schemas alone."""

from __future__ import annotations

from itertools import count

import pytest

from kraftcore.core.uuid import Uuid
from kraftcore.core.wire import decode, encode
from kraftcore.protocol.error_answers import can_carry_error, error_response, named_topics, names_topics
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
from kraftcore.protocol.registry import api_of, apis_on, request_class
from kraftcore.protocol.schema import within

OF_PART, OF_WHOLE = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_NOT_AVAILABLE
KINDS = [request_class(key) for key in apis_on("broker")]
# No list of theirs answers one of the request by a key, and there is no error for the whole.
NO_PLACE = {"AlterClientQuotas", "AlterReplicaLogDirs", "AlterUserScramCredentials"}


def filled(kind, version, numbers):
    """A request with two elements in each list; no two numbers or texts in it are the same."""
    values = {}
    for field in kind.__layout__.fields:
        if not within(field.versions, version):
            continue
        if field.struct_class is not None:
            made = [filled(field.struct_class, version, numbers) for _ in range(2)]
        else:
            made = [plain(field.type_name, next(numbers)) for _ in range(2)]
        values[field.name] = made if field.is_array else made[0]
    return kind(**values)


def plain(type_name, number):
    if type_name in ("string", "bytes", "records"):
        return f"v{number}" if type_name == "string" else b"%d" % number
    if type_name == "uuid":
        return Uuid((number).to_bytes(16, "big"))
    return bool(number % 2) if type_name == "bool" else number % 100 + 1


def codes(struct):
    """All error codes in a response, and how many elements with one there are in lists."""
    found = []
    for field in struct.__layout__.fields:
        value = getattr(struct, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        elif field.struct_class is not None and value is not None:
            for each in value if field.is_array else [value]:
                found += codes(each)
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.removesuffix("Request"))
def test_every_answer_is_a_response_of_its_version_and_has_the_error(kind):
    assert can_carry_error(kind, api_of(kind).max_version) is not (kind.__name__.removesuffix("Request") in NO_PLACE)
    for version in range(api_of(kind).min_version, api_of(kind).max_version + 1):
        if not can_carry_error(kind, version):
            assert kind.__name__.removesuffix("Request") in {*NO_PLACE, "DescribeLogDirs"}
            continue
        for request in (filled(kind, version, count(1)), kind()):
            for error in (OF_PART, OF_WHOLE):
                answer = error_response(request, version, error)
                assert decode(type(answer), encode(answer, version), version) == answer
                assert set(codes(answer)) <= {error, ErrorCode.NONE}
                assert error in codes(answer) or request == kind()


def test_an_error_of_partitions_stands_in_each_and_another_one_in_the_whole():
    topic = FetchRequest.FetchTopic
    parts = [topic.FetchPartition(partition=each, fetch_offset=5) for each in (3, 4)]
    request = FetchRequest(topics=[topic(topic="t", partitions=parts)], session_id=9, session_epoch=2)
    answer = error_response(request, 12, OF_PART)
    assert (answer.error_code, answer.session_id) == (0, 0)
    (told,) = answer.responses
    found = [(each.partition_index, each.error_code, each.high_watermark) for each in told.partitions]
    assert (told.topic, found) == ("t", [(3, OF_PART, -1), (4, OF_PART, -1)])
    answer = error_response(request, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])

    group = OffsetFetchRequest.OffsetFetchRequestGroup
    asked = group(group_id="g", topics=[group.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])])
    answer = error_response(OffsetFetchRequest(groups=[asked]), 8, OF_WHOLE)
    assert [(each.group_id, each.error_code, each.topics) for each in answer.groups] == [("g", OF_WHOLE, [])]
    answer = error_response(OffsetFetchRequest(groups=[asked]), 8, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    ((told,),) = [each.topics for each in answer.groups]
    assert [each.error_code for each in told.partitions] == [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 2


def test_what_was_asked_for_is_named_as_it_was():
    topic = ProduceRequest.TopicProduceData
    of_topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceData(index=2, records=b"x")
    topic_id = Uuid.random()
    request = ProduceRequest(topic_data=[topic(topic_id=topic_id, partition_data=[part])])
    told = of_topic.PartitionProduceResponse(index=2, error_code=OF_PART, base_offset=-1, error_message=OF_PART.message)
    assert error_response(request, 13, OF_PART, OF_PART.message) == ProduceResponse(
        responses=[of_topic(topic_id=topic_id, partition_responses=[told])]
    )
    found = error_response(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 4, OF_WHOLE).coordinators
    assert [(each.key, each.error_code, each.node_id) for each in found] == [("a", OF_WHOLE, -1), ("b", OF_WHOLE, -1)]
    found = error_response(FindCoordinatorRequest(key="a"), 3, OF_WHOLE, OF_WHOLE.message)
    assert (found.error_code, found.error_message, found.coordinators) == (OF_WHOLE, OF_WHOLE.message, [])
    assert error_response(JoinGroupRequest(group_id="g", member_id="m"), 9, OF_WHOLE).member_id == ""
    state = DeleteTopicsRequest.DeleteTopicState
    for request, version in (
        (DeleteTopicsRequest(topic_names=["a", "b"]), 5),
        (DeleteTopicsRequest(topics=[state(name="a"), state(name="b")]), 6),
    ):
        found = error_response(request, version, ErrorCode.NOT_CONTROLLER).responses
        assert [(each.name, each.error_code) for each in found] == [(each, ErrorCode.NOT_CONTROLLER) for each in "ab"]
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")
    (found,) = error_response(DescribeConfigsRequest(resources=[resource]), 4, OF_WHOLE).results
    assert (found.resource_type, found.resource_name, found.error_code) == (2, "t", OF_WHOLE)


def test_the_topics_that_a_request_names():
    topic_id = Uuid.random()
    by_id = FetchRequest(
        topics=[FetchRequest.FetchTopic(topic_id=topic_id)],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="old", partitions=[0])],
    )
    assert list(named_topics(by_id)) == [topic_id]
    assert list(named_topics(DeleteTopicsRequest(topic_names=["a", "b"]))) == ["a", "b"]
    config = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="retention.ms", value="1")
    created = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t", configs=[config])])
    assert list(named_topics(created)) == ["t"]
    named = {kind.__name__.removesuffix("Request") for kind in KINDS if names_topics(kind)}
    assert {"Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "CreateTopics"} <= named
    assert not {"Heartbeat", "JoinGroup", "FindCoordinator", "DescribeConfigs", "ApiVersions"} & named
