"""Without permission nobody speaks raft, changes voters or describes the quorum: Kafka answers so, and so do we."""

from __future__ import annotations

import pytest
from kafka_controller_stage import Wire
from kafka_lab import KafkaLab, wait_for

from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from kraftcore.protocol.messages.vote import VoteRequest

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OTHER = Uuid(b"another voter id")


def requests():
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
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, answer
    told = repr(answer)
    assert EXPECTED.setdefault(number, told) == told  # Kafka's comes first
