"""Envelopes: who is said to ask, and how the answer goes back."""

from __future__ import annotations

import ipaddress

import pytest
from noted_request import NotedRequest

from kraftcore.core.wire.codec import encode
from kraftcore.metadata.acls import Acl
from kraftcore.node.registry import requester
from kraftcore.plugins.controller.envelope import Refused, unpack
from kraftcore.plugins.controller.registry import APIS
from kraftcore.protocol.data.default_principal_data import DefaultPrincipalData
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import encode_request
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.security.acl import Operation, PatternType, Permission, ResourceType
from kraftcore.security.authorizer import StandardAuthorizer, Verdict
from kraftcore.security.hosts import host_address

TOPIC = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
CREATE = CreateTopicsRequest(topics=[TOPIC], timeout_ms=1000)


def direct(peer, answers=None):
    found = NotedRequest(0, peer)
    if answers is not None:
        found.answers = answers
    return found


def passed_on(request, version, answers, host="10.0.0.1", outer=None):
    principal = b"\0\0" + encode(DefaultPrincipalData(type="User", name="bob", token_authenticated=False), 0)
    envelope = EnvelopeRequest(
        request_data=encode_request(request, version, 3),
        request_principal=principal,
        client_host_address=ipaddress.ip_address(host).packed,
    )
    return unpack(envelope, outer or direct("10.0.0.9:1", answers))


# What java.net.InetAddress.getHostAddress gives for each.
HOSTS = {
    "10.0.0.1": "10.0.0.1",
    "::1": "0:0:0:0:0:0:0:1",
    "2001:db8::1": "2001:db8:0:0:0:0:0:1",
    "2001:0DB8:00a0::": "2001:db8:a0:0:0:0:0:0",
    "::ffff:10.0.0.1": "10.0.0.1",
}


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_are_written_as_java_does(host):
    assert host_address(host) == HOSTS[host]
    request, context = passed_on(CREATE, 7, [], host)
    assert requester(request, context).host == HOSTS[host]
    peer = f"[{host}]:9092" if ":" in host else f"{host}:9092"
    assert direct(peer).asker.host == HOSTS[host]


def test_hosts_that_are_no_addresses_stay():
    assert direct("n1:9092").asker.host == direct("n1").asker.host == "n1"
    assert direct("[not:an:address]:1").asker.host == "not:an:address"


def test_an_entry_of_kafkas_denies_an_ipv6_host():
    authorizer = StandardAuthorizer()
    about = (ResourceType.TOPIC, "t", PatternType.LITERAL, "User:bob")
    authorizer.load(
        [
            Acl(*about, "*", Operation.READ, Permission.ALLOW),
            Acl(*about, "2001:db8:0:0:0:0:0:1", Operation.READ, Permission.DENY),
        ]
    )
    question = (Operation.READ, ResourceType.TOPIC, "t")
    assert authorizer.authorize("User:bob", direct("[2001:db8::1]:9").asker.host, *question) is Verdict.DENIED
    assert authorizer.authorize("User:bob", direct("[2001:db8::2]:9").asker.host, *question) is Verdict.ALLOWED


def test_brokers_may_ask_for_producer_ids_in_an_envelope():
    """Kafka 4.3.1, ApiKeys.ALLOCATE_PRODUCER_IDS is forwardable."""
    asked = AllocateProducerIdsRequest(broker_id=1, broker_epoch=5)
    request, context = passed_on(asked, 0, [])
    assert (request, context.asker.is_forwarded) == (asked, True)


def test_what_stands_behind_a_principal_is_passed_over():
    """Kafka 4.3.1, DefaultKafkaPrincipalBuilder.deserialize."""
    principal = b"\0\0" + encode(DefaultPrincipalData(type="User", name="bob", token_authenticated=False), 0)
    for data in (principal, principal + b"more", principal[:-1]):
        envelope = EnvelopeRequest(
            request_data=encode_request(CREATE, 7, 3), request_principal=data, client_host_address=bytes(4)
        )
        if len(data) < len(principal):
            with pytest.raises(Refused):
                unpack(envelope, direct("10.0.0.9:1"))
        else:
            assert unpack(envelope, direct("10.0.0.9:1"))[1].asker.principal.name == "bob"


ASKED = {
    "in an item": CREATE,
    "for all": AlterPartitionReassignmentsRequest(),
    "in an item of an item": ElectLeadersRequest(
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    ),
}


@pytest.mark.parametrize(("where", "version"), [("in an item", 7), ("for all", 1), ("in an item of an item", 0)])
def test_who_is_not_the_controller_says_so_on_the_envelope(where, version):
    """Kafka's brokers look for the controller anew then; inside, the answer would go to the client."""
    answers = []
    request, context = passed_on(ASKED[where], version, answers)
    refuse = APIS[type(request)].refuse
    context.answer(refuse(request, version, ErrorCode.NOT_CONTROLLER, "moved"))
    context.answer(refuse(request, version, ErrorCode.INVALID_REQUEST, "no"))
    assert [(each.error_code, each.response_data is None) for each in answers] == [
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.NONE, False),
    ]


def test_who_does_not_lead_the_quorum_says_so_on_the_envelope():
    answers = []
    _, context = passed_on(DescribeQuorumRequest(), 2, answers)
    topic = DescribeQuorumResponse.TopicData
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        part = topic.PartitionData(partition_index=0, error_code=code)
        context.answer(DescribeQuorumResponse(topics=[topic(topic_name="x", partitions=[part])]))
    assert [each.error_code for each in answers] == [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]


def test_an_answer_that_cannot_be_written_ends_the_brokers_connection_alone():
    outer = direct("10.0.0.9:1")
    _, context = passed_on(AddRaftVoterRequest(), 1, None, outer=outer)
    for unwritable in (AddRaftVoterResponse(error_message="x" * 40_000), None):
        context.answer(unwritable)
    assert (outer.answers, outer.closed) == ([], 2)
