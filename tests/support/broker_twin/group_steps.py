"""Requests of groups' members."""

from __future__ import annotations

import random
from typing import Any

from conformance.target import PATIENCE

from broker_twin.side import Side
from broker_twin.world import Kind, Params, World, draw_place
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest
from kraftcore.protocol.messages.list_groups import ListGroupsRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kraftcore.protocol.messages.sync_group import SyncGroupRequest

SUBSCRIPTION = bytes([0, 0, 0, 0, 0, 0, 255, 255, 255, 255])  # of a consumer, to nothing


def draw_coordinator(rng: random.Random, world: World) -> Params:
    return {"keys": [world.group(rng)], "type": rng.choice((0, 0, 0, 0, 3))}


def make_coordinator(params: Params, side: Side) -> Any:
    if params["version"] < 4:
        return FindCoordinatorRequest(key=params["keys"][0], key_type=params["type"])
    return FindCoordinatorRequest(key_type=params["type"], coordinator_keys=params["keys"])


def draw_join(rng: random.Random, world: World) -> Params:
    group = world.group(rng)
    known = [name for name in world.members if name.startswith(group)]
    member = rng.choice(known) if known and rng.random() < 0.7 else f"{group}-m{len(world.members)}"
    if member not in world.members:
        world.members.append(member)
    return {
        "group": group,
        "member": member if rng.random() < 0.93 else rng.choice(("", "unknown")),
        "static": rng.choice((None, None, None, "i1", "i2")),
        "type": "consumer" if rng.random() < 0.95 else rng.choice(("", "other")),
        "protocols": rng.choice((["range"], ["range", "roundrobin"], ["other"], [])),
        "session": rng.choice((600_000, 600_000, 600_000, 1, 5999, 2**31 - 1)),
    }


def make_join(params: Params, side: Side) -> Any:
    kind = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        group_id=params["group"],
        session_timeout_ms=params["session"],
        rebalance_timeout_ms=_rebalance_ms(params["group"]),
        member_id=_member(params, side),
        group_instance_id=params["static"] if params["version"] >= 5 else None,
        protocol_type=params["type"],
        protocols=[kind(name=name, metadata=SUBSCRIPTION) for name in params["protocols"]],
    )


def _rebalance_ms(group: str) -> int:
    """How long those who know each other wait for who does not come, and a new generation for who does not sync.

    Each group's own: the wait of one would else end when the other's does, and what is asked next would be answered
    from before it on one side, and from after it on the other. A slow machine has more patience: a member whose next
    request comes too late is removed, perhaps on one side alone.
    """
    return round(PATIENCE * (1500 + 600 * int(group[-1]) if group[-1:].isdigit() else 1500))


def _member(params: Params, side: Side) -> str:
    name: str = params["member"]
    return side.members.get(name, "unknown-member" if name == "unknown" else "")


def learn_member(params: Params, answer: Any, side: Side) -> None:
    if answer.member_id:
        side.members.setdefault(params["member"], answer.member_id)
    if answer.error_code == 0:
        side.generations[params["group"]] = answer.generation_id


def draw_member(rng: random.Random, world: World) -> Params:
    group = world.group(rng)
    known = [name for name in world.members if name.startswith(group)]
    return {
        "group": group,
        "member": rng.choice(known) if known and rng.random() < 0.9 else rng.choice(("", "unknown")),
        "generation": 0 if rng.random() < 0.9 else rng.choice((1, -1, -100)),
        "static": rng.choice((None, None, None, None, "i1", "i2")),
        "type": rng.choice((None, "consumer", "consumer", "other")),
        "protocol": rng.choice((None, "range", "range", "roundrobin")),
        "reason": rng.choice((None, "why")),
    }


def _generation(params: Params, side: Side) -> int:
    return side.generations.get(params["group"], -1) + int(params["generation"])


def make_sync(params: Params, side: Side) -> Any:
    kind = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        group_id=params["group"],
        generation_id=_generation(params, side),
        member_id=_member(params, side),
        group_instance_id=params["static"] if params["version"] >= 3 else None,
        protocol_type=params["type"],
        protocol_name=params["protocol"],
        assignments=[
            kind(member_id=member, assignment=name.encode())
            for name, member in side.members.items()
            if name.startswith(params["group"])
        ],
    )


def make_heartbeat(params: Params, side: Side) -> Any:
    return HeartbeatRequest(
        group_id=params["group"],
        generation_id=_generation(params, side),
        member_id=_member(params, side),
        group_instance_id=params["static"] if params["version"] >= 3 else None,
    )


