"""Changing the voter set: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, kraft.version, auto-join.

Which replicas vote is itself replicated: a KRaftVoters record names the voter set, and it is in force on every replica
that has the record in its log, committed or not; truncation undoes it.

One change is made at a time, and each voter set differs from the one before by one voter, so that every majority of one
set shares a voter with every majority of the other. A change waits for the first commit of the leader's own epoch:
otherwise two leaders of different epochs could each hold an uncommitted change of the same set (the single-server bug
of 2015), and their majorities need not overlap.

A leader that removes itself goes on leading, without counting itself, until its removal is committed; then it resigns
(``succession.resign_if_removed``).

Sources: KIP-853 "AddVoter", "RemoveVoter", "UpdateVoter", "Controller auto joining"; texts and order of refusals as in
Kafka 4.3.1. Unlike Kafka, AddRaftVoter's TimeoutMs is honoured.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftcore.core.uuid import ZERO_UUID
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import ClosedError, LocalError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftcore.raft import control_records, epochs, partition, probation, replication, succession
from kraftcore.raft.events import Received, Upgrade
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.raft.roles import Follower, Leader, VoterChange
from kraftcore.raft.state import InFlight, RaftState

# A voter to be added must have fetched within this time to count as caught up. Source: Kafka 4.3.1 LeaderState.
CAUGHT_UP_WITHIN_MS = 3_600_000
# A voter's listeners stand in every later voter set, so what a request may name is bounded. The bounds are ours.
LISTENERS_MAX = 64
NAME_MAX = 255  # letters of a listener's name, and of its host: longer than any of the domain name system
KRAFT_VERSION = "kraft.version"
# Answers to UpdateRaftVoter that are not noted: the entry was taken, is not needed, or is sent again.
_UPDATE_EXPECTED = (
    ErrorCode.NONE,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.BROKER_NOT_AVAILABLE,
)


class VoterChangeRefusal(Exception):
    """Raised where a request to change voters is refused.

    Args:
        error: of the answer.
        message: of the answer; None: the error's own text.
    """

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self._message = message

    def answer(self, kind: str) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
        """The answer to AddRaftVoter (``kind`` is ``add``) or RemoveRaftVoter."""
        return partition.voter_change_response(kind, self.error, self._message)


# --- requests to the leader -------------------------------------------------------------------------------------------


def on_add(state: RaftState, received: Received, request: AddRaftVoterRequest) -> None:
    """Take AddRaftVoter: check it, and ask the new voter which versions it supports."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in request.listeners)
    try:
        role = _leader(state, request.cluster_id)
        _need_key(key, "Add")
        _check_listeners(endpoints)
        listener = state.config.listeners[0].name
        to = state.destination(key.id, endpoints)
        if to is None:
            named = ", ".join(str(endpoint) for endpoint in endpoints)
            raise VoterChangeRefusal(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint ({named}) for the default listener {listener}",
            )
        _need_quiet(state, role, "adding")
        if key.id in state.voters.ids:
            raise VoterChangeRefusal(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {key} is already part of the set of voters {state.voters}.",
            )
        if not state.is_ready(to):
            raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, f"New voter {key} is not ready to receive requests")
    except VoterChangeRefusal as refusal:
        state.reply(received.ticket, refusal.answer("add"))
        return
    timeout = request.timeout_ms if request.timeout_ms > 0 else state.config.request_timeout_ms
    ack = request.ack_when_committed if received.version >= 1 else True
    role.change = VoterChange("add", received.ticket, key, state.now_ms + timeout, endpoints, ack)
    role.change.request_id = state.send(to, ApiVersionsRequest())


