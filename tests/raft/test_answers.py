"""Answers, events and requests that an honest peer and a careful driver never send, or not at that moment."""

from __future__ import annotations

import gc

import pytest
from scenario import Stage, directory
from scenario_node import Ticket

from kraftcore.core.batch import build_batch
from kraftcore.errors import ClosedError, InvariantError, LocalError
from kraftcore.protocol import control
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.raft import control_records, events, roles
from kraftcore.raft import state as raft_state
from kraftcore.raft.control_records import control_batch, kraft_version
from kraftcore.raft.quorum import VoterSet

LISTENER = "CONTROLLER"


def staged(*commands):
    stage = Stage()
    for command in commands or ("add-nodes 3", "campaign 1", "pass 600"):
        stage.run(command)
    stage.lines = []
    return stage


def asked(node, kind):
    """The number of the request of this kind that a node has out."""
    return next(number for number, sent in node.replica.state.in_flight.items() if isinstance(sent.message, kind))


def told(stage, node, event):
    stage.lines = []
    node.handle(event)
    return "\n".join(stage.lines)


def fetched(epoch=1, leader=1, records=b"", high_watermark=3, **fields):
    kind = FetchResponse.FetchableTopicResponse
    state = staged().nodes[1].replica.state
    current = kind.PartitionData.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    data = kind.PartitionData(
        partition_index=0, high_watermark=high_watermark, records=records, current_leader=current, **fields
    )
    return FetchResponse(responses=[kind(topic_id=state.config.topic_id, partitions=[data])])


def test_an_answer_counts_once():
    stage = staged()
    node = stage.nodes[2]
    number = asked(node, FetchRequest)
    node.handle(events.Answered(number, fetched()))
    assert told(stage, node, events.Answered(number, fetched())) == ""
    assert told(stage, node, events.Failed(number, Failure.REFUSED)) == ""


def test_what_is_no_message_of_the_consensus_is_a_mistake_of_the_driver():
    stage = staged()
    node = stage.nodes[2]
    with pytest.raises(InvariantError, match="ApiVersionsRequest is no request of the consensus"):
        node.replica.handle(events.Received(None, ApiVersionsRequest(), 4, LISTENER), stage.now)
    with pytest.raises(InvariantError, match="ApiVersionsRequest is no answer of the consensus"):
        node.replica.handle(events.Answered(asked(node, FetchRequest), ApiVersionsRequest()), stage.now)


def test_records_of_a_later_epoch_are_left_out():
    stage = staged()
    node = stage.nodes[2]
    with staged().nodes[1].log as log:
        batch = bytearray(build_batch([b"x"], timestamp_ms=0))
        log.append_as_leader(batch, 9, 0)
    assert "none is of our epoch" in told(
        stage, node, events.Answered(asked(node, FetchRequest), fetched(records=batch))
    )
    assert node.log.log_end_offset == 3
    stage.run("pass 600")
    assert node.replica.role.value == "follower"


def voters_of_one_id():
    voters = [control.voter(1, directory(number), [("CONTROLLER", "n1", 9093)]) for number in (1, 2)]
    return control_batch([control.kraft_voters(voters)], 0)


def voters_that_are_cut_off():
    key, value = control_records.kraft_voters(VoterSet())
    return control_batch([(key, value[:1])], 0)


@pytest.mark.parametrize("make", [voters_of_one_id, voters_that_are_cut_off])
def test_voters_that_make_no_set_are_not_appended(make):
    """They would be in force from then on, and be read at each start."""
    stage = staged()
    node = stage.nodes[2]
    batch = make()
    with staged().nodes[1].log as log:
        log.append_as_leader(batch, 1, 0)
    event = events.Answered(asked(node, FetchRequest), fetched(records=batch))
    assert "dropped a damaged batch from n1:9093" in told(stage, node, event)
    assert node.log.log_end_offset == 3
    stage.run("pass 600")
    assert node.replica.role.value == "follower"


def test_addresses_that_peers_name_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(raft_state, "DESTINATIONS_MAX", 20)
    state = staged().nodes[2].replica.state

    class Named(events.Destination):
        """Found among all objects."""

    for number in range(200):
        state.now_ms += 10
        state.back_off(Named(None, "h", number), 50)
        assert state.is_backing_off(Named(None, "h", number))
    assert sum(type(each) is Named for each in gc.get_objects()) <= 21
    assert all(state.is_backing_off(Named(None, "h", number)) for number in range(196, 200))


