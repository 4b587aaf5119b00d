"""At most 10,000 records for what one administrator asks; more is refused as a whole."""

from __future__ import annotations

import pytest
from controller_stage import ControllerStage, FakeBroker

from kraftcore.plugins.controller import acls
from kraftcore.plugins.controller.brokers import fencing
from kraftcore.plugins.controller.decision import MAX_RECORDS, Refusal, check_record_count
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.error_text_budget import TEXTS_MAX
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest

EACH = 5_500
TOPICS = ("t", "u")


@pytest.fixture(scope="module")
def crowded() -> ControllerStage:
    """Two topics of 5,500 partitions each, led by broker 2, with broker 1 in every ISR and the preferred leader."""
    stage = ControllerStage()
    stage.check_rules = lambda decision=None: None  # that walks all partitions each time
    stage.up(FakeBroker(1), FakeBroker(2))
    for name in TOPICS:
        kind = CreateTopicsRequest.CreatableTopic
        topic = kind(name=name, num_partitions=-1, replication_factor=-1)
        topic.assignments = [
            kind.CreatableReplicaAssignment(partition_index=number, broker_ids=[2, 1]) for number in range(EACH)
        ]
        assert len(stage.ask(CreateTopicsRequest(topics=[topic])).records) == EACH + 1
    return stage


def reverse_all() -> AlterPartitionReassignmentsRequest:
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = [
        kind(
            name=name,
            partitions=[kind.ReassignablePartition(partition_index=number, replicas=[1, 2]) for number in range(EACH)],
        )
        for name in TOPICS
    ]
    return AlterPartitionReassignmentsRequest(topics=topics)


def test_reassignments(crowded):
    step = crowded.ask(reverse_all())
    assert (step.error, step.records) == (ErrorCode.POLICY_VIOLATION, [])
    assert step.answer.error_message == "Unable to perform excessively large batch operation."
    assert crowded.ask(AlterPartitionReassignmentsRequest(topics=reverse_all().topics[:1])).error is None


def test_elections(crowded):
    assert crowded.ask(ElectLeadersRequest(topic_partitions=None)).error is None  # of the topic that was reversed


def test_unregistering(crowded):
    step = crowded.ask(UnregisterBrokerRequest(broker_id=1))
    assert (step.error, step.records) == (ErrorCode.POLICY_VIOLATION, [])


def test_fencing_has_no_limit_and_may_be_split(crowded):
    """It cannot be refused: the records go over several batches, as in Kafka."""
    assert len(fencing(crowded.context(), crowded.image.brokers[1])) == 2 * EACH + 1
    step = crowded.heartbeat(1, want_fence=True)
    assert (len(step.records), step.decision.is_atomic) == (2 * EACH + 1, False)


def test_the_limit_itself():
    check_record_count(MAX_RECORDS)
    with pytest.raises(Refusal):
        check_record_count(MAX_RECORDS + 1)


def acl_filter(name: str | None, principal: str | None = None) -> DeleteAclsRequest.DeleteAclsFilter:
    return DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=name,
        pattern_type_filter=3,
        principal_filter=principal,
        host_filter=None,
        operation=3,
        permission_type=3,
    )


