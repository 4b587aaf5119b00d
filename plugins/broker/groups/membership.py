"""The members of a group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and members that stay silent.

A rebalance gathers all members' JoinGroups (PreparingRebalance), answers them together, has the leader assign
(CompletingRebalance), stores what it says, and answers the SyncGroups (Stable).

Source: Kafka 4.3.1, GroupMetadataManager; KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (member ids are given out first), KIP-559 (protocol type and name), KIP-814 (skip assignment).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from kraftcore.errors import RefusedError
from kraftcore.plugins.broker.groups.effects import Caller, ShardEffects, Ticket, Timers, Write
from kraftcore.plugins.broker.groups.group import Group, Member, State
from kraftcore.plugins.broker.groups.records import empty_group_entry, group_entry
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""How long a new member's JoinGroup waits: it has no session yet. Kafka: CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS."""
_NO_MEMBER = ""
_STRING_MAX = 32767  # bytes of a string in requests, answers and records
_MEMBER_ID_SINCE, _SKIP_SINCE = 4, 9  # versions of JoinGroup
_MemberAnswer = LeaveGroupResponse.MemberResponse

_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def write_error(error: ErrorCode) -> ErrorCode:
    """The error for a client whose records could not be stored (Kafka: CoordinatorOperationExceptionHelper)."""
    return _WRITE_ERRORS.get(error, error)


