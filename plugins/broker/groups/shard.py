"""The groups of one partition of ``__consumer_offsets``.

A group belongs to the partition that its id's hash names, and the broker that leads that partition coordinates it.
Every event is a call with the time in it, and returns ``ShardEffects``: records to append, and answers. The caller
appends the records, and then says what became of them:

    appended ──> committed        the records are in the log, and then in every in-sync replica's
    failed                        they are not in the log
    unload                        another broker leads now: who waits is told NOT_COORDINATOR

Groups of other protocols (KIP-848 and its like), which a Kafka broker may have written, are left alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import InvariantError, RefusedError
from kraftcore.plugins.broker.groups.effects import NEVER, Caller, Committed, ShardEffects, Ticket, Timers, Write
from kraftcore.plugins.broker.groups.group import CONSUMER, Group, State
from kraftcore.plugins.broker.groups.loading import Loaded
from kraftcore.plugins.broker.groups.membership import Membership, write_error
from kraftcore.plugins.broker.groups.offsets import Offsets
from kraftcore.plugins.broker.groups.records import chunks, group_tombstone, offset_entry, offset_tombstone
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.work.turns import ITEMS, Turn
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraftcore.protocol.messages.describe_groups import DescribeGroupsResponse
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftcore.protocol.messages.list_groups import ListGroupsResponse
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kraftcore.protocol.messages.offset_fetch import OffsetFetchResponse
from kraftcore.protocol.messages.sync_group import SyncGroupRequest
from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_GROUP_ID_NOT_FOUND_SINCE = 9  # version of OffsetCommit
_NOT_FOUND_SINCE = 6  # version of DescribeGroups
_NO_OFFSET = -1
_DEFAULT_RETENTION = -1
_JOINING = 0  # member epoch (KIP-848)
_CLEANING = ("cleaning",)
_DELETING = ("deleting",)
CLASSIC = "classic"
"""The type of all groups here, as ListGroups tells it."""

_FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchTopic = _FetchGroup.OffsetFetchResponseTopics
_FetchPart = _FetchTopic.OffsetFetchResponsePartitions
_Described = DescribeGroupsResponse.DescribedGroup
_Listed = ListGroupsResponse.ListedGroup


class Shard:
    """The groups of one partition of ``__consumer_offsets``, and the records that keep them.

    Args:
        settings: see ``GroupSettings``.
        new_id: makes what is random in a member id.
        loaded: what the partition holds.
        now_ms: the time, milliseconds since 1970.
        batch_bytes: about how large the batches are in which offsets and groups are deleted, at most, by now.
        ahead_ms: see `Timers`; commits tell their times, and are compared with, those that are given here.

    Attributes:
        groups: by id.
        offsets: the committed offsets of the groups.
    """

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        loaded: Loaded,
        now_ms: int,
        batch_bytes: Callable[[], int],
        ahead_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.groups = loaded.groups
        self.offsets = Offsets(loaded.offsets, loaded.open)
        self._modern = loaded.modern
        self._settings = settings
        self._batch_bytes = batch_bytes
        self._timers = Timers(ahead_ms)
        self._members = Membership(self.groups, self._timers, settings, new_id)
        self._waiting: dict[Write, None] = {}  # appended, not committed; in the order of the log
        # Offsets of topics that are deleted, which go in turns: group, partition, and what is committed of it.
        self._doomed: deque[tuple[str, TopicPartition, Committed]] = deque()
        self._schedule_cleaning(now_ms)

    def begin(self, now_ms: int) -> ShardEffects:
        """The first call: the members' sessions begin anew."""
        effects = ShardEffects()
        for group in list(self.groups.values()):
            self._members.loaded(group, now_ms, effects)
        return effects

    # --- time, and what became of writes ------------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """When ``expire`` has something to do, see `Timers.due_ms`; None: not before something else happens."""
        return self._timers.due_ms()

    def expire(self, now_ms: int) -> ShardEffects:
        """Fire the timers that are due."""
        effects = ShardEffects()
        self._timers.expire(now_ms, effects)
        return effects

    def appended(self, write: Write, now_ms: int) -> ShardEffects:
        """A write's records are in the log."""
        effects = ShardEffects()
        self._waiting[write] = None
        self.offsets.appended(write)
        if write.appended is not None:
            write.appended(effects)
        timeout = partial(self._time_out, write)
        self._timers.set(write, now_ms + self._settings.commit_timeout_ms, timeout)
        return effects

    def _time_out(self, write: Write, now_ms: int, effects: ShardEffects) -> None:
        # The record stays in the log, and counts when it is committed; only no request waits for it.
        write.end(ErrorCode.REQUEST_TIMED_OUT, now_ms, effects)

    def committed(self, write: Write, now_ms: int) -> ShardEffects:
        """A write's records are in all in-sync replicas."""
        effects = ShardEffects()
        if write not in self._waiting:
            return effects  # unloaded meanwhile
        del self._waiting[write]
        self._timers.cancel(write)
        self.offsets.settled(write)
        write.end(ErrorCode.NONE, now_ms, effects)
        return effects

    def failed(self, write: Write, error: ErrorCode, now_ms: int) -> ShardEffects:
        """A write's records could not be appended."""
        effects = ShardEffects()
        write.error = error
        write.end(error, now_ms, effects)
        return effects

    def unload(self, now_ms: int) -> ShardEffects:
        """Another broker coordinates from now on; nothing may be asked of this any more."""
        effects = ShardEffects()
        for group in self.groups.values():
            self._members.end(group, ErrorCode.NOT_COORDINATOR, effects)
        for write in self._waiting:
            write.end(ErrorCode.NOT_COORDINATOR, now_ms, effects)
        self._waiting.clear()
        self.groups.clear()
        effects.writes.clear()
        return effects

    # --- members ------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """JoinGroup: answered when the group has gathered."""
        effects = ShardEffects()
        if request.group_id in self._modern:
            response = JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, protocol_name=None)
            effects.answers.append((caller.ticket, response))
        else:
            self._members.join(request, caller, now_ms, effects)
        return effects

    def sync(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """SyncGroup: answered when the leader's assignment is committed."""
        effects = ShardEffects()
        self._members.sync(request, caller, now_ms, effects)
        return effects

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """Heartbeat: answered at once."""
        try:
            error = self._members.heartbeat(request, now_ms)
        except RefusedError as refusal:
            error = ErrorCode[refusal.error]
        return ShardEffects(answers=[(caller.ticket, HeartbeatResponse(error_code=error))])

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """ConsumerGroupHeartbeat of KIP-848, which has members of its groups wait for a broker of Kafka.

        Clients end for good where the request is not offered; who joins is told so. Kafka answers UNSUPPORTED_VERSION,
        too, where ``group.coordinator.rebalance.protocols`` has no consumer.
        """
        is_member = request.group_id in self._modern and request.member_epoch != _JOINING
        error = ErrorCode.NOT_COORDINATOR if is_member else ErrorCode.UNSUPPORTED_VERSION
        return ShardEffects(answers=[(caller.ticket, ConsumerGroupHeartbeatResponse(error_code=error))])

    def leave(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """LeaveGroup: answered when what comes of it is committed."""
        effects = ShardEffects()
        kind = LeaveGroupRequest.MemberIdentity
        # One member before version 3.
        members = request.members if caller.version >= 3 else [kind(member_id=request.member_id)]
        group = self.groups.get(request.group_id)
        if group is None:
            answers = [
                LeaveGroupResponse.MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for each in members
            ]
        else:
            answers = self._members.leave(group, members, now_ms, effects)
        response = LeaveGroupResponse(members=answers)
        if caller.version < 3:
            response.error_code, response.members = answers[0].error_code, []

        def done(error: ErrorCode, now_ms: int, effects: ShardEffects) -> None:
            if error is not ErrorCode.NONE:
                response.error_code = write_error(error)
                response.members = []
            effects.answers.append((caller.ticket, response))

        if effects.writes:
            effects.writes[-1].done = done
        else:
            effects.answers.append((caller.ticket, response))
        return effects

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(self, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """OffsetCommit: answered when the offsets are committed. Topics have names, whatever the version."""
        try:
            group = self._committing(request, caller.version, now_ms)
        except RefusedError as error:
            response = commit_error(request, ErrorCode[error.error])
            return ShardEffects(answers=[(caller.ticket, response)])
        self._members.keep_alive(group, request.member_id, now_ms)
        kept_ms = request.retention_time_ms
        expire_ms = NEVER if kept_ms == _DEFAULT_RETENTION else _java_sum(now_ms, kept_ms)
        return self._commit(group, request, caller.ticket, partial(commit_error, request), Write([]), now_ms, expire_ms)

    def _commit(
        self,
        group: Group,
        request: Any,
        ticket: Ticket,
        answer_of: Callable[[ErrorCode], Any],
        write: Write,
        now_ms: int,
        expire_ms: int = NEVER,
    ) -> ShardEffects:
        """What a group's members commit, as far as it can be stored.

        Args:
            group: theirs; it is forgotten if it was made for a commit that fails.
            request: OffsetCommit or TxnOffsetCommit.
            ticket: gets the answer when the write is done, or at once where there is nothing to store.
            answer_of: the answer that says one error of all partitions.
            write: takes the offsets.
            now_ms: the time, milliseconds since 1970.
            expire_ms: see ``Committed``.
        """
        response = answer_of(ErrorCode.NONE)
        for topic, told in zip(request.topics, response.topics, strict=True):
            topic_id = topic.topic_id if isinstance(topic, OffsetCommitRequest.OffsetCommitRequestTopic) else ZERO_UUID
            for each, answer in zip(topic.partitions, told.partitions, strict=True):
                metadata = each.committed_metadata or ""
                if _java_length(metadata) > self._settings.offset_metadata_max_bytes:
                    answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    continue
                part = TopicPartition(topic.name, each.partition_index)
                value = Committed(
                    each.committed_offset, each.committed_leader_epoch, metadata, now_ms, expire_ms, topic_id
                )
                write.entries.append(offset_entry(group.id, part, value))
                write.changes.append((group.id, part, value))
        if not write.entries:
            self._forget_simple(group)
            return ShardEffects(answers=[(ticket, response)])

        def done(error: ErrorCode, now_ms: int, effects: ShardEffects) -> None:
            if error is not ErrorCode.NONE:
                self._forget_simple(group)
            effects.answers.append((ticket, response if error is ErrorCode.NONE else answer_of(write_error(error))))

        write.done = done
        return ShardEffects(writes=[write])

    def _committing(self, request: OffsetCommitRequest, version: int, now_ms: int) -> Group:
        """The group of an allowed commit; a missing group is made, to keep offsets alone (Kafka: a simple group)."""
        group, generation = self.groups.get(request.group_id), request.generation_id_or_member_epoch
        if group is None:
            self._check_modern(request.group_id, generation)
            if generation >= 0:
                is_known = version >= _GROUP_ID_NOT_FOUND_SINCE
                error = ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
                raise refused(error, f"there is no group {request.group_id}")
            group = self.groups[request.group_id] = Group(request.group_id, now_ms)
            return group
        if generation < 0 and group.state is State.EMPTY:
            return group
        if generation >= 0 or request.member_id or request.group_instance_id is not None:
            group.check_member(request.member_id, request.group_instance_id)
            if generation != group.generation:
                raise refused(ErrorCode.ILLEGAL_GENERATION, f"group {group.id} is at generation {group.generation}")
        elif group.state is not State.EMPTY:
            raise refused(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id} has members: commit as one of them")
        if group.state is State.COMPLETING_REBALANCE:
            raise refused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.id} has not got its assignment yet")
        return group

    def _check_modern(self, group_id: str, member_epoch: int) -> None:
        """Refuse a commit to a group of another protocol: its members look for a broker that coordinates it."""
        if group_id in self._modern:
            error = ErrorCode.NOT_COORDINATOR if member_epoch >= 0 else ErrorCode.UNKNOWN_MEMBER_ID
            raise refused(error, f"group {group_id} uses another protocol")

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """TxnOffsetCommit: answered when the offsets are in the log; they count when the transaction is committed."""
        try:
            group = self._committing_in_transaction(request, now_ms)
        except RefusedError as error:
            return ShardEffects(answers=[(caller.ticket, txn_commit_error(request, ErrorCode[error.error]))])
        write = Write([], producer=(request.producer_id, request.producer_epoch))
        return self._commit(group, request, caller.ticket, partial(txn_commit_error, request), write, now_ms)

    def _committing_in_transaction(self, request: TxnOffsetCommitRequest, now_ms: int) -> Group:
        """The group of an allowed commit in a transaction, in any state: the producer may be late."""
        group, generation = self.groups.get(request.group_id), request.generation_id
        if group is None:
            self._check_modern(request.group_id, generation)
            if generation >= 0:
                raise refused(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id}")
            group = self.groups[request.group_id] = Group(request.group_id, now_ms)
        elif generation >= 0 or (
            group.state is not State.EMPTY and (request.member_id or request.group_instance_id is not None)
        ):
            group.check_member(request.member_id, request.group_instance_id)
            if generation != group.generation:
                raise refused(ErrorCode.ILLEGAL_GENERATION, f"group {group.id} is at generation {group.generation}")
        return group

    def _forget_simple(self, group: Group) -> None:
        """Remove an empty group that was made for a commit which failed."""
        has_any = self.offsets.has_any(group.id) or group.id in self.offsets.unstable
        if group.is_simple and group.generation == 0 and not has_any:
            self.groups.pop(group.id, None)

    def fetch_offsets(
        self,
        group_id: str,
        topics: Iterable[tuple[str, Uuid, list[int]]] | None,
        ticket: Ticket,
        *,
        require_stable: bool,
    ) -> ShardEffects:
        """OffsetFetch of one group.

        Args:
            group_id: its id.
            topics: (name, id or zero, partitions); None: all that have an offset.
            ticket: gets the group's part of the answer.
            require_stable: wait for what was appended, and tell UNSTABLE_OFFSET_COMMIT where a transaction is open.
        """
        wanted = None if topics is None else list(topics)
        if require_stable and self._waiting:
            # What is to be waited for is in the log already: the last of it says that all is committed.
            last = next(reversed(self._waiting))

            def done(error: ErrorCode, now_ms: int, effects: ShardEffects) -> None:
                if error is ErrorCode.NONE:
                    told = self._fetched(group_id, wanted, require_stable=True)
                else:
                    # Clients before 3.9 do not know the others.
                    told = _FetchGroup(group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR)
                effects.answers.append((ticket, told))

            if not last.is_over:
                last.afterwards.append(done)
                return ShardEffects()
            told = _FetchGroup(group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR)
            return ShardEffects(answers=[(ticket, told)])
        return ShardEffects(answers=[(ticket, self._fetched(group_id, wanted, require_stable=require_stable))])

    def _fetched(
        self, group_id: str, topics: list[tuple[str, Uuid, list[int]]] | None, *, require_stable: bool
    ) -> _FetchGroup:
        offsets = self.offsets.committed.get(group_id, {})
        unstable = self.offsets.unstable.get(group_id, set()) if require_stable else set()
        if topics is None:
            by_topic: dict[str, list[int]] = {}
            for part in offsets:
                by_topic.setdefault(part.topic, []).append(part.partition)
            topics = [(name, ZERO_UUID, numbers) for name, numbers in by_topic.items()]
        response = _FetchGroup(group_id=group_id)
        for name, topic_id, numbers in topics:
            told = _FetchTopic(name=name, topic_id=topic_id)
            response.topics.append(told)
            for number in numbers:
                part = TopicPartition(name, number)
                answer = _FetchPart(partition_index=number, committed_offset=_NO_OFFSET, metadata="")
                told.partitions.append(answer)
                found = offsets.get(part)
                if part in unstable:
                    answer.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                elif found is not None and not _is_of_another(found.topic_id, topic_id):
                    answer.committed_offset = found.offset
                    answer.committed_leader_epoch = found.leader_epoch
                    answer.metadata = found.metadata
        return response

    def delete_offsets(self, request: OffsetDeleteRequest, caller: Caller, now_ms: int) -> ShardEffects:
        """OffsetDelete: of topics that the group does not read (KIP-496)."""
        group = self.groups.get(request.group_id)
        error = ErrorCode.NONE
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            error = ErrorCode.NON_EMPTY_GROUP
        if group is None or error is not ErrorCode.NONE:
            return ShardEffects(answers=[(caller.ticket, OffsetDeleteResponse(error_code=error))])
        response = OffsetDeleteResponse()
        known = {part for part, _ in self.offsets.latest(group.id)} | self.offsets.unstable.get(group.id, set())
        gone: list[TopicPartition] = []
        for topic in request.topics:
            told = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(told)
            for each in topic.partitions:
                answer = told.OffsetDeleteResponsePartition(partition_index=each.partition_index)
                told.partitions.append(answer)
                if group.is_subscribed(topic.name):
                    answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif TopicPartition(topic.name, each.partition_index) in known:
                    gone.append(TopicPartition(topic.name, each.partition_index))
        if not gone:
            return ShardEffects(answers=[(caller.ticket, response)])

        def done(error: ErrorCode, now_ms: int, effects: ShardEffects) -> None:
            told = response if error is ErrorCode.NONE else OffsetDeleteResponse(error_code=write_error(error))
            effects.answers.append((caller.ticket, told))

        writes = self._deletions([(group.id, part) for part in gone])
        writes[-1].done = done
        return ShardEffects(writes=writes)

    # --- groups -------------------------------------------------------------------------------------------------------

    def delete_group(self, group_id: str, ticket: Ticket) -> ShardEffects:
        """DeleteGroups of one group; the ticket gets the error code."""
        group = self.groups.get(group_id)
        error = ErrorCode.NONE
        if group is None:
            error = ErrorCode.NON_EMPTY_GROUP if group_id in self._modern else ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not State.EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        if group is None or error is not ErrorCode.NONE:
            return ShardEffects(answers=[(ticket, error)])
        parts = {part for part, _ in self.offsets.latest(group_id)} | self.offsets.unstable.get(group_id, set())

        def done(error: ErrorCode, now_ms: int, effects: ShardEffects) -> None:
            effects.answers.append((ticket, write_error(error)))

        writes = self._deletions([(group_id, part) for part in parts], [group])
        writes[-1].done = done
        return ShardEffects(writes=writes)

    def _deletions(self, parts: Iterable[tuple[str, TopicPartition]], groups: Iterable[Group] = ()) -> list[Write]:
        """Tombstones, offsets first: a group never goes before its offsets, nor if one of them could not.

        The last write is appended only if all were; so its ``done`` has the first error.
        """
        changes: list[tuple[str, TopicPartition, Committed | None]] = [(group, part, None) for group, part in parts]
        ends = list(groups)
        entries = [offset_tombstone(group, part) for group, part, _ in changes]
        entries += [group_tombstone(group.id) for group in ends]
        writes: list[Write] = []
        begin = 0
        for chunk in chunks(entries, self._batch_bytes()):
            end = begin + len(chunk)
            write = Write(chunk, changes=changes[begin:end])
            if of_write := ends[max(begin - len(changes), 0) : max(end - len(changes), 0)]:
                write.appended = partial(self._gone, of_write)
            if of_write or end == len(entries):
                write.needs = tuple(writes)
            writes.append(write)
            begin = end
        return writes

    def _gone(self, groups: list[Group], effects: ShardEffects) -> None:
        for group in groups:
            if self.groups.get(group.id) is group and group.state is State.EMPTY:
                self._members.end(group, ErrorCode.COORDINATOR_NOT_AVAILABLE, effects)
                del self.groups[group.id]
                self.offsets.forget_group(group.id)

    def describe(self, group_id: str, version: int) -> _Described:
        """DescribeGroups of one group; one that is not there is Dead."""
        group = self.groups.get(group_id)
        if group is None:
            answer = _Described(group_id=group_id, group_state=State.DEAD)
            if version >= _NOT_FOUND_SINCE:
                answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                answer.error_message = f"Group {group_id} not found."
            return answer
        answer = _Described(
            group_id=group_id, group_state=group.state, protocol_type=group.protocol_type or "", protocol_data=""
        )
        is_stable = group.state is State.STABLE
        if is_stable:
            answer.protocol_data = group.protocol_name or ""
        for member in group.members.values():
            answer.members.append(
                _Described.DescribedGroupMember(
                    member_id=member.id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                    member_assignment=member.assignment,
                )
            )
        return answer

    def list_groups(self) -> list[_Listed]:
        """ListGroups: all of them."""
        return [
            _Listed(
                group_id=group.id, protocol_type=group.protocol_type or "", group_state=group.state, group_type=CLASSIC
            )
            for group in self.groups.values()
        ]

    # --- what goes by itself ------------------------------------------------------------------------------------------

    def _schedule_cleaning(self, now_ms: int) -> None:
        self._timers.set(_CLEANING, now_ms + self._settings.retention_check_interval_ms, self._clean)

    def _clean(self, now_ms: int, effects: ShardEffects) -> None:
        """Delete offsets whose retention has passed, and empty groups that have none."""
        self._clean_some(iter(list(self.groups)), now_ms, effects)

    def _clean_some(self, names: Iterator[str], now_ms: int, effects: ShardEffects) -> None:
        """Clean groups for one turn; a group is cleaned as a whole, since it may have members afterwards."""
        parts: list[tuple[str, TopicPartition]] = []
        groups = []
        turn = Turn()
        for name in names:
            group = self.groups.get(name)
            if group is None:
                continue
            gone, is_all = self.offsets.expired(group, self._settings.retention_ms, now_ms)
            parts += [(name, part) for part in gone]
            if is_all and group.state is State.EMPTY and not group.pending_members:
                groups.append(group)
            if turn.is_over(1 + len(self.offsets.committed.get(name, ()))):
                self._timers.set(_CLEANING, now_ms, partial(self._clean_some, names))
                break
        else:
            self._schedule_cleaning(now_ms)
        if parts or groups:
            effects.writes += self._deletions(parts, groups)

    def topics_deleted(self, topics: Mapping[Uuid, str], now_ms: int) -> ShardEffects:
        """Topics, name by id, are gone: their offsets go, too; not those of others that were made under their names.

        Where it was not stored whose an offset is, its topic's name decides, as in Kafka.
        """
        names, ids = set(topics.values()), {ZERO_UUID, *topics}
        return self._offsets_gone(lambda part, topic_id: part.topic in names and topic_id in ids, now_ms)

    def partitions_deleted(self, parts: Collection[TopicPartition], now_ms: int) -> ShardEffects:
        """Partitions are gone, whose topics may have no ids: their offsets go, too."""
        return self._offsets_gone(lambda part, topic_id: part in parts, now_ms)

    def _offsets_gone(self, is_gone: Callable[[TopicPartition, Uuid], bool], now_ms: int) -> ShardEffects:
        """Doom the offsets for which ``is_gone`` is true of partition and topic id; in open transactions, at once."""
        effects = ShardEffects()
        parts: list[tuple[str, TopicPartition]] = []
        for group in self.offsets.groups | self.offsets.unstable.keys():
            known = dict(self.offsets.latest(group))
            unstable = self.offsets.unstable.get(group, set())
            for part, value in known.items():
                if part not in unstable and is_gone(part, value.topic_id):
                    self._doomed.append((group, part, value))
            for part in unstable:
                if is_gone(part, known[part].topic_id if part in known else ZERO_UUID):
                    parts.append((group, part))
        if parts:
            effects.writes += self._deletions(parts)
        self._delete_doomed(now_ms, effects)
        return effects

    def _delete_doomed(self, now_ms: int, effects: ShardEffects) -> None:
        """Delete doomed offsets for one turn, but for those that were committed anew since, for another topic."""
        parts: dict[tuple[str, TopicPartition], None] = {}
        for _ in range(min(len(self._doomed), ITEMS)):
            group, part, value = self._doomed.popleft()
            if self.offsets.latest_of(group, part) is value and part not in self.offsets.unstable.get(group, ()):
                parts[group, part] = None
        if parts:
            effects.writes += self._deletions(parts)
        if self._doomed:
            self._timers.set(_DELETING, now_ms, self._delete_doomed)

    # --- look inside --------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise InvariantError if something does not hold that always must. For tests."""
        for name, group in self.groups.items():
            if name != group.id:
                raise InvariantError(f"group {group.id} stands under {name}")
            group.check_invariants()
            for member in group.members.values():
                if not member.is_alive and ("session", name, member.id) not in self._timers:
                    raise InvariantError(f"nothing ends the session of {member.id} in group {name}")
            if group.state is State.PREPARING_REBALANCE and ("joining", name) not in self._timers:
                raise InvariantError(f"nothing ends the rebalance of group {name}")
            is_syncing = group.state is State.COMPLETING_REBALANCE and group.pending_sync
            if is_syncing and ("syncing", name) not in self._timers:
                raise InvariantError(f"nothing ends the wait for SyncGroups in group {name}")


def commit_error(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The answer that says one error of all partitions."""
    kind = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        topics=[
            kind(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def txn_commit_error(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The answer that says one error of all partitions."""
    kind = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    return TxnOffsetCommitResponse(
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    kind.TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _java_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _java_sum(one: int, other: int) -> int:
    """The sum of two 64-bit numbers, with the overflow of Java."""
    return (one + other + 2**63) % 2**64 - 2**63


def _is_of_another(known: Uuid, asked: Uuid) -> bool:
    return known != ZERO_UUID and asked != ZERO_UUID and known != asked