def on_remove(state: RaftState, received: Received, request: RemoveRaftVoterRequest) -> None:
    """Take RemoveRaftVoter: check it, and append the smaller voter set; it is answered when that is committed."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    try:
        role = _leader(state, request.cluster_id)
        _need_key(key, "Remove")
        _need_quiet(state, role, "removing")
        entry = state.voters.get(key.id)
        if entry is None or entry.key != key or len(state.voters) == 1:
            raise VoterChangeRefusal(
                ErrorCode.VOTER_NOT_FOUND, f"Cannot remove voter {key} from the set of voters {state.voters}"
            )
        left = state.voters.without(key)
        _need_majority(state, role, left, key)
        offset = _append_voters(state, role, left)
    except VoterChangeRefusal as refusal:
        state.reply(received.ticket, refusal.answer("remove"))
        return
    deadline = state.now_ms + state.config.request_timeout_ms
    role.change = VoterChange("remove", received.ticket, key, deadline)
    role.change.offset = offset


def on_update(state: RaftState, received: Received, request: UpdateRaftVoterRequest) -> None:
    """Take a voter's endpoints and versions from UpdateRaftVoter; it is answered without waiting for the commit."""
    if not partition.same_cluster(state, request.cluster_id):
        state.reply(received.ticket, UpdateRaftVoterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    error = state.leader_only_error(request.current_leader_epoch)
    role = state.role
    if error is ErrorCode.NONE and isinstance(role, Leader):
        try:
            _update(state, role, request)
        except VoterChangeRefusal as refusal:
            error = refusal.error
    state.reply(received.ticket, partition.update_voter_response(state, received, error))


def _update(state: RaftState, role: Leader, request: UpdateRaftVoterRequest) -> None:
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    _need_key(key, "Update")
    endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in request.listeners)
    supported = VersionRange(
        request.kraft_version_feature.min_supported_version, request.kraft_version_feature.max_supported_version
    )
    if state.destination(key.id, endpoints) is None or supported.min < 0 or supported.max < supported.min:
        raise VoterChangeRefusal(ErrorCode.INVALID_REQUEST)
    _check_listeners(endpoints)
    if role.change is not None or role.watermark.value is None or state.has_uncommitted_voters(role):
        raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT)
    if state.version not in supported:
        raise VoterChangeRefusal(ErrorCode.INVALID_REQUEST)
    entry = state.voters.get(key.id)
    # Only the leader itself changes its own entry, which at kraft.version 0 would match any directory.
    if entry is None or not entry.key.matches(key) or (key.id == state.config.key.id and key != state.config.key):
        raise VoterChangeRefusal(ErrorCode.VOTER_NOT_FOUND)
    voter = Voter(key, endpoints, supported)
    succession.heard_from(state, role, key.id)
    if state.version >= 1:
        # The record is appended even if nothing changed, as in Kafka 4.3.1.
        _append_voters(state, role, state.voters.with_updated(voter))
    else:  # the last directory heard of counts, as in Kafka 4.3.1 (updateVoterIgnoringDirectoryId)
        known = role.updated_voters or state.voters_with_own_entry()
        role.updated_voters = known.with_updated(voter, any_directory=True)


# --- checks that these requests share ---------------------------------------------------------------------------------


def _leader(state: RaftState, cluster_id: str | None) -> Leader:
    if not partition.same_cluster(state, cluster_id):
        raise VoterChangeRefusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{state.config.cluster_id}"',
        )
    if state.shutting_down:
        raise VoterChangeRefusal(ErrorCode.BROKER_NOT_AVAILABLE, "")
    if not isinstance(state.role, Leader):
        raise VoterChangeRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    return state.role


def _need_key(key: ReplicaKey, verb: str) -> None:
    if key.id < 0 or key.directory_id == ZERO_UUID:
        raise VoterChangeRefusal(ErrorCode.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter")


def _need_quiet(state: RaftState, role: Leader, doing: str) -> None:
    waiting = "Request timed out waiting for"
    if role.change is not None:
        text = f"{waiting} leader to handle previous voter change request"
        raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, text)
    value = role.watermark.value
    if value is None:
        text = f"{waiting} leader to establish HWM and fence previous voter changes"
        raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, text)
    if state.version < 1:
        text = f"Cluster doesn't support {doing} voter because the {KRAFT_VERSION} feature is {state.version}"
        raise VoterChangeRefusal(ErrorCode.UNSUPPORTED_VERSION, text)
    if state.has_uncommitted_voters(role):
        offset = state.voter_sets.latest_offset
        text = f"{waiting} voters to commit the latest voter change at {offset} with HWM {value}"
        raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, text)