@pytest.mark.parametrize(
    ("message", "note"),
    [
        (FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), "FetchResponse from n1:9093 is refused: INCONS"),
        (FetchResponse(error_code=ErrorCode.INVALID_REQUEST), "it has no log of topic __cluster_metadata with id AAAA"),
        (fetched(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), "FetchResponse from n1:9093 is refused: UNKNOWN_SERVER"),
        (fetched(leader=3), "refused a message that calls 3 the leader of epoch 1: it is 1"),
        (fetched(records=b"damaged" * 20), "dropped a damaged batch from n1:9093"),
    ],
    ids=["top level", "topic", "partition", "contradiction", "damaged"],
)
def test_a_refused_fetch_answer_is_noted_and_asked_for_again_later(message, note):
    stage = staged()
    node = stage.nodes[2]
    assert note in told(stage, node, events.Answered(asked(node, FetchRequest), message))
    role = node.replica.state.role
    assert node.replica.state.is_backing_off(node.replica.state.destination(1, role.leader_endpoints))
    stage.run("pass 100")
    assert asked(node, FetchRequest)


def test_the_log_is_never_cut_below_the_high_watermark():
    stage = staged()
    node = stage.nodes[2]
    kind = FetchResponse.FetchableTopicResponse.PartitionData.EpochEndOffset
    message = fetched(diverging_epoch=kind(epoch=0, end_offset=1))
    lines = told(stage, node, events.Answered(asked(node, FetchRequest), message))
    assert "alarm: refused to cut the log at" in lines
    assert "lacks some of it" in lines
    assert node.log.log_end_offset == 3


def test_a_voter_that_answers_unsupported_version_is_not_asked_for_pre_votes():
    stage = staged("add-nodes 3", "campaign 1")
    node = stage.nodes[1]
    number = asked(node, VoteRequest)
    node.handle(events.Answered(number, VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)))
    assert node.replica.role.value == "candidate"
    assert node.replica.epoch == 1


def test_a_vote_for_something_else_is_noted():
    stage = staged("add-nodes 3", "campaign 1")
    node = stage.nodes[1]
    assert "VoteResponse from" in told(stage, node, events.Answered(asked(node, VoteRequest), VoteResponse()))
    assert node.replica.role.value == "prospective"


@pytest.mark.parametrize("kind", [BeginQuorumEpochRequest, EndQuorumEpochRequest])
def test_quorum_requests_name_our_partition(kind):
    stage = staged()
    assert "error_code=42" in told(
        stage, stage.nodes[2], events.Received(Ticket(stage.nodes[2], 0, 0, 1, 1), kind(cluster_id="c"), 1, LISTENER)
    )


def test_an_answer_to_end_quorum_epoch_may_come_when_it_no_longer_matters():
    stage = staged()
    stage.run("resign 1")
    node = stage.nodes[1]
    number = asked(node, EndQuorumEpochRequest)
    stage.run("timeout 1")
    while node.replica.role.value == "resigned":
        stage.run("timeout 1")
    kind = EndQuorumEpochResponse.TopicData
    data = kind.PartitionData(partition_index=0, leader_id=-1, leader_epoch=node.replica.epoch)
    message = EndQuorumEpochResponse(topics=[kind(topic_name="__cluster_metadata", partitions=[data])])
    assert told(stage, node, events.Answered(number, message)) == ""


def test_a_leader_that_shuts_down_leaves_once_every_voter_has_heard_of_it_or_is_dead():
    stage = staged()
    node = stage.nodes[1]
    assert not node.replica.is_leaving
    node.handle(events.Shutdown())
    out = [
        number for number, sent in node.replica.state.in_flight.items() if type(sent.message) is EndQuorumEpochRequest
    ]
    assert len(out) == 2
    assert node.replica.is_leaving
    kind = EndQuorumEpochResponse.TopicData
    data = kind.PartitionData(partition_index=0, leader_id=-1, leader_epoch=node.replica.epoch)
    message = EndQuorumEpochResponse(topics=[kind(topic_name="__cluster_metadata", partitions=[data])])
    node.handle(events.Answered(out[0], message))
    assert node.replica.is_leaving
    node.handle(events.Failed(out[1], Failure.REFUSED))
    assert not node.replica.is_leaving


