"""A shard of consumer groups, with a log that a test commits, and clients whose answers it collects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from kraftcore.core.batch import Record, RecordBatch, build_records_batch
from kraftcore.plugins.broker.groups.effects import Caller, ShardEffects, Write
from kraftcore.plugins.broker.groups.group import Group
from kraftcore.plugins.broker.groups.loading import Loaded, Loader
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.groups.shard import Shard
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest
from kraftcore.protocol.messages.sync_group import SyncGroupRequest

NAME = TopicPartition("__consumer_offsets", 0)
SESSION_MS, REBALANCE_MS = 10_000, 30_000
BATCH_BYTES = 500  # of a batch of tombstones


def subscription(*topics: str) -> bytes:
    """What a consumer says in JoinGroup, in version 0 of its protocol."""
    body = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return bytes(2) + len(topics).to_bytes(4) + body + b"\xff" * 4


class GroupRequest:
    """A request that was sent; ``response`` is what came, or None."""

    def __init__(self) -> None:
        self.response: Any = None
        self.count = 0

    def answer(self, response: Any, /) -> None:
        assert self.count == 0, f"a second answer: {response}, after {self.response}"
        self.count += 1
        self.response = response

    @property
    def error(self) -> ErrorCode | None:
        """Its error code; None: it waits."""
        return None if self.response is None else ErrorCode(getattr(self.response, "error_code", self.response))


class GroupRig:
    """A shard, the time, its log.

    Attributes:
        now_ms: the time.
        log: what was appended, committed or not.
        uncommitted: writes that wait, the oldest first.
        commits_at_once: whether what is appended is committed in the same moment.
        fails: the error that appends end with, or None.
        refuses: the error that the append of a write ends with.
    """

    def __init__(self, loaded: Loaded | None = None, now_ms: int = 1000, *, first_id: int = 1, **settings: Any) -> None:
        self.now_ms = now_ms
        self.log: list[tuple[bytes, bytes | None]] = []
        self.uncommitted: list[Write] = []
        self.commits_at_once = True
        self.fails: ErrorCode | None = None
        self.refuses: Callable[[Write], ErrorCode] = lambda write: ErrorCode.NONE
        self.settings = GroupSettings(**settings)
        self._ids = count(first_id)
        self.shard = Shard(self.settings, lambda: f"{next(self._ids)}", loaded or Loaded(), now_ms, lambda: BATCH_BYTES)
        self.carry_out(self.shard.begin(now_ms))

    def carry_out(self, effects: ShardEffects) -> None:
        for write in effects.writes:
            assert write.entries
            error = self.fails if self.fails is not None else write.refusal or self.refuses(write)
            if error:
                self.carry_out(self.shard.failed(write, error, self.now_ms))
                continue
            self.log += write.entries
            self.carry_out(self.shard.appended(write, self.now_ms))
            self.uncommitted.append(write)
            if self.commits_at_once:
                self.commit()
        for ticket, response in effects.answers:
            ticket.answer(response)
        self.shard.check_invariants()

    def commit(self) -> None:
        """Everything appended is committed."""
        while self.uncommitted:
            self.carry_out(self.shard.committed(self.uncommitted.pop(0), self.now_ms))

    def after(self, delay_ms: int) -> None:
        """Let time go by; timers in between come at their times."""
        end_ms = self.now_ms + delay_ms
        while (due_ms := self.shard.due_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.carry_out(self.shard.expire(self.now_ms))
        self.now_ms = end_ms

    def gather(self) -> None:
        """Let the first generation of a group begin: who came at once made it wait twice as long."""
        self.after(2 * self.settings.initial_rebalance_delay_ms)

    def group(self, name: str = "g") -> Group:
        return self.shard.groups[name]

    def batches(self) -> list[RecordBatch]:
        """The log as batches of one record."""
        return [
            RecordBatch(build_records_batch([Record(value, key)], timestamp_ms=1, base_offset=offset))
            for offset, (key, value) in enumerate(self.log)
        ]

    def reload(self, **settings: Any) -> GroupRig:
        """Another coordinator, from the same log; it gives out no member id that this one gave out."""
        loader = Loader(NAME)
        for batch in self.batches():
            loader.add(batch)
        return GroupRig(loader.finish(self.now_ms), self.now_ms, first_id=next(self._ids), **settings)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, event: Any, request: Any, version: int, client: str = "c") -> GroupRequest:
        asked = GroupRequest()
        self.carry_out(event(request, Caller(asked, version, client, "/10.0.0.1"), self.now_ms))
        return asked

    def join(
        self,
        member: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        topics: tuple[str, ...] = ("t",),
        protocols: dict[str, bytes] | None = None,
        kind: str = "consumer",
        version: int = 9,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> GroupRequest:
        listed = {"range": subscription(*topics)} if protocols is None else protocols
        of = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[of(name=name, metadata=metadata) for name, metadata in listed.items()],
        )
        return self._ask(self.shard.join, request, version)

    def enter(self, **more: Any) -> tuple[str, GroupRequest]:
        """Join as clients do: with the member id that the first answer brings."""
        first = self.join(**more)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED, first.response
        return first.response.member_id, self.join(first.response.member_id, **more)

    def sync(
        self,
        member: str,
        generation: int,
        given: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
    ) -> GroupRequest:
        of = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=[of(member_id=name, assignment=what) for name, what in (given or {}).items()],
        )
        return self._ask(self.shard.sync, request, 5)

    def heartbeat(self, member: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        error = self._ask(self.shard.heartbeat, request, 4).error
        assert error is not None
        return error

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> GroupRequest:
        of = LeaveGroupRequest.MemberIdentity
        told = [of(member_id=member, group_instance_id=instance) for member, instance in members]
        return self._ask(self.shard.leave, LeaveGroupRequest(group_id=group, members=told), 5)

    def commit_offsets(
        self,
        offsets: dict[tuple[str, int], int],
        member: str = "",
        generation: int = -1,
        *,
        group: str = "g",
        instance: str | None = None,
        metadata: str = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> GroupRequest:
        of = OffsetCommitRequest.OffsetCommitRequestTopic
        topics = [
            of(
                name=topic,
                partitions=[
                    of.OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for (topic, number), offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=topics,
        )
        return self._ask(self.shard.commit_offsets, request, version)

    def offsets(self, group: str = "g", *, require_stable: bool = False) -> dict[tuple[str, int], int] | GroupRequest:
        """All of a group's, or the request while it waits."""
        asked = GroupRequest()
        self.carry_out(self.shard.fetch_offsets(group, None, asked, require_stable=require_stable))
        if asked.response is None:
            return asked
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in asked.response.topics
            for each in topic.partitions
        }

    def delete_offsets(self, *parts: tuple[str, int], group: str = "g") -> GroupRequest:
        of = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics = [
            of(name=topic, partitions=[of.OffsetDeleteRequestPartition(partition_index=number)])
            for topic, number in parts
        ]
        return self._ask(self.shard.delete_offsets, OffsetDeleteRequest(group_id=group, topics=topics), 0)

    def delete(self, group: str = "g") -> GroupRequest:
        asked = GroupRequest()
        self.carry_out(self.shard.delete_group(group, asked))
        return asked

    def stable(self, members: int = 2, **more: Any) -> list[str]:
        """A stable group of so many members; each has its own name as assignment."""
        entered = [self.enter(**more) for _ in range(members)]
        self.gather()
        assert all(join.error is ErrorCode.NONE for _, join in entered)
        generation = entered[0][1].response.generation_id
        given = {name: name.encode() for name, _ in entered}
        synced = [
            (
                name,
                self.sync(
                    name,
                    generation,
                    given if join.response.leader == name else None,
                    kind=join.response.protocol_type,
                    protocol=join.response.protocol_name,
                ),
            )
            for name, join in entered
        ]
        assert all(sync.response.assignment == name.encode() for name, sync in synced)
        return [name for name, _ in entered]
