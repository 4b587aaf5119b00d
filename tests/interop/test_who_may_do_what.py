"""Without permission nobody gets anything of a controller, whatever they ask: Kafka answers so, and so do we."""

from __future__ import annotations

import re

import pytest
from kafka_controller_stage import Wire
from kafka_lab import KafkaLab, wait_for

from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.node.registry import Access
from kraftcore.node.serving import consensus_handlers
from kraftcore.plugins.controller import Controller
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.controller_registration import ControllerRegistrationRequest
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.protocol.registry import api_of

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OTHER = Uuid(b"another voter id")


TOPIC, GROUP, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 32, 4, 8, 16  # types of configuration resources


def raft_requests():
    """Each request that the consensus answers, with versions."""
    by_id = FetchRequest.FetchTopic(
        topic_id=METADATA_TOPIC_ID, partitions=[FetchRequest.FetchTopic.FetchPartition(partition_max_bytes=1 << 20)]
    )
    by_name = by_id.replace(topic_id=Uuid(), topic="__cluster_metadata")
    return [
        (AddRaftVoterRequest(voter_id=9, voter_directory_id=OTHER), 1),
        (BeginQuorumEpochRequest(voter_id=1), 1),
        (DescribeQuorumRequest(), 1),
        (DescribeQuorumRequest(), 2),
        (EndQuorumEpochRequest(), 1),
        (FetchRequest(topics=[by_name]), 12),
        (FetchRequest(topics=[by_id]), 13),
        (FetchRequest(topics=[by_id]), 17),
        (FetchSnapshotRequest(), 1),
        (RemoveRaftVoterRequest(voter_id=9, voter_directory_id=OTHER), 0),
        (UpdateRaftVoterRequest(voter_id=9, voter_directory_id=OTHER), 0),
        (VoteRequest(voter_id=1), 2),
    ]


def cluster_requests():
    """Each request that is about the cluster as a whole: one answer for all of it."""
    elect = ElectLeadersRequest(
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])], timeout_ms=1000
    )
    entry = AlterClientQuotasRequest.EntryData
    quota = entry(
        entity=[entry.EntityData(entity_type="user", entity_name="u")], ops=[entry.OpData(key="producer_byte_rate")]
    )
    acl = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    matching = DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=2, operation=1, permission_type=1)
    scram = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="a", mechanism=1)
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic(
        name="t",
        partitions=[AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition(partition_index=0)],
    )
    return [
        AllocateProducerIdsRequest(broker_id=5),
        AlterClientQuotasRequest(entries=[quota]),
        AlterPartitionRequest(broker_id=5),
        AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[moved]),
        AlterUserScramCredentialsRequest(deletions=[scram]),
        AssignReplicasToDirsRequest(broker_id=5),
        BrokerHeartbeatRequest(broker_id=5),
        BrokerRegistrationRequest(broker_id=5),
        ControllerRegistrationRequest(controller_id=9),
        CreateAclsRequest(creations=[acl]),
        DeleteAclsRequest(filters=[matching]),
        DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
        DescribeClusterRequest(endpoint_type=2),
        elect,
        elect.replace(topic_partitions=None),
        EnvelopeRequest(request_data=b"what is in it is not looked at", client_host_address=b"\1\2\3\4"),
        ListPartitionReassignmentsRequest(timeout_ms=1000),
        UnregisterBrokerRequest(broker_id=5),
        UpdateFeaturesRequest(timeout_ms=1000),
    ]


def resource_requests():
    """Each request that is about things by name: an answer for each of them, which tells nothing of it."""
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)
    by_name, by_id = (
        DeleteTopicsRequest.DeleteTopicState(name="t"),
        DeleteTopicsRequest.DeleteTopicState(topic_id=OTHER),
    )
    kinds = (TOPIC, GROUP, BROKER, BROKER_LOGGER, CLIENT_METRICS)
    resources = [(kind, "1" if kind in (BROKER, BROKER_LOGGER) else "x") for kind in kinds]
    altered, incremental, described = (
        AlterConfigsRequest.AlterConfigsResource,
        IncrementalAlterConfigsRequest.AlterConfigsResource,
        DescribeConfigsRequest.DescribeConfigsResource,
    )
    return [
        CreateTopicsRequest(topics=[topic], timeout_ms=1000),
        CreatePartitionsRequest(topics=[more], timeout_ms=1000),
        DeleteTopicsRequest(topics=[by_name], timeout_ms=1000),
        DeleteTopicsRequest(topics=[by_id], timeout_ms=1000),
        *(
            AlterConfigsRequest(resources=[altered(resource_type=kind, resource_name=name)])
            for kind, name in resources
            if kind != BROKER_LOGGER
        ),
        *(
            IncrementalAlterConfigsRequest(resources=[incremental(resource_type=kind, resource_name=name)])
            for kind, name in resources
        ),
        *(
            DescribeConfigsRequest(resources=[described(resource_type=kind, resource_name=name)])
            for kind, name in resources
        ),
        CreateDelegationTokenRequest(),
        ExpireDelegationTokenRequest(hmac=b"x"),
        RenewDelegationTokenRequest(hmac=b"x"),
    ]