def _need_majority(state: RaftState, role: Leader, left: VoterSet, key: ReplicaKey) -> None:
    """Refuse a removal that would leave a voter set without a majority that fetches.

    The new set is in force from its record on. Without a majority it could neither commit that record nor elect a
    leader.
    """
    since = state.now_ms - state.config.fetch_timeout_ms * 3 // 2
    here = [
        voter
        for voter in left.keys
        if voter == state.config.key or ((seen := role.replicas.get(voter)) and seen.last_fetch_ms >= since)
    ]
    if len(here) < left.majority:
        text = (
            f"Cannot remove voter {key} now: of the voters {sorted(left.ids)} that would be left, "
            f"{sorted(each.id for each in here)} have fetched in the last {state.now_ms - since} ms, and "
            f"{left.majority} are needed to commit it. Remove voters that are down first"
        )
        raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, text)


# --- a change that is under way ---------------------------------------------------------------------------------------


def on_api_versions(state: RaftState, sent: InFlight, response: ApiVersionsResponse) -> None:
    """Append the larger voter set, now that the new voter has told which versions it supports."""
    role, change = _adding(state, sent.request_id)
    if role is None or change is None:
        return
    try:
        if response.error_code != ErrorCode.NONE:
            name = ErrorCode.of(response.error_code).name
            text = f"Aborted add voter operation for since {partition.API_VERSIONS_NAME} returned an error {name}"
            raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, text)
        feature = next((item for item in response.supported_features if item.name == KRAFT_VERSION), None)
        supported = VersionRange(feature.min_version, feature.max_version) if feature else VersionRange(0, 0)
        if state.version not in supported:
            text = (
                f"Aborted add voter operation for {change.key} since the {KRAFT_VERSION} range "
                f"(min: {supported.min}, max: {supported.max} doesn't support the finalized version {state.version}"
            )
            raise VoterChangeRefusal(ErrorCode.INVALID_REQUEST, text)
        if not _caught_up(state, role, change.key):
            text = f"Aborted add voter operation for {change.key} since it is lagging behind"
            raise VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, text)
        voter = Voter(change.key, change.endpoints, supported)
        change.offset = _append_voters(state, role, state.voters.with_voter(voter))
    except VoterChangeRefusal as refusal:
        _end_change(state, role, refusal)
        return
    change.request_id = None
    if not change.ack_when_committed:
        state.reply(change.ticket, partition.voter_change_response(change.kind))
        change.ticket = None


def on_api_versions_failed(state: RaftState, sent: InFlight, failure: Failure) -> None:
    """End the change because the new voter cannot be asked."""
    role, change = _adding(state, sent.request_id)
    if role is not None and change is not None:
        name = "UNSUPPORTED_VERSION" if failure is Failure.UNSUPPORTED_VERSION else "BROKER_NOT_AVAILABLE"
        text = f"Aborted add voter operation for since {partition.API_VERSIONS_NAME} returned an error {name}"
        _end_change(state, role, VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT, text))


def _adding(state: RaftState, request_id: int) -> tuple[Leader | None, VoterChange | None]:
    role = state.role
    if isinstance(role, Leader) and role.change is not None and role.change.request_id == request_id:
        return role, role.change
    return None, None


def _caught_up(state: RaftState, role: Leader, key: ReplicaKey) -> bool:
    progress = role.replicas.get(key)
    return (
        progress is not None
        and progress.last_caught_up_ms >= 0
        and progress.last_fetch_ms >= state.now_ms - CAUGHT_UP_WITHIN_MS
    )


def _append_voters(state: RaftState, role: Leader, voters: VoterSet) -> int:
    return _append_control(state, role, [control_records.kraft_voters(voters)])


