"""Which leader epoch it is, and who leads it: each message's epoch and leader are compared with those that are known.

Every request and every answer of the consensus names a leader epoch, and most name the leader of that epoch. Both are
compared before a role looks at the message:

* a request of the leader itself, BeginQuorumEpoch or EndQuorumEpoch: ``hear_leader``;
* an answer: ``learn_from_answer``;
* a request that only a leader can serve: ``RaftState.leader_only_error``.

A higher epoch is entered in one place, ``enter``, whoever tells of it: a leader, an answer, a candidate. A message that
contradicts what is known (it names a second leader of one epoch, or this replica as a leader that it never was) is
refused and noted for the operator, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftcore.protocol.election_state import EPOCH_MAX
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftcore.raft import duplicate_ids, partition
from kraftcore.raft.events import Destination, Received
from kraftcore.raft.quorum import Endpoint
from kraftcore.raft.roles import Candidate, Cause, Follower, Prospective, Resigned, Unattached
from kraftcore.raft.state import RaftState
from kraftcore.raft.transitions import become

_REFUSALS = {  # words for an answer's error where its name does not tell an operator what to do
    ErrorCode.NONE: "it is not about our partition",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "{code}: this node belongs to cluster {config.cluster_id}, the other one does "
    "not: correct the addresses, or format the one that is wrong anew, with the other's cluster id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "{code}: another process uses node id {config.key.id}: "
    f"{duplicate_ids.WHAT_TO_DO}",
}

# --- entering an epoch ------------------------------------------------------------------------------------------------


def enter(state: RaftState, epoch: int, leader_id: int | None = None, endpoints: tuple[Endpoint, ...] = ()) -> None:
    """Take part in an epoch that is not below ours, whatever message told of it.

    Args:
        state: of the replica.
        epoch: a higher one is entered here and nowhere else.
        leader_id: who leads that epoch, as far as the message says. A leader with an endpoint is followed, one without
            is remembered.
        endpoints: where the leader listens.
    """
    if leader_id is not None and state.destination(leader_id, endpoints) is not None:
        become(state, follower(state, leader_id, endpoints), Cause.LEADER_FOUND, epoch)
    elif epoch > state.epoch:
        become(state, Unattached(_time_left(state), leader_id), Cause.HIGHER_EPOCH, epoch)
    elif isinstance(state.role, Unattached) and leader_id is not None:
        state.role.leader_id = leader_id


def follower(state: RaftState, leader_id: int, endpoints: tuple[Endpoint, ...]) -> Follower:
    """The role of a replica that begins to follow a leader: its fetch timer begins now."""
    deadline_ms = state.now_ms + state.config.fetch_timeout_ms
    return Follower(leader_id, endpoints, deadline_ms, deadline_ms)


def _time_left(state: RaftState) -> int | None:
    """When the election timer runs out in a higher epoch; None for observers."""
    role = state.role
    # A voter that waits keeps its deadline: a stream of higher epochs must not put its election off for ever.
    if isinstance(role, Candidate | Resigned | Unattached) or (isinstance(role, Prospective) and not role.tally.lost):
        deadline = role.election_deadline_ms
    else:
        deadline = None
    if deadline is None:
        deadline = state.random_election_deadline()
    return deadline if state.is_voter else None


def is_out_of_epochs(state: RaftState) -> bool:
    """Whether there is no higher epoch in which this replica could stand for election; notes it.

    Only a peer that lies about its epoch can raise the epoch so far. Committed records stay and can be read.
    """
    if state.epoch < EPOCH_MAX:
        return False
    state.note(f"no election is possible any more: {EPOCH_MAX} is the last leader epoch there is")
    return True


# --- who leads --------------------------------------------------------------------------------------------------------


def learn_leader(
    state: RaftState, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], *, by_itself: bool = False
) -> bool:
    """Take over the leader that a message names, of an epoch that is not below ours.

    Args:
        state: of the replica.
        epoch: that leader's.
        leader_id: who it is.
        endpoints: where it listens, as far as the message says so.
        by_itself: the message is the leader's own.

    Returns:
        False if the message contradicts what is known.
    """
    if leader_id == state.config.key.id:
        if epoch == state.epoch and state.leader_id == leader_id:
            return True
        state.note_seldom(
            f"refused a message that calls us the leader of epoch {epoch}: we are {state.role.role.value}. Another "
            f"process uses node id {leader_id}, or this node led with a directory that is lost. In the first case "
            f"{duplicate_ids.WHAT_TO_DO}"
        )
        return False
    known = state.leader_id
    if epoch == state.epoch and known is not None and known != leader_id:
        state.note_seldom(
            f"refused a message that calls {leader_id} the leader of epoch {epoch}: it is {known}. Two nodes lead "
            "an epoch only where voters (controller.quorum.voters) differ, or voters came back without their disks"
        )
        return False
    role = state.role
    if isinstance(role, Follower | Prospective) and epoch == state.epoch and role.leader_id is not None:
        _relocate(state, role, role.leader_id, endpoints, by_itself)
        return True
    if not endpoints:
        entry = state.voters.get(leader_id)
        endpoints = entry.endpoints if entry is not None else ()
    enter(state, epoch, leader_id, endpoints)
    return True


def _relocate(
    state: RaftState,
    role: Follower | Prospective,
    leader_id: int,
    endpoints: tuple[Endpoint, ...],
    by_itself: bool,
) -> None:
    """Take over endpoints of the known leader.

    The leader's own message is always believed, another replica's only while the known endpoint does not answer.
    """
    told = state.destination(leader_id, endpoints)
    known = state.destination(leader_id, role.leader_endpoints)
    if told is None or (told == known and len(endpoints) <= len(role.leader_endpoints)):
        return
    if told == known or by_itself or known is None or state.is_backing_off(known):
        role.leader_endpoints = endpoints


# --- requests of the leader itself ------------------------------------------------------------------------------------


def hear_leader(
    state: RaftState,
    received: Received,
    request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
    kind: type[BeginQuorumEpochResponse | EndQuorumEpochResponse],
) -> ErrorCode | None:
    """The checks that BeginQuorumEpoch and EndQuorumEpoch share; a leader that passes them is followed.

    Returns:
        The partition's error for ``reply_to_leader``; None: the request was answered with a top-level error.
    """
    error = partition.top_level_error(state, request.cluster_id, partition.names_our_partition(state, request.topics))
    if error is not ErrorCode.NONE:
        state.reply(received.ticket, kind(error_code=error))
        return None
    told = request.topics[0].partitions[0]
    if told.leader_epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if told.leader_id < 0:
        return ErrorCode.INVALID_REQUEST
    endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in request.leader_endpoints)
    accepted = learn_leader(state, told.leader_epoch, told.leader_id, endpoints, by_itself=True)
    return ErrorCode.NONE if accepted else ErrorCode.INVALID_REQUEST


def reply_to_leader(
    state: RaftState,
    received: Received,
    kind: type[BeginQuorumEpochResponse | EndQuorumEpochResponse],
    error: ErrorCode,
    lease_ms: int = 0,
) -> None:
    """Answer BeginQuorumEpoch, with what this replica promises (``leases``), or EndQuorumEpoch."""
    response = partition.quorum_epoch_response(kind, state, received, error)
    if lease_ms and isinstance(response, BeginQuorumEpochResponse):
        response.lease_ms = lease_ms
    state.reply(received.ticket, response)


# --- answers ----------------------------------------------------------------------------------------------------------


def learn_from_quorum_answer(state: RaftState, response: Any, source: Destination) -> Any:
    """Compare an answer to Vote, BeginQuorumEpoch or EndQuorumEpoch with what is known.

    Returns:
        The answer's entry for our partition; None if the answer was refused, or does not matter any more.
    """
    found = partition.quorum_answer(state, response)
    if found is None:
        refuse_answer(state, source, response)
        return None
    return found[1] if learn_from_answer(state, found[0], response.node_endpoints, source) else None


def learn_from_answer(
    state: RaftState, answer: partition.AnswerSummary, node_endpoints: Sequence[Any], source: Destination
) -> bool:
    """Compare an answer's epoch and leader with ours; True if the answer itself still matters."""
    endpoints: tuple[Endpoint, ...] = ()
    for item in node_endpoints:
        if item.node_id == answer.leader_id:
            endpoints = leader_endpoints(state, item.host, item.port)
    return compare_answer(state, answer, endpoints, source)