def make_leave(params: Params, side: Side) -> Any:
    one = LeaveGroupRequest.MemberIdentity(
        member_id=_member(params, side), group_instance_id=params["static"], reason=params["reason"]
    )
    if params["version"] < 3:
        return LeaveGroupRequest(group_id=params["group"], member_id=_member(params, side))
    return LeaveGroupRequest(group_id=params["group"], members=[one])


def draw_commit(rng: random.Random, world: World) -> Params:
    params = draw_member(rng, world) | draw_place(rng, world)
    if rng.random() < 0.6:
        params |= {"member": "", "simple": True}
    return params | {
        "offset": rng.choice((0, 5, 100, -1, 2**63 - 1)),
        "text": rng.choice((None, "", "about")) if rng.random() < 0.5 else "",
        "leader_epoch": rng.choice((-1, 0, 3)),
    }


def make_commit(params: Params, side: Side) -> Any:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    one = kind.OffsetCommitRequestPartition(
        partition_index=params["partition"],
        committed_offset=params["offset"],
        committed_leader_epoch=params["leader_epoch"],
        committed_metadata=params["text"],
    )
    simple = params.get("simple", False)
    return OffsetCommitRequest(
        group_id=params["group"],
        generation_id_or_member_epoch=-1 if simple else _generation(params, side),
        member_id=_member(params, side),
        group_instance_id=None if simple or params["version"] < 7 else params["static"],
        topics=[kind(name=params["topic"], topic_id=side.topic_id(params["topic"]), partitions=[one])],
    )


def draw_committed(rng: random.Random, world: World) -> Params:
    return draw_place(rng, world) | {"group": world.group(rng), "all": rng.random() < 0.4, "stable": rng.random() < 0.2}


def make_committed(params: Params, side: Side) -> Any:
    old, new = OffsetFetchRequest.OffsetFetchRequestTopic, OffsetFetchRequest.OffsetFetchRequestGroup
    name, numbers = params["topic"], [params["partition"], 0]
    one = new.OffsetFetchRequestTopics(name=name, topic_id=side.topic_id(name), partition_indexes=numbers)
    if params["version"] < 8:
        return OffsetFetchRequest(
            group_id=params["group"],
            topics=None if params["all"] and params["version"] > 1 else [old(name=name, partition_indexes=numbers)],
            require_stable=params["stable"] and params["version"] == 7,
        )
    return OffsetFetchRequest(
        groups=[new(group_id=params["group"], topics=None if params["all"] else [one])],
        require_stable=params["stable"],
    )


def draw_group(rng: random.Random, world: World) -> Params:
    return {"group": world.group(rng), "authorized": rng.random() < 0.3}


def make_describe_groups(params: Params, side: Side) -> Any:
    return DescribeGroupsRequest(groups=[params["group"]], include_authorized_operations=params["authorized"])


def make_delete_groups(params: Params, side: Side) -> Any:
    return DeleteGroupsRequest(groups_names=[params["group"]])


def draw_list_groups(rng: random.Random, world: World) -> Params:
    return {
        "states": rng.choice(([], [], ["Stable"], ["empty"], ["PREPARINGREBALANCE", "Empty"], ["Nothing"])),
        "types": rng.choice(([], [], ["classic"], ["Consumer"], ["nothing"])),
    }


def make_list_groups(params: Params, side: Side) -> Any:
    return ListGroupsRequest(states_filter=params["states"], types_filter=params["types"])


def draw_offset_delete(rng: random.Random, world: World) -> Params:
    return draw_place(rng, world) | {"group": world.group(rng)}


def make_offset_delete(params: Params, side: Side) -> Any:
    kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
    one = kind.OffsetDeleteRequestPartition(partition_index=params["partition"])
    return OffsetDeleteRequest(group_id=params["group"], topics=[kind(name=params["topic"], partitions=[one])])


KINDS = {
    "coordinator": Kind(FindCoordinatorRequest, 3, draw_coordinator, make_coordinator),
    "join": Kind(JoinGroupRequest, 8, draw_join, make_join, learn_member, 1),
    "sync": Kind(SyncGroupRequest, 6, draw_member, make_sync),
    "heartbeat": Kind(HeartbeatRequest, 5, draw_member, make_heartbeat),
    "leave": Kind(LeaveGroupRequest, 3, draw_member, make_leave),
    "commit": Kind(OffsetCommitRequest, 8, draw_commit, make_commit),
    "committed": Kind(OffsetFetchRequest, 8, draw_committed, make_committed),
    "describe-groups": Kind(DescribeGroupsRequest, 4, draw_group, make_describe_groups),
    "list-groups": Kind(ListGroupsRequest, 2, draw_list_groups, make_list_groups),
    "delete-groups": Kind(DeleteGroupsRequest, 2, draw_group, make_delete_groups),
    "offset-delete": Kind(OffsetDeleteRequest, 2, draw_offset_delete, make_offset_delete),
}