def _append_control(state: RaftState, role: Leader, entries: list[control_records.ControlEntry]) -> int:
    try:
        return replication.append_control(state, role, entries)
    except ClosedError:
        raise
    except LocalError as error:  # the entries do not fit a batch; nothing was appended
        raise VoterChangeRefusal(ErrorCode.INVALID_REQUEST, "The voters do not fit one batch") from error


def committed(state: RaftState, role: Leader) -> None:
    """Answer the requests whose records the new high watermark commits."""
    high_watermark = role.watermark.value or 0
    change = role.change
    if change is not None and change.offset is not None and change.offset < high_watermark:
        _end_change(state, role, None)
    if role.upgrade is not None and role.upgrade[0] < high_watermark:
        offset, tickets = role.upgrade
        role.upgrade = None
        for ticket in tickets:
            state.finish(ticket, ErrorCode.NONE, offset)


def expire(state: RaftState, role: Leader) -> int | None:
    """End a change that took too long, though its record may still be committed; returns its deadline, ms."""
    if role.change is None:
        return None
    if role.change.deadline_ms <= state.now_ms:
        _end_change(state, role, VoterChangeRefusal(ErrorCode.REQUEST_TIMED_OUT))
        return None
    return role.change.deadline_ms


def _end_change(state: RaftState, role: Leader, refusal: VoterChangeRefusal | None) -> None:
    change = role.change
    role.change = None
    if change is None or change.ticket is None:
        return
    answer = refusal.answer(change.kind) if refusal else partition.voter_change_response(change.kind)
    state.reply(change.ticket, answer)


# --- kraft.version ----------------------------------------------------------------------------------------------------