def update_asked():
    stage = staged("add-nodes 3", "campaign 1", "pass 600", "crash 2", "move 2 9999", "restart 2", "pass 1500")
    return stage, stage.nodes[2], update_of(stage, stage.nodes[2])


def update_of(stage, node):
    """The number of the UpdateRaftVoter that a node sends next; it does not arrive."""
    for _ in range(200):
        for number, sent in node.replica.state.in_flight.items():
            if isinstance(sent.message, UpdateRaftVoterRequest):
                stage.queue = [item for item in stage.queue if item[0] != node.number or item[3] != number]
                return number
        stage.run("tick 50" if not stage.queue else "deliver n=1")
    raise AssertionError("no UpdateRaftVoter was sent")


def test_update_voter_answers_are_compared_with_what_is_known():
    stage, node, number = update_asked()
    leader = UpdateRaftVoterResponse.CurrentLeader(leader_id=3, leader_epoch=1, host="n3", port=9093)
    lines = told(stage, node, events.Answered(number, UpdateRaftVoterResponse(current_leader=leader)))
    assert "refused a message that calls 3 the leader of epoch 1" in lines
    assert not node.replica.state.role.leader_updated


def test_update_voter_answers_may_leave_the_leader_out():
    stage, node, number = update_asked()
    told(stage, node, events.Answered(number, UpdateRaftVoterResponse()))
    assert node.replica.state.role.leader_updated


def test_endpoints_are_told_for_the_listener_that_was_asked():
    stage = staged()
    node = stage.nodes[1]
    kind = UpdateRaftVoterRequest
    message = kind(cluster_id="c", current_leader_epoch=1, voter_id=2, voter_directory_id=directory(2))
    effects = node.replica.handle(events.Received(None, message, 0, "OTHER"), stage.now)
    leader = effects.replies[0].message.current_leader
    assert (leader.leader_id, leader.host, leader.port) == (1, "", 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_quorum_leaves_out_what_its_version_does_not_have(version):
    stage = staged()
    kind = DescribeQuorumRequest.TopicData
    data = kind(topic_name="__cluster_metadata", partitions=[kind.PartitionData(partition_index=0)])
    request = DescribeQuorumRequest(topics=[data])
    effects = stage.nodes[1].replica.handle(events.Received(None, request, version, LISTENER), stage.now)
    response = effects.replies[0].message
    assert [node.node_id for node in response.nodes] == ([1, 2, 3] if version >= 2 else [])
    assert response.topics[0].partitions[0].leader_id == 1


def test_a_proposal_the_log_cannot_take_is_refused():
    stage = staged()
    node = stage.nodes[1]
    for batch in (bytearray(b"x" * 100), bytearray(control_batch([kraft_version(1)], 0)), bytearray(10**8)):
        assert "p INVALID_RECORD" in told(stage, node, events.Propose(node.outcome_ticket("p"), batch))
    assert node.log.log_end_offset == 3
    node.log.close()
    with pytest.raises(ClosedError):
        node.handle(events.Propose(node.outcome_ticket("p"), build_batch([b"x"], timestamp_ms=0)))


def test_voters_are_never_forgotten(monkeypatch):
    monkeypatch.setattr(roles, "REPLICAS_MAX", 0)
    stage = staged()
    assert {progress.key.id for progress in stage.nodes[1].replica.progress} == {2, 3}


def test_an_epoch_in_the_log_is_known_though_quorum_state_lost_it():
    stage = staged("add-nodes 3 log2=1,4", "crash 2")
    node = stage.nodes[2]
    node.state = ElectionState(3, leader_id=1, voted_key=ReplicaKey(1, directory(1)), kraft_version=1)
    stage.run("restart 2")
    assert (node.replica.epoch, node.replica.leader_id) == (4, None)
    assert node.state == ElectionState(4, kraft_version=1)


def test_an_observer_whose_leader_died_waits_for_the_next_one():
    stage = staged("add-nodes 3 observers=1", "campaign 1", "pass 600")
    node = stage.nodes[4]
    node.handle(events.Failed(asked(node, FetchRequest), Failure.REFUSED))
    role = node.replica.state.role
    assert role.leader_gone
    stage.run("vote 4 from=2 epoch=1 last=3@1 pre=1")
    assert "vote_granted=True" in "\n".join(stage.lines)


def test_a_late_answer_to_api_versions_adds_nobody():
    stage = staged("add-nodes 3 observers=1", "campaign 1", "pass 600", "add-voter 1 4")
    node = stage.nodes[1]
    number = asked(node, ApiVersionsRequest)
    stage.run("begin 1 leader=2 epoch=5")
    assert told(stage, node, events.Answered(number, ApiVersionsResponse())) == ""
    assert sorted(node.replica.voters.ids) == [1, 2, 3]


# --- refusals that somebody has to know of ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.VOTER_NOT_FOUND, ErrorCode.INVALID_REQUEST, ErrorCode.INCONSISTENT_CLUSTER_ID]
)
def test_a_refused_update_is_noted_once_a_minute(code):
    stage, node, number = update_asked()
    lines = told(stage, node, events.Answered(number, UpdateRaftVoterResponse(error_code=code)))
    assert f"note: UpdateRaftVoter to n1:9093 is refused: {code.name}" in lines
    assert not node.replica.state.role.leader_updated
    for _ in range(2):
        event = events.Answered(update_of(stage, node), UpdateRaftVoterResponse(error_code=code))
        assert "note" not in told(stage, node, event)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_an_update_that_comes_too_early_is_nothing_to_tell(code):
    stage, node, number = update_asked()
    assert "note" not in told(stage, node, events.Answered(number, UpdateRaftVoterResponse(error_code=code)))