def leader_endpoints(state: RaftState, host: str, port: int) -> tuple[Endpoint, ...]:
    """The leader's endpoint that an answer names, for our default listener; none if it cannot be reached."""
    if not host or not 0 < port <= 0xFFFF:  # an int32 on the wire
        return ()
    listeners = state.config.listeners
    return (Endpoint(listeners[0].name if listeners else "", host, port),)


def compare_answer(
    state: RaftState, answer: partition.AnswerSummary, endpoints: tuple[Endpoint, ...], source: Destination
) -> bool:
    """As ``learn_from_answer``, with the leader's endpoints already read from the answer."""
    error = answer.error_code
    if error == ErrorCode.INVALID_VOTER_KEY:
        state.refused(source, f"it is not voter {source.node_id}, or has another directory than that voter")
    if error == ErrorCode.UNKNOWN_LEADER_EPOCH:  # the peer has yet to hear of this epoch
        state.back_off(source)
        return False
    if answer.leader_epoch < state.epoch:
        return False
    behind = answer.leader_epoch > state.epoch
    if answer.leader_id is not None:
        unknown = state.leader_id is None
        if not learn_leader(state, answer.leader_epoch, answer.leader_id, endpoints):
            state.refused(source, f"it calls node {answer.leader_id} the leader of epoch {answer.leader_epoch}")
            state.back_off(source)
            return False
        if unknown and not behind:
            return bool(error == ErrorCode.NONE)
    elif behind:
        enter(state, answer.leader_epoch)
    if error == ErrorCode.NONE:
        return not behind
    expected = (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_VOTER_KEY,
    )
    if not behind and error in expected:
        state.back_off(source)
    return not behind and error not in expected


def refuse_answer(state: RaftState, source: Destination, response: Any, told: Any = None) -> None:
    """Note an error that no rule expects in an answer, and back off from the peer.

    Args:
        state: of the replica.
        source: the peer that answered.
        response: the answer.
        told: the answer's entry for our partition, if there is one.
    """
    code = ErrorCode.of((response if told is None else told).error_code)
    why = _REFUSALS.get(code, "{code}").format(code=code.name, config=state.config)
    if code is ErrorCode.INVALID_REQUEST and told is None:
        why += f": it has no log of topic {state.config.topic} with id {state.config.topic_id}: set topic and "
        why += "topic_id (kraftcore.topic, kraftcore.topic.id) alike on all nodes"
    state.refused(source, why)
    state.note_seldom(f"{type(response).__name__} from {source.host}:{source.port} is refused: {why}")
    state.back_off(source)