NEW, NAMED = CreateTopicsRequest.CreatableTopic, DeleteTopicsRequest.DeleteTopicState
MOVED = AlterPartitionReassignmentsRequest.ReassignableTopic
GROWN = CreatePartitionsRequest.CreatePartitionsTopic
CHANGED, REPLACED = IncrementalAlterConfigsRequest.AlterConfigsResource, AlterConfigsRequest.AlterConfigsResource
QUOTA, SCRAM = AlterClientQuotasRequest.EntryData, AlterUserScramCredentialsRequest
# Nothing of it changes anything: what is named is not there, or is refused.
IN_VAIN = {
    "topics without partitions": lambda count: CreateTopicsRequest(topics=[NEW(name=f"t{n}") for n in range(count)]),
    "topics of unknown names": lambda count: DeleteTopicsRequest(
        topics=[NAMED(name=f"t{n}") for n in range(count)], timeout_ms=1
    ),
    "partitions of unknown topics": lambda count: CreatePartitionsRequest(
        topics=[GROWN(name=f"t{n}", count=2, assignments=None) for n in range(count)], timeout_ms=1
    ),
    "moves of unknown topics": lambda count: AlterPartitionReassignmentsRequest(
        topics=[MOVED(name=f"t{n}", partitions=[MOVED.ReassignablePartition(replicas=[1])]) for n in range(count)]
    ),
    "settings of unknown topics": lambda count: IncrementalAlterConfigsRequest(
        resources=[
            CHANGED(resource_type=2, resource_name=f"t{n}", configs=[CHANGED.AlterableConfig(name="k", value="v")])
            for n in range(count)
        ]
    ),
    "unknown settings of a group": lambda count: IncrementalAlterConfigsRequest(
        resources=[
            CHANGED(
                resource_type=32,
                resource_name="g",
                configs=[CHANGED.AlterableConfig(name=f"k{n}", value="v") for n in range(count)],
            )
        ]
    ),
    "no settings of unknown topics": lambda count: AlterConfigsRequest(
        resources=[REPLACED(resource_type=2, resource_name=f"t{n}") for n in range(count)]
    ),
    "unknown quotas": lambda count: AlterClientQuotasRequest(
        entries=[
            QUOTA(
                entity=[QUOTA.EntityData(entity_type="user", entity_name=f"u{n}")],
                ops=[QUOTA.OpData(key="k", value=1.0, remove=False)],
            )
            for n in range(count)
        ]
    ),
    "credentials that are not there": lambda count: SCRAM(
        deletions=[SCRAM.ScramCredentialDeletion(name=f"u{n}", mechanism=1) for n in range(count)]
    ),
    "filters that find nothing": lambda count: DeleteAclsRequest(filters=[acl_filter(f"t{n}") for n in range(count)]),
    "entries without a name": lambda count: CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=2, resource_pattern_type=3, principal="User:a", host="*", operation=3, permission_type=3
            )
            for _ in range(count)
        ]
    ),
}


@pytest.mark.parametrize("what", IN_VAIN)
def test_what_changes_nothing_is_limited_as_what_does(what):
    """A million resources in 40 MiB, each of which has to be looked at, would hold the consensus up for a minute."""
    stage = ControllerStage(static_configs={"authorizer.class.name": "a class"})
    stage.up(FakeBroker(1))
    assert stage.ask(IN_VAIN[what](MAX_RECORDS)).error is None
    step = stage.ask(IN_VAIN[what](MAX_RECORDS + 1))
    assert (step.error, step.records) == (ErrorCode.POLICY_VIOLATION, [])


def test_filters_are_not_compared_with_all_entries_again_and_again(monkeypatch):
    """Five thousand of them, in 200 KB, and a thousand entries took the active controller three seconds."""
    monkeypatch.setattr(acls, "LOOKED_AT_MAX", 1000)
    stage = ControllerStage(static_configs={"authorizer.class.name": "a class"})
    stage.up(FakeBroker(1))
    made = [
        CreateAclsRequest.AclCreation(
            resource_type=2,
            resource_name=f"t{number}",
            resource_pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(100)
    ]
    assert len(stage.ask(CreateAclsRequest(creations=made)).records) == 100
    step = stage.ask(DeleteAclsRequest(filters=[acl_filter(None, f"User:{number}") for number in range(11)]))
    assert (step.error, step.records) == (ErrorCode.POLICY_VIOLATION, [])
    assert len(stage.ask(DeleteAclsRequest(filters=[acl_filter(f"t{n}") for n in range(50, 1050)])).records) == 50


LONG_NAME = "x" * 32_000


def test_messages_of_an_answer_are_bounded():
    """Four bytes of a request have a message that quotes the topic's name: together they would fit no frame."""
    stage = ControllerStage()
    kind = ElectLeadersRequest.TopicPartitions
    asked = [kind(topic="short", partitions=[0, 1]), kind(topic=LONG_NAME, partitions=[0] * 3_300)]
    step = stage.ask(ElectLeadersRequest(timeout_ms=1000, topic_partitions=asked))
    short, long = (each.partition_result for each in step.answer.replica_election_results)
    assert [each.error_message for each in short] == ["No such topic as short"] * 2
    assert {each.error_code for each in long} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert 0 < sum(len(each.error_message or "") for each in long) <= TEXTS_MAX
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    parts = [topic.ReassignablePartition(partition_index=0, replicas=None)] * 3_300
    step = stage.ask(AlterPartitionReassignmentsRequest(topics=[topic(name=LONG_NAME, partitions=parts)]))
    results = step.answer.responses[0].partitions
    assert {each.error_code for each in results} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert 0 < sum(len(each.error_message or "") for each in results) <= TEXTS_MAX