class Membership:
    """Changes who is in a group: by JoinGroup, SyncGroup, Heartbeat, LeaveGroup and expiry.

    Each event adds to the effects it is given.

    Args:
        groups: the groups by id; made here, removed by the shard.
        timers: the timers of the shard.
        settings: see ``GroupSettings``.
        new_id: makes the random part of a member id.
    """

    def __init__(
        self, groups: dict[str, Group], timers: Timers, settings: GroupSettings, new_id: Callable[[], str]
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._settings = settings
        self._new_id = new_id

    # --- JoinGroup ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller, now_ms: int, effects: ShardEffects) -> None:
        """Have a member join, or join again."""
        if caller.version == 0:  # which had no rebalance timeout
            request.rebalance_timeout_ms = request.session_timeout_ms
        member_id = request.member_id
        group = self._groups.get(request.group_id)
        is_made = group is None
        if group is None:
            if member_id != _NO_MEMBER:
                _refuse_join(effects, caller.ticket, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
                return
            group = self._groups[request.group_id] = Group(request.group_id, now_ms)
        if not self._has_room(group, member_id):
            group.remove(member_id)
            self._timers.cancel(_session(group, member_id))
            _refuse_join(effects, caller.ticket, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(request.protocol_type, _protocols(request)):
            _refuse_join(effects, caller.ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id == _NO_MEMBER:
            self._join_new(group, request, caller, now_ms, effects)
        else:
            self._join_again(group, request, caller, now_ms, effects)
        if is_made:
            # So that it is known after a change of the coordinator, and deletes expired offsets of its name.
            effects.writes.append(Write([empty_group_entry(group)], partial(self._group_stored, group)))

    def _group_stored(self, group: Group, error: ErrorCode, now_ms: int, effects: ShardEffects) -> None:
        if error is ErrorCode.NONE or error is ErrorCode.REQUEST_TIMED_OUT:
            return
        self.end(group, write_error(error), effects)
        if self._groups.get(group.id) is group:
            del self._groups[group.id]

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self._settings.max_size
        if group.state in (State.EMPTY, State.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            # By who has joined, so that a group that is too large loses those who come last.
            return (member is not None and member.join_ticket is not None) or group.joined < limit
        return member is not None or len(group.members) < limit

    def _join_new(
        self, group: Group, request: JoinGroupRequest, caller: Caller, now_ms: int, effects: ShardEffects
    ) -> None:
        instance_id = request.group_instance_id
        new_id = _member_id(caller.client_id if instance_id is None else instance_id, self._new_id())
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, request, caller, new_id, now_ms, effects)
        elif instance_id is None and caller.version >= _MEMBER_ID_SINCE:
            group.pending_members.add(new_id)
            due_ms = now_ms + request.session_timeout_ms
            self._timers.set(_session(group, new_id), due_ms, partial(self._session_over, group, new_id))
            _refuse_join(effects, caller.ticket, ErrorCode.MEMBER_ID_REQUIRED, new_id)
        else:
            self._add(group, request, caller, new_id, now_ms, effects)

    def _join_again(
        self, group: Group, request: JoinGroupRequest, caller: Caller, now_ms: int, effects: ShardEffects
    ) -> None:
        if request.member_id in group.pending_members and request.group_instance_id is None:
            self._add(group, request, caller, request.member_id, now_ms, effects)
            return
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except RefusedError as error:
            _refuse_join(effects, caller.ticket, ErrorCode[error.error], request.member_id)
            return
        has_changed = member.protocols != _protocols(request)
        if group.state is State.COMPLETING_REBALANCE and not has_changed:
            # The answer may have been lost.
            effects.answers.append((caller.ticket, _joined(group, member)))
        elif group.state is State.STABLE and not has_changed and member.id != group.leader:
            effects.answers.append((caller.ticket, _joined(group, member, tells_members=False)))
        elif group.state is State.EMPTY:
            _refuse_join(effects, caller.ticket, ErrorCode.UNKNOWN_MEMBER_ID, member.id)
        else:
            self._update(group, member, request, caller.ticket, effects)
            self._rebalance(group, now_ms, effects)

    def _add(
        self,
        group: Group,
        request: JoinGroupRequest,
        caller: Caller,
        member_id: str,
        now_ms: int,
        effects: ShardEffects,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            _protocols(request),
        )
        member.is_new = True
        member.join_ticket = caller.ticket
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.has_new_member = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.put(member)
        self._restart_session(group, member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(group, now_ms, effects)

    def _update(
        self, group: Group, member: Member, request: JoinGroupRequest, ticket: Ticket | None, effects: ShardEffects
    ) -> None:
        group.set_protocols(member, _protocols(request))
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        if ticket is not None:
            if member.join_ticket is not None and member.join_ticket is not ticket:
                # It asks anew, on another connection perhaps: the older request's answer is not awaited any more.
                _refuse_join(effects, member.join_ticket, ErrorCode.REBALANCE_IN_PROGRESS, member.id)
            member.join_ticket = ticket

    def _replace_static(
        self,
        group: Group,
        request: JoinGroupRequest,
        caller: Caller,
        new_id: str,
        now_ms: int,
        effects: ShardEffects,
    ) -> None:
        """Give another member id to a static member that restarted; the member keeps its assignment."""
        instance_id = str(request.group_instance_id)
        leader_before = group.leader
        old, member = group.replace(instance_id, new_id)
        # Who still waits under the old id is another process with the same instance id: it is told to stop.
        _answer_join(effects, old, JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old.id))
        _answer_sync(effects, old, ErrorCode.FENCED_INSTANCE_ID)
        self._timers.cancel(_session(group, old.id))
        group.pending_sync.discard(old.id)
        self._restart_session(group, member, now_ms)
        if group.state is State.STABLE:
            self._update(group, member, request, None, effects)
            if group.choose_protocol() == group.protocol_name:
                entry = group_entry(group, {each.id: each.assignment for each in group.members.values()})
                answer = partial(self._static_replaced, group, old, member, caller, leader_before)
                effects.writes.append(Write([entry], answer))
                return
        self._update(group, member, request, caller.ticket, effects)
        if group.state is State.PREPARING_REBALANCE:
            self._complete_if_ready(group, now_ms, effects)
        else:
            self._prepare(group, now_ms, effects)

    def _static_replaced(
        self,
        group: Group,
        old: Member,
        member: Member,
        caller: Caller,
        leader_before: str | None,
        error: ErrorCode,
        now_ms: int,
        effects: ShardEffects,
    ) -> None:
        if group.members.get(member.id) is not member:
            # The member was removed or replaced meanwhile.
            _refuse_join(effects, caller.ticket, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        if error is not ErrorCode.NONE:
            if error is not ErrorCode.REQUEST_TIMED_OUT and group.state is not State.DEAD:
                # Other members know the old id, and the member that has it may go on with it.
                self._timers.cancel(_session(group, member.id))
                group.set_protocols(member, old.protocols)
                member.rebalance_timeout_ms = old.rebalance_timeout_ms
                member.session_timeout_ms = old.session_timeout_ms
                _, reverted = group.replace(str(member.instance_id), old.id)
                self._restart_session(group, reverted, now_ms)
            _refuse_join(effects, caller.ticket, write_error(error))
            return
        if group.state is State.PREPARING_REBALANCE and member.join_ticket is None:
            # Somebody joined while this was stored; it takes part as if it had joined then.
            member.join_ticket = caller.ticket
            self._complete_if_ready(group, now_ms, effects)
            return
        if caller.version >= _SKIP_SINCE:
            # The assignment stands: a leader need not assign, but is told who the members are (KIP-814).
            answer = _joined(group, member)
            answer.skip_assignment = group.leader == member.id
        else:
            # Versions before cannot say so: the former leader is named, which is not the new id.
            answer = _joined(group, member, tells_members=False)
            answer.leader = leader_before or ""
        effects.answers.append((caller.ticket, answer))

    # --- a rebalance --------------------------------------------------------------------------------------------------

    def _rebalance(self, group: Group, now_ms: int, effects: ShardEffects) -> None:
        if group.can_rebalance:
            self._prepare(group, now_ms, effects)
        else:
            self._complete_if_ready(group, now_ms, effects)

    def _prepare(self, group: Group, now_ms: int, effects: ShardEffects) -> None:
        """Begin a rebalance: wait for the JoinGroups of all members."""
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self._answer_synced(group, member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, effects)
        group.pending_sync.clear()
        self._timers.cancel(_syncing(group))
        is_first = group.state is State.EMPTY
        group.move_to(State.PREPARING_REBALANCE, now_ms)
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.has_new_member = False
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_more(group, delay_ms, left_ms, now_ms)
        elif group.have_all_joined:
            self._complete(group, now_ms, effects)
        else:
            self._wait_for_members(group, now_ms)

    def _wait_for_members(self, group: Group, now_ms: int) -> None:
        due_ms = now_ms + max(group.rebalance_timeout_ms, 1)
        self._timers.set(_joining(group), due_ms, partial(self._complete, group))

    def _wait_for_more(self, group: Group, delay_ms: int, left_ms: int, now_ms: int) -> None:
        self._timers.set(_joining(group), now_ms + delay_ms, partial(self._waited_for_more, group, delay_ms, left_ms))

    def _waited_for_more(self, group: Group, delay_ms: int, left_ms: int, now_ms: int, effects: ShardEffects) -> None:
        if group.has_new_member and left_ms > 0:
            group.has_new_member = False
            next_ms = min(self._settings.initial_rebalance_delay_ms, left_ms)
            self._wait_for_more(group, next_ms, max(left_ms - delay_ms, 0), now_ms)
        else:
            self._complete(group, now_ms, effects)

    def _complete_if_ready(self, group: Group, now_ms: int, effects: ShardEffects) -> None:
        """Complete the rebalance when all members have joined; a group's first one waits for its delay in any case."""
        if (
            group.state is State.PREPARING_REBALANCE
            and group.previous_state is not State.EMPTY
            and group.have_all_joined
        ):
            self._complete(group, now_ms, effects)

    def _complete(self, group: Group, now_ms: int, effects: ShardEffects) -> None:
        """Complete the rebalance: remove members that have not joined, but static ones, whose session decides."""
        self._timers.cancel(_joining(group))
        if group.state is not State.PREPARING_REBALANCE:
            return
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                group.remove(member.id)
                self._timers.cancel(_session(group, member.id))
        if group.members and not group.elect_joined_leader():
            # Static members alone, and none of them has come.
            self._wait_for_members(group, now_ms)
            return
        group.next_generation(now_ms)
        if not group.members:
            # Whether it is stored or not: an empty generation has no members that it could mislead.
            effects.writes.append(Write([group_entry(group, {})]))
            return
        for member in group.members.values():
            _answer_join(effects, member, _joined(group, member))
            self._restart_session(group, member, now_ms)
            member.is_new = False
            group.pending_sync.add(member.id)
        due_ms = now_ms + max(group.rebalance_timeout_ms, 1)
        self._timers.set(_syncing(group), due_ms, partial(self._sync_over, group, group.generation))

    # --- SyncGroup ----------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, caller: Caller, now_ms: int, effects: ShardEffects) -> None:
        """A member asks for what it was given; the leader brings what everybody gets."""
        ticket = caller.ticket
        try:
            group, member = self._check(request, ErrorCode.UNKNOWN_MEMBER_ID)
            for asked, has in (
                (request.protocol_type, group.protocol_type),
                (request.protocol_name, group.protocol_name),
            ):
                if asked is not None and has is not None and asked != has:
                    raise refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.id} has {has}, not {asked}")
        except RefusedError as error:
            effects.answers.append((ticket, SyncGroupResponse(error_code=ErrorCode[error.error])))
            return
        if group.state is State.PREPARING_REBALANCE:
            effects.answers.append((ticket, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
            return
        if group.state is not State.STABLE and member.id == group.leader:
            given = {each.member_id: bytes(each.assignment) for each in request.assignments}
            assignment = {each: given.get(each, b"") for each in group.members}
            done = partial(self._assigned, group, group.generation, assignment)
            # First of all: where it cannot be encoded, nothing has changed.
            effects.writes.append(Write([group_entry(group, assignment)], done))
        group.pending_sync.discard(member.id)
        if not group.pending_sync:
            self._timers.cancel(_syncing(group))
        if group.state is State.STABLE:
            effects.answers.append((ticket, _synced(group, member)))
            return
        if member.sync_ticket is not None and member.sync_ticket is not ticket:
            _answer_sync(effects, member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_ticket = ticket

    def _assigned(
        self,
        group: Group,
        generation: int,
        assignment: dict[str, bytes],
        error: ErrorCode,
        now_ms: int,
        effects: ShardEffects,
    ) -> None:
        """Answer SyncGroups after the leader's assignment was stored, or could not be."""
        if group.state is not State.COMPLETING_REBALANCE or group.generation != generation:
            return
        if error is ErrorCode.NONE:
            for member in group.members.values():
                member.assignment = assignment.get(member.id, b"")
            group.move_to(State.STABLE, now_ms)
            for member in group.members.values():
                self._answer_synced(group, member, ErrorCode.NONE, now_ms, effects)
        else:
            for member in group.members.values():
                member.assignment = b""
                self._answer_synced(group, member, write_error(error), now_ms, effects)
            self._rebalance(group, now_ms, effects)

    def _answer_synced(
        self, group: Group, member: Member, error: ErrorCode, now_ms: int, effects: ShardEffects
    ) -> None:
        if member.sync_ticket is not None:
            if error is ErrorCode.NONE:
                effects.answers.append((member.sync_ticket, _synced(group, member)))
                member.sync_ticket = None
            else:
                _answer_sync(effects, member, error)
            # Its session may have ended while it waited for this answer, and no timer watches it then.
            self._restart_session(group, member, now_ms)

    def _sync_over(self, group: Group, generation: int, now_ms: int, effects: ShardEffects) -> None:
        """Remove members that did not ask for their assignment in time."""
        if (
            generation != group.generation
            or group.state not in (State.COMPLETING_REBALANCE, State.STABLE)
            or not group.pending_sync
        ):
            return
        for member_id in list(group.pending_sync):
            group.remove(member_id)
            self._timers.cancel(_session(group, member_id))
        self._prepare(group, now_ms, effects)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Note that a member is alive.

        Raises:
            RefusedError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        group, member = self._check(request, ErrorCode.UNKNOWN_MEMBER_ID)
        self._restart_session(group, member, now_ms)
        is_waiting = group.state is State.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_waiting else ErrorCode.NONE

    def _check(self, request: SyncGroupRequest | HeartbeatRequest, no_group: ErrorCode) -> tuple[Group, Member]:
        group = self._groups.get(request.group_id)
        if group is None or group.state is State.EMPTY:
            raise refused(no_group, f"group {request.group_id} has no members")
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise refused(ErrorCode.ILLEGAL_GENERATION, f"group {group.id} is at generation {group.generation}")
        return group, member

    def keep_alive(self, group: Group, member_id: str, now_ms: int) -> None:
        """Count a commit as a sign of life of its member, if it is one."""
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._restart_session(group, member, now_ms)

    def _restart_session(self, group: Group, member: Member, now_ms: int, timeout_ms: int | None = None) -> None:
        due_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        self._timers.set(_session(group, member.id), due_ms, partial(self._session_over, group, member.id))

    def _session_over(self, group: Group, member_id: str, now_ms: int, effects: ShardEffects) -> None:
        """Remove a member that was silent for too long, or a member id that no client came back with."""
        if member_id in group.pending_members:
            group.remove(member_id)
            if group.state is State.PREPARING_REBALANCE and group.have_all_joined:
                self._complete(group, now_ms, effects)
            return
        member = group.members.get(member_id)
        if member is None or group.state is State.DEAD or member.is_alive:
            return
        self._remove(group, member, effects)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare(group, now_ms, effects)
        elif group.state is State.PREPARING_REBALANCE and group.have_all_joined:
            self._complete(group, now_ms, effects)

    def _remove(self, group: Group, member: Member, effects: ShardEffects) -> None:
        self._timers.cancel(_session(group, member.id))
        _answer_join(effects, member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        _answer_sync(effects, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member.id)

    # --- LeaveGroup ---------------------------------------------------------------------------------------------------

    def leave(
        self, group: Group, members: list[LeaveGroupRequest.MemberIdentity], now_ms: int, effects: ShardEffects
    ) -> list[_MemberAnswer]:
        """Members leave; an administrator names static ones without their member ids."""
        answers = []
        has_left = False
        for told in members:
            answer = _MemberAnswer(member_id=told.member_id, group_instance_id=told.group_instance_id)
            answers.append(answer)
            member_id = told.member_id
            if member_id == _NO_MEMBER:
                member_id = group.static_members.get(told.group_instance_id or "", _NO_MEMBER)
            elif member_id in group.pending_members:
                group.remove(member_id)
                self._timers.cancel(_session(group, member_id))
                has_left = True
                continue
            try:
                self._remove(group, group.check_member(member_id, told.group_instance_id), effects)
                has_left = True
            except RefusedError as error:
                answer.error_code = ErrorCode[error.error]
        if has_left:
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self._prepare(group, now_ms, effects)
            else:
                self._complete_if_ready(group, now_ms, effects)
        return answers

    # --- the coordinator's own life -----------------------------------------------------------------------------------

    def loaded(self, group: Group, now_ms: int, effects: ShardEffects) -> None:
        """Begin the sessions of a loaded group's members anew."""
        for member in group.members.values():
            self._restart_session(group, member, now_ms)
        if len(group.members) > self._settings.max_size:
            self._prepare(group, now_ms, effects)

    def end(self, group: Group, error: ErrorCode, effects: ShardEffects) -> None:
        """Answer all waiting requests of a group that this broker coordinates no more."""
        for member in group.members.values():
            _answer_join(effects, member, JoinGroupResponse(error_code=error, member_id=member.id))
            _answer_sync(effects, member, error)
            self._timers.cancel(_session(group, member.id))
        for member_id in group.pending_members:
            self._timers.cancel(_session(group, member_id))
        self._timers.cancel(_joining(group))
        self._timers.cancel(_syncing(group))
        group.previous_state, group.state = group.state, State.DEAD


# --- names of timers --------------------------------------------------------------------------------------------------


def _session(group: Group, member_id: str) -> Hashable:
    return "session", group.id, member_id


def _joining(group: Group) -> Hashable:
    return "joining", group.id


def _syncing(group: Group) -> Hashable:
    return "syncing", group.id


# --- answers ----------------------------------------------------------------------------------------------------------


def _member_id(name: str, random: str) -> str:
    """A member id as Kafka makes it; a name too long for a string of the protocol is cut."""
    end = f"-{random}"
    data = name.encode()
    if len(data) + len(end) > _STRING_MAX:
        name = data[: _STRING_MAX - len(end)].decode(errors="ignore")
    return name + end


def _protocols(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(each.name, bytes(each.metadata)) for each in request.protocols]


def _refuse_join(effects: ShardEffects, ticket: Ticket, error: ErrorCode, member_id: str = _NO_MEMBER) -> None:
    effects.answers.append((ticket, JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)))


def _answer_join(effects: ShardEffects, member: Member, response: JoinGroupResponse) -> None:
    if member.join_ticket is not None:
        effects.answers.append((member.join_ticket, response))
        member.join_ticket = None


def _answer_sync(effects: ShardEffects, member: Member, error: ErrorCode) -> None:
    if member.sync_ticket is not None:
        effects.answers.append((member.sync_ticket, SyncGroupResponse(error_code=error)))
        member.sync_ticket = None


def _joined(group: Group, member: Member, *, tells_members: bool = True) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.id,
        members=group.told_members() if tells_members and member.id == group.leader else [],
    )


def _synced(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