def upgrade(state: RaftState, event: Upgrade) -> None:
    """Raise kraft.version from 0 to 1 in a running quorum.

    The caller hears when the record is committed, whichever leader wrote it. Every voter of the static set must
    have told this leader its directory, endpoints and versions before.
    """
    role = state.role
    if not isinstance(role, Leader):
        state.finish(event.ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return
    if event.level == state.version:
        _upgraded(state, role, event)
        return
    known = role.updated_voters or state.voters_with_own_entry()
    why = _why_no_upgrade(state, role, event.level, known)
    if why:
        state.finish(event.ticket, ErrorCode.INVALID_UPDATE_VERSION, message=why)
    elif event.validate_only:
        state.finish(event.ticket, ErrorCode.NONE)
    else:
        entries = [control_records.kraft_version(event.level), control_records.kraft_voters(known)]
        try:
            role.upgrade = (_append_control(state, role, entries) + 1, [event.ticket])
        except VoterChangeRefusal as refusal:
            state.finish(event.ticket, ErrorCode.INVALID_UPDATE_VERSION, message=str(refusal))


def _upgraded(state: RaftState, role: Leader, event: Upgrade) -> None:
    """Take a request for the level in force: answer when that level's record, whoever wrote it, is committed."""
    written_at = state.versions.latest_offset
    if written_at is None or written_at < (state.high_watermark or 0) or event.validate_only:
        state.finish(event.ticket, ErrorCode.NONE)
    elif role.upgrade is None:
        role.upgrade = (written_at, [event.ticket])
    else:
        role.upgrade[1].append(event.ticket)


def _why_no_upgrade(state: RaftState, role: Leader, level: int, known: VoterSet) -> str:
    old, new = (f"KRAFT_VERSION_{version}" for version in (state.version, level))
    if role.upgrade is not None:
        return f"Invalid concurrent upgrade of {KRAFT_VERSION} from version {old} to {new}"
    if level < state.version:
        return f"Invalid upgrade of {KRAFT_VERSION} from version {old} to {new} because the new version is a downgrade"
    if any(level not in voter.supported or not voter.key.has_directory for voter in known):
        return f"Invalid upgrade of {KRAFT_VERSION} to {new} because not all of the voters support it"
    if role.watermark.value is None:
        return (
            f"Invalid upgrade of {KRAFT_VERSION} from version {old} to {new} because the leader has not committed "
            "a record of its epoch yet"
        )
    return ""


# --- a follower's own requests ----------------------------------------------------------------------------------------


def advance_follower(state: RaftState, role: Follower) -> int | None:
    """Once a fetch timeout, send UpdateRaftVoter or AddRaftVoter if needed; returns when that is due again, ms."""
    if state.shutting_down or state.config.key.id < 0:
        return None
    if role.update_deadline_ms > state.now_ms:
        return role.update_deadline_ms
    message = _wanted_change(state, role)
    leader = state.destination(role.leader_id, role.leader_endpoints)
    if message is not None and leader is not None and leader not in state.refusals:
        if not state.is_ready(leader):
            return state.ready_at(leader)
        joins = isinstance(message, AddRaftVoterRequest)
        state.send(leader, message, min_version=partition.JOIN_MIN_VERSION if joins else 0)
    role.update_deadline_ms = state.now_ms + state.config.fetch_timeout_ms
    return role.update_deadline_ms


def _wanted_change(state: RaftState, role: Follower) -> Struct | None:
    key = state.config.key
    if probation.is_on(state):  # an upgrade would end probation too early
        return None
    if state.is_voter:
        outdated = state.version >= 1 and state.voters.get(key.id) != state.own_entry()
        if outdated or (state.version == 0 and not role.leader_updated):
            return partition.update_voter_request(state, state.own_entry())
    elif state.config.auto_join and state.config.can_become_voter and state.version >= 1:
        entry = state.voters.get(key.id)
        if entry is not None:  # this node, before its disk was replaced
            return partition.remove_voter_request(state, entry.key)
        return partition.add_voter_request(state, state.own_entry())
    return None


def on_update_answer(state: RaftState, sent: InFlight, response: UpdateRaftVoterResponse) -> None:
    """Take the answer to UpdateRaftVoter; what is still needed is asked for again after a fetch timeout."""
    source = sent.destination
    leader = response.current_leader
    if leader.leader_id >= 0:
        endpoints = epochs.leader_endpoints(state, leader.host, leader.port)
        answer = partition.AnswerSummary(response.error_code, leader.leader_id, leader.leader_epoch)
        if not epochs.compare_answer(state, answer, endpoints, source):
            return
    role = state.role
    code = ErrorCode.of(response.error_code)
    if code not in _UPDATE_EXPECTED:
        text = f"UpdateRaftVoter to {source.host}:{source.port} is refused: {code.name}"
        state.note_seldom(f"{text}; the entry among the voters stays as it is")
    done = response.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
    if done and isinstance(role, Follower):
        role.leader_updated = True
        role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms


def on_join_failed(state: RaftState, sent: InFlight, failure: Failure) -> None:
    """Note that this node cannot join by itself because the leader is too old."""
    if failure is Failure.UNSUPPORTED_VERSION:
        state.note_seldom(
            f"cannot join by itself: the leader does not speak AddRaftVoter {partition.JOIN_MIN_VERSION}; "
            "add this node with `kraftcore quorum add-controller`, or upgrade the leader"
        )


def on_join_answer(state: RaftState, sent: InFlight, response: AddRaftVoterResponse | RemoveRaftVoterResponse) -> None:
    """Note an unexpected answer; what is still needed is asked for again after a fetch timeout."""
    expected = (
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    if response.error_code not in expected:
        name = "AddRaftVoter" if isinstance(response, AddRaftVoterResponse) else "RemoveRaftVoter"
        state.note_seldom(f"{name}: {ErrorCode.of(response.error_code).name}: {response.error_message}")


def _check_listeners(endpoints: Sequence[Endpoint]) -> None:
    if len(endpoints) > LISTENERS_MAX or any(max(len(each.name), len(each.host)) > NAME_MAX for each in endpoints):
        raise VoterChangeRefusal(
            ErrorCode.INVALID_REQUEST,
            f"A voter has at most {LISTENERS_MAX} listeners, whose names and hosts have at most {NAME_MAX} letters",
        )