# --- timers of no length ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["election_timeout_ms", "fetch_timeout_ms", "request_timeout_ms"])
def test_a_timer_of_no_length_is_refused(name):
    with pytest.raises(LocalError, match=f"{name} is 0, it must be at least 1"):
        events.RaftConfig("c", ReplicaKey(1), **{name: 0})


# --- a leader that listens elsewhere than its followers think ---------------------------------------------------------


def leader_at(node):
    """Where a node thinks that its leader listens."""
    state = node.replica.state
    return state.destination(1, state.leader_endpoints)


def begin(leader_port, epoch=1):
    kind = BeginQuorumEpochRequest
    data = kind.TopicData.PartitionData(partition_index=0, leader_id=1, leader_epoch=epoch)
    return kind(
        cluster_id="c",
        topics=[kind.TopicData(topic_name="__cluster_metadata", partitions=[data])],
        leader_endpoints=[kind.LeaderEndpoint(name=LISTENER, host="n1", port=leader_port)],
    )


def moved(port):
    """Another replica's answer to a Fetch: 1 leads, and listens there."""
    message = fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1)
    message.node_endpoints = [FetchResponse.NodeEndpoint(node_id=1, host="n1", port=port)]
    return message


def test_a_leader_that_presents_itself_elsewhere_is_asked_there():
    stage = staged()
    node = stage.nodes[2]
    told(stage, node, events.Received(Ticket(node, 0, 0, 0, 1), begin(9999), 1, LISTENER))
    assert leader_at(node).port == 9999
    assert node.replica.role.value == "follower"
    assert {sent.destination.port for sent in node.replica.state.in_flight.values()} == {9093, 9999}


def test_a_leader_that_cannot_be_reached_is_looked_for_where_others_say():
    stage = staged("add-nodes 2 observers=1", "campaign 1", "pass 600")
    node = stage.nodes[3]
    node.handle(events.Failed(asked(node, FetchRequest), Failure.REFUSED))
    told(stage, node, events.Answered(asked(node, FetchRequest), moved(9999)))
    assert leader_at(node).port == 9999
    assert {sent.destination.port for sent in node.replica.state.in_flight.values()} == {9999}


def test_what_others_say_of_a_leader_that_answers_does_not_count():
    stage = staged("add-nodes 2 observers=1", "campaign 1", "pass 600")
    node = stage.nodes[3]
    told(stage, node, events.Answered(asked(node, FetchRequest), moved(9999)))
    assert leader_at(node).port == 9093


def test_a_prospective_goes_back_to_a_leader_that_moved():
    stage = staged("add-nodes 3", "campaign 1", "pass 600", "campaign 2")
    node = stage.nodes[2]
    assert node.replica.role.value == "prospective"
    told(stage, node, events.Received(Ticket(node, 0, 0, 0, 1), begin(9999), 1, LISTENER))
    assert leader_at(node).port == 9999
    stage.run("timeout 2")
    assert node.replica.role.value == "follower"
    assert leader_at(node).port == 9999
