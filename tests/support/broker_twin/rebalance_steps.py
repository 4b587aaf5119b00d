"""Groups of several members: each joins on a connection of its own, and the others with it, until all have synced.

The order of who comes is the same on both sides: who joins next waits until the group has noticed the one before.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from conformance.target import PATIENCE
from kafka_lab import wait_for

from broker_twin.group_steps import SUBSCRIPTION
from broker_twin.side import Side
from broker_twin.world import Kind, Params, World
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kraftcore.protocol.messages.sync_group import SyncGroupRequest

PROTOCOLS = (["range"], ["range", "roundrobin"], ["roundrobin", "range"], ["sticky", "range"])
ENDS = ("leaves", "comes again", "another of its id", "nobody comes", "other protocols", "nothing")
MEMBER_ID_REQUIRED = 79


def draw_rebalance(rng: random.Random, world: World) -> Params:
    world.members.append("")  # names of groups are counted
    return {
        "group": f"{world.prefix}-r{len(world.members)}",
        "topic": world.partition(rng)[0],
        "members": [
            {
                "protocols": rng.choice(PROTOCOLS),
                "static": f"s{number}" if rng.random() < 0.4 else None,
                "join": rng.randint(1, 9),  # before, a round waits for as long as a session
                "sync": rng.randint(*SyncGroupRequest.schema.stable_versions),
            }
            for number in range(rng.choice((1, 2, 2, 3)))
        ],
        "end": rng.choice(ENDS),
        "who": rng.randrange(3),
    }


class Play:
    """One group of one side, and what was answered so far."""

    def __init__(self, params: Params, side: Side) -> None:
        self.params, self.side = params, side
        self.group: str = params["group"]
        self.members: list[Params] = params["members"]
        self.ids: list[str] = []
        self.generation = -1
        self.answers: list[Any] = []

    def joining(self, number: int, protocols: list[str] | None = None) -> Any:
        """The request of a member."""
        member, kind = self.members[number], JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=600_000,
            rebalance_timeout_ms=round(1500 * PATIENCE),
            member_id=self.ids[number],
            group_instance_id=self._static(number, member["join"] >= 5),
            protocol_type="consumer",
            protocols=[kind(name=name, metadata=SUBSCRIPTION) for name in protocols or member["protocols"]],
        )

    def _static(self, number: int, is_known: bool) -> Any:
        return self.members[number]["static"] if is_known else None

    def join(self, number: int, protocols: list[str] | None = None) -> Any:
        """A member joins, and waits; what was sent."""
        request = self.joining(number, protocols)
        self.side.send(f"member {number}", request, self.members[number]["join"])
        return request

    def joined(self, number: int, request: Any) -> Any:
        """The answer to it."""
        answer = self.side.receive(f"member {number}", request, self.members[number]["join"])
        if not isinstance(answer, str):
            if answer.member_id:
                self.ids[number] = answer.member_id
                self.side.members.setdefault(f"{self.group}-{number}-{len(self.side.members)}", answer.member_id)
            if answer.error_code == 0:
                self.generation = answer.generation_id
        return answer

    def come(self, number: int) -> None:
        """A member comes, those who are there join again, and all sync."""
        self.ids.append("")
        request = self.join(number)
        if self.members[number]["join"] >= 4 and self._static(number, self.members[number]["join"] >= 5) is None:
            self.answers.append(self.joined(number, request))  # its id
            request = self.join(number)
        if number:
            self._wait_for(number + 1)
        self.gather({number: request})

    def _wait_for(self, count: int) -> None:
        """Until so many have joined, or nobody comes any more: then answers tell."""
        with suppress(TimeoutError):
            wait_for("members", lambda: self._has(count) or None, timeout_s=5)

    def _has(self, count: int) -> bool:
        group = self._described()
        return len(group.members) == count and group.group_state == "PreparingRebalance"

    def _is_settled(self) -> bool:
        return self._described().group_state not in ("PreparingRebalance", "CompletingRebalance")

    def _described(self) -> Any:
        return self.side.ask("setup", DescribeGroupsRequest(groups=[self.group]), 5).groups[0]

    def gather(self, waiting: dict[int, Any]) -> None:
        """Who is there hears of it, and joins again; then all sync."""
        for number in range(len(self.ids)):
            if number not in waiting:
                self.answers.append(self.beat(number))
                waiting[number] = self.join(number)
        self.answers += [self.joined(number, waiting[number]) for number in sorted(waiting)]
        self.sync()

    def sync(self) -> None:
        """The first member leads: it assigns."""
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        asked = []
        for number in reversed(range(len(self.ids))):
            version = self.members[number]["sync"]
            request = SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.ids[number],
                group_instance_id=self._static(number, version >= 3),
                protocol_type="consumer" if version >= 5 else None,
                assignments=[kind(member_id=each, assignment=b"%d" % place) for place, each in enumerate(self.ids)]
                if not number
                else [],
            )
            if version >= 5:
                request.protocol_name = self.answers[-1].protocol_name
            self.side.send(f"member {number}", request, version)
            asked.append((number, request, version))
        self.answers += [self.side.receive(f"member {number}", request, version) for number, request, version in asked]

    def beat(self, number: int) -> Any:
        """A heartbeat of a member."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.ids[number],
            group_instance_id=self.members[number]["static"] if self.members[number]["join"] >= 5 else None,
        )
        return self.side.ask("client", request, 4)

    def commit(self, number: int, generation: int) -> Any:
        """A commit of a member."""
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        one = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=7 + number, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.ids[number],
            group_instance_id=self.members[number]["static"] if self.members[number]["join"] >= 5 else None,
            topics=[kind(name=self.params["topic"], partitions=[one])],
        )
        return self.side.ask("client", request, 8)

    def end(self) -> None:
        """One of the ways on."""
        number = self.params["who"] % len(self.members)
        match self.params["end"]:
            case "leaves" if number:
                left = self.leave(number)
                self.answers += [left, *(self.beat(other) for other in range(number))]
                has_left = not isinstance(left, str) and left.members[0].error_code == 0
                if has_left and number == len(self.ids) - 1:  # else nothing begins that others could hear of
                    self.ids.pop()
                    self.gather({})
            case "comes again":
                request = self.join(number)
                if not number and len(self.ids) > 1:  # the leader asks for another round
                    self._wait_for(len(self.ids))
                    self.gather({number: request})
                else:
                    self.answers.append(self.joined(number, request))
                    self.sync()
            case "another of its id":
                old, self.ids[number] = self.ids[number], ""
                self.answers.append(self.joined(number, self.join(number)))
                new, self.ids[number] = self.ids[number], old
                self.answers += [self.beat(number), self.commit(number, self.generation)]
                self.ids[number] = new
                self.answers.append(self.beat(number))
            case "nobody comes" if len(self.ids) > 1:
                self.answers.append(self.joined(0, self.join(0)))  # the others are out of it when their time is over
                self.answers += [self.beat(other) for other in range(len(self.ids))]
            case "other protocols":
                request = self.join(number, ["range", "newer"])
                if len(self.ids) == 1:
                    self.answers.append(self.joined(number, request))
                else:
                    self._wait_for(len(self.ids))
                    self.gather({number: request})

    def leave(self, number: int) -> Any:
        """A member leaves."""
        one = LeaveGroupRequest.MemberIdentity(
            member_id=self.ids[number], group_instance_id=self.members[number]["static"], reason="enough"
        )
        return self.side.ask("client", LeaveGroupRequest(group_id=self.group, members=[one]), 5)

    def play(self) -> list[Any]:
        """All of it."""
        for number in range(len(self.members)):
            self.come(number)
        everybody = range(len(self.ids))
        self.answers += [self.beat(number) for number in everybody]
        self.answers += [self.commit(number, self.generation) for number in everybody]
        self.answers += [self.commit(0, self.generation - 1), self.commit(0, -1)]
        self.end()
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        for question, version in (
            (DescribeGroupsRequest(groups=[self.group]), 6),
            (OffsetFetchRequest(groups=[kind(group_id=self.group, topics=None)]), 8),
            (DeleteGroupsRequest(groups_names=[self.group]), 2),
        ):
            self.answers.append(self.side.ask("client", question, version))
        for number in range(len(self.ids)):
            self.answers.append(self.leave(number))
            self.side.close(f"member {number}")
        self.answers.append(self.side.ask("client", DeleteGroupsRequest(groups_names=[self.group]), 2))
        with suppress(TimeoutError):  # who could not leave is out when its time to join and to sync is over
            wait_for("the last round to be over", lambda: self._is_settled() or None, timeout_s=10)
        return self.answers


def play_rebalance(params: Params, side: Side) -> list[Any]:
    """Let the members join on one side, in the order drawn, and return what each was answered."""
    return Play(params, side).play()


KINDS = {"rebalance": Kind(JoinGroupRequest, 2, draw_rebalance, play=play_rebalance)}