def requests():
    """All of them, with versions."""
    newest = [*cluster_requests(), *resource_requests()]
    return [*raft_requests(), *((request, api_of(type(request)).max_version) for request in newest)]


WITHOUT_PERMISSION = {ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest}
"""What everybody may send."""
NOT_SERVED = {DescribeDelegationTokenRequest, DescribeUserScramCredentialsRequest}
"""What controllers offer, and answer with an error to everybody."""
OURS = {ProduceRequest, ListOffsetsRequest}
"""What Kafka's controllers do not answer; tests/node/test_forwarding.py is about them."""


@pytest.fixture(scope="module", params=["kafka", "kraftcore"])
def port(request, kafka, tmp_path_factory):
    with KafkaLab(kafka, tmp_path_factory.mktemp("lab")) as lab:
        make = lab.controller if request.param == "kafka" else lab.kraftcore
        properties = {"authorizer_class_name": AUTHORIZER, "super_users": "User:operator"}
        node = make(1, **properties)
        node.format("--standalone").start().wait_listening()
        yield node.port


def ready(port):
    """A connection to a controller whose entries are loaded: until then it answers UNKNOWN_SERVER_ERROR."""
    wire = Wire(port)

    def is_ready():
        return wire.call(DescribeQuorumRequest(), 2).error_code != ErrorCode.UNKNOWN_SERVER_ERROR

    wait_for("the authorizer to be ready", is_ready)
    return wire


EXPECTED = {}


@pytest.mark.parametrize("number", range(len(requests())))
def test_refused(port, number):
    request, version = requests()[number]
    wire = ready(port)
    try:
        answer = wire.call(request, version)
    finally:
        wire.close()
    # Kafka's words begin with all that Java has to tell of the request.
    told = re.sub(r"_message='[^']* needs (\w+) permission", r"_message='... needs \1 permission", repr(answer))
    if number < len(raft_requests()):
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, answer
    assert re.search(r"error_code=[1-9]", told)
    assert EXPECTED.setdefault(number, told) == told  # Kafka's comes first


def test_no_request_is_left_out(port):
    """What ApiVersions names is in the list above: nothing is answered that nobody asked the authorizer about."""
    wire = Wire(port)
    try:
        offered = {each.api_key for each in wire.call(ApiVersionsRequest(), 0).api_keys}
    finally:
        wire.close()
    asked = {api_of(type(request)).key for request, _ in requests()}
    free = {api_of(kind).key for kind in (*WITHOUT_PERMISSION, *NOT_SERVED, *OURS)}
    assert offered - free == asked


def test_what_each_handler_needs():
    """The registry says the same to who reads it: these are Kafka 4.3.1's ControllerApis, and our two."""
    found = {handler.kind: handler.access for handler in (*Controller({}).handlers, *consensus_handlers())}
    clusterwide = {kind for kind, access in found.items() if access is not None}
    assert clusterwide == {type(request) for request in cluster_requests()} | {
        type(each) for each, _ in raft_requests()
    }
    by_resource = {type(request) for request in resource_requests()}
    assert set(found) - clusterwide == (by_resource | NOT_SERVED | WITHOUT_PERMISSION) - {ApiVersionsRequest}
    operations = {
        operation: {kind.__name__.removesuffix("Request") for kind in clusterwide if found[kind] == Access(operation)}
        for operation in ("ALTER", "ALTER_CONFIGS", "CLUSTER_ACTION", "DESCRIBE")
    }
    assert operations == {
        "ALTER": {
            "AddRaftVoter",
            "AlterPartitionReassignments",
            "AlterUserScramCredentials",
            "CreateAcls",
            "DeleteAcls",
            "DescribeCluster",
            "ElectLeaders",
            "RemoveRaftVoter",
            "UnregisterBroker",
            "UpdateFeatures",
        },
        "ALTER_CONFIGS": {"AlterClientQuotas"},
        "CLUSTER_ACTION": {
            "AllocateProducerIds",
            "AlterPartition",
            "AssignReplicasToDirs",
            "BeginQuorumEpoch",
            "BrokerHeartbeat",
            "BrokerRegistration",
            "ControllerRegistration",
            "EndQuorumEpoch",
            "Envelope",
            "Fetch",
            "FetchSnapshot",
            "UpdateRaftVoter",
            "Vote",
        },
        "DESCRIBE": {"DescribeAcls", "DescribeQuorum", "ListPartitionReassignments"},
    }
