"""The requests of a script: how each is drawn, built for a side, and what its answer teaches.

A step is plain data: a kind, a version, parameters. Names in it stand for what each side chose by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker_twin import batches
from broker_twin.side import Side
from kraftcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.heartbeat import HeartbeatRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.join_group import JoinGroupRequest
from kraftcore.protocol.messages.leave_group import LeaveGroupRequest
from kraftcore.protocol.messages.list_groups import ListGroupsRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_commit import OffsetCommitRequest
from kraftcore.protocol.messages.offset_delete import OffsetDeleteRequest
from kraftcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.sync_group import SyncGroupRequest

SUBSCRIPTION = bytes([0, 0, 0, 0, 0, 0, 255, 255, 255, 255])  # of a consumer, to nothing
Params = dict[str, Any]


@dataclass
class World:
    """What the one who draws a script believes of it.

    Attributes:
        topics: partitions by name.
        ends: about how far a partition is.
        sequences: the next one, by producer, topic and partition.
        producers, sessions, members, groups: names so far; sessions with their next epochs.
    """

    topics: dict[str, int]
    prefix: str
    now_ms: int
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    sequences: dict[tuple[str, str, int], int] = field(default_factory=dict)
    producers: list[str] = field(default_factory=list)
    sessions: dict[str, int] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)

    def partition(self, rng: random.Random) -> tuple[str, int]:
        """Mostly one that is there."""
        topic = rng.choice(sorted(self.topics))
        if rng.random() < 0.04:
            topic = rng.choice((f"{self.prefix}-none", "", "a b", "__nothing"))
        count = self.topics.get(topic, 1)
        return topic, rng.randrange(count) if rng.random() < 0.95 else rng.choice((count, -1, 2**31 - 1))

    def offset(self, rng: random.Random, place: tuple[str, int]) -> int:
        """Mostly within the log."""
        end = self.ends.get(place, 0)
        if rng.random() < 0.15:
            return rng.choice((-1, -2, end + 1, end + 100, 2**63 - 1, -(2**63), 0))
        return rng.randint(0, end)

    def group(self, rng: random.Random) -> str:
        """One of few."""
        return f"{self.prefix}-g{rng.randrange(3)}" if rng.random() < 0.97 else rng.choice(("", f"{self.prefix}-none"))


def _epoch(rng: random.Random) -> int:
    return -1 if rng.random() < 0.8 else rng.choice((0, 0, 1, 5, -2, 2**31 - 1))


# --- records ----------------------------------------------------------------------------------------------------------


def draw_produce(rng: random.Random, world: World) -> Params:
    topic, partition = place = world.partition(rng)
    flaw = rng.choice(batches.FLAWS) if rng.random() < 0.3 else None
    params = batches.draw(rng, flaw) | {"topic": topic, "partition": partition, "now": world.now_ms}
    params["acks"] = rng.choice((-1, -1, -1, 1, 1, 1)) if rng.random() < 0.97 else rng.choice((2, -2))
    if world.producers and rng.random() < 0.5:
        producer = rng.choice(world.producers)
        expected = world.sequences.get((producer, *place), 0)
        wrong = rng.random() < 0.25
        params |= {
            "producer": producer,
            "sequence": rng.choice((expected + 1, max(expected - 1, 0), 0, 2**31 - 1, expected + 100, -1))
            if wrong
            else expected,
            "epoch_delta": rng.choice((1, -1, 5)) if rng.random() < 0.06 else 0,
        }
        if not wrong and flaw is None:
            world.sequences[producer, topic, partition] = expected + params["count"]
    if flaw is None:
        world.ends[place] = world.ends.get(place, 0) + params["count"]
    params["more"] = rng.random() < 0.1
    return params


def make_produce(params: Params, side: Side) -> Any:
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=params["partition"], records=batches.bytes_of(params, side))]
    if params["more"]:
        data.append(topic.PartitionProduceData(index=params["partition"] + 1, records=batches.bytes_of(params, side)))
    named = topic(name=params["topic"], topic_id=side.topic_id(params["topic"]), partition_data=data)
    return ProduceRequest(acks=params["acks"], timeout_ms=5000, topic_data=[named])


def draw_init_producer(rng: random.Random, world: World) -> Params:
    name = f"p{len(world.producers)}"
    params: Params = {"name": name, "again": None, "transactional": None, "epoch": -1}
    if rng.random() < 0.1:
        params["transactional"] = ""
    elif rng.random() < 0.2:
        params["epoch"] = rng.choice((0, 3))
    else:
        world.producers.append(name)
    return params


def make_init_producer(params: Params, side: Side) -> Any:
    return InitProducerIdRequest(
        transactional_id=params["transactional"],
        transaction_timeout_ms=1000,
        producer_epoch=params["epoch"] if params["version"] >= 3 else -1,
    )


def learn_producer(params: Params, answer: Any, side: Side) -> None:
    if answer.error_code == 0:
        side.producers[params["name"]] = (answer.producer_id, answer.producer_epoch)


def draw_fetch(rng: random.Random, world: World) -> Params:
    wanted = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = world.partition(rng)
        if any(each["topic"] == place[0] and each["partition"] == place[1] for each in wanted):
            continue
        wanted.append(
            {
                "topic": place[0],
                "partition": place[1],
                "offset": world.offset(rng, place),
                "epoch": _epoch(rng),
                "last_epoch": -1 if rng.random() < 0.85 else rng.choice((0, 0, 1, 7)),
                "max_bytes": rng.choice((1 << 20, 1 << 20, 1 << 20, 0, 1, 60, 100, 500)),
            }
        )
    params: Params = {
        "wanted": wanted,
        "max_bytes": rng.choice((1 << 25, 1 << 25, 1 << 25, 0, 1, 100, 1000)),
        "min_bytes": rng.choice((0, 0, 0, 1, 100)),
        "max_wait": rng.choice((0, 0, 0, 5)),
        "isolation": rng.choice((0, 0, 1)),
        "session": None,
        "epoch": -1,
        "forgotten": [],
        "replica": -1 if rng.random() < 0.93 else rng.choice((1, 77, -2)),
    }
    if rng.random() < 0.3:
        if not world.sessions or rng.random() < 0.2:
            name = f"s{len(world.sessions)}"
            world.sessions[name] = 1
            params |= {"session": name, "epoch": 0}
        else:
            name = rng.choice(sorted(world.sessions))
            params |= {"session": name, "epoch": world.sessions[name]}
            if rng.random() < 0.1:
                params["epoch"] = rng.choice((world.sessions[name] + 1, -1, 0, 2**31 - 1))
            else:
                world.sessions[name] += 1
            if rng.random() < 0.3:
                params["wanted"] = []
            if rng.random() < 0.2:
                params["forgotten"] = [world.partition(rng)]
    return params


def make_fetch(params: Params, side: Side) -> Any:
    topic = FetchRequest.FetchTopic
    topics: dict[str, Any] = {}
    for each in params["wanted"]:
        name = each["topic"]
        if name not in topics:
            topics[name] = topic(topic=name, topic_id=side.topic_id(name))
        topics[name].partitions.append(
            topic.FetchPartition(
                partition=each["partition"],
                current_leader_epoch=each["epoch"],
                fetch_offset=each["offset"],
                last_fetched_epoch=each["last_epoch"] if params["version"] >= 12 else -1,
                partition_max_bytes=each["max_bytes"],
            )
        )
    knows_sessions, by_state = params["version"] >= 7, params["version"] >= 15
    request = FetchRequest(
        replica_id=-1 if by_state else params["replica"],
        max_wait_ms=params["max_wait"],
        min_bytes=params["min_bytes"],
        max_bytes=params["max_bytes"],
        isolation_level=params["isolation"],
        session_id=side.sessions.get(params["session"], 0) if params["session"] and knows_sessions else 0,
        session_epoch=params["epoch"] if knows_sessions else -1,
        topics=list(topics.values()),
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=name, topic_id=side.topic_id(name), partitions=[number])
            for name, number in params["forgotten"]
            if knows_sessions
        ],
    )
    if by_state:
        request.replica_state = FetchRequest.ReplicaState(replica_id=params["replica"])
    return request


def learn_session(params: Params, answer: Any, side: Side) -> None:
    if params["session"] and answer.session_id:
        side.sessions[params["session"]] = answer.session_id


def draw_offsets(rng: random.Random, world: World) -> Params:
    topic, partition = world.partition(rng)
    if rng.random() < 0.5:
        when = rng.choice((-1, -2, -3, -4, -5, -6, -7))
    else:
        when = world.now_ms + rng.choice((0, 1, 3, 10, 39, 100, -1000, 100_000_000, -world.now_ms))
    return {
        "topic": topic,
        "partition": partition,
        "when": when,
        "epoch": _epoch(rng),
        "isolation": rng.choice((0, 0, 1)),
        "replica": -1 if rng.random() < 0.9 else rng.choice((1, 77, -2)),
        "twice": rng.random() < 0.05,
    }


def make_offsets(params: Params, side: Side) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(
        partition_index=params["partition"], current_leader_epoch=params["epoch"], timestamp=params["when"]
    )
    return ListOffsetsRequest(
        replica_id=params["replica"],
        isolation_level=params["isolation"],
        topics=[topic(name=params["topic"], partitions=[asked] * (1 + params["twice"]))],
        timeout_ms=5000,
    )


def draw_epoch_ends(rng: random.Random, world: World) -> Params:
    topic, partition = world.partition(rng)
    return {
        "topic": topic,
        "partition": partition,
        "epoch": rng.choice((0, 0, 0, 1, -1, 7, -2)),
        "current": _epoch(rng),
        "replica": rng.choice((-1, -1, -2, 1, 77)),
    }


def make_epoch_ends(params: Params, side: Side) -> Any:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = topic.OffsetForLeaderPartition(
        partition=params["partition"], current_leader_epoch=params["current"], leader_epoch=params["epoch"]
    )
    return OffsetForLeaderEpochRequest(
        replica_id=params["replica"], topics=[topic(topic=params["topic"], partitions=[asked])]
    )


def draw_delete_records(rng: random.Random, world: World) -> Params:
    place = world.partition(rng)
    return {"topic": place[0], "partition": place[1], "offset": world.offset(rng, place)}


def make_delete_records(params: Params, side: Side) -> Any:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    asked = topic.DeleteRecordsPartition(partition_index=params["partition"], offset=params["offset"])
    return DeleteRecordsRequest(topics=[topic(name=params["topic"], partitions=[asked])], timeout_ms=5000)


# --- what is there ----------------------------------------------------------------------------------------------------


def draw_metadata(rng: random.Random, world: World) -> Params:
    names = sorted({world.partition(rng)[0] for _ in range(rng.randint(1, 3))})
    return {"names": names, "by_id": rng.random() < 0.3}


def make_metadata(params: Params, side: Side) -> Any:
    kind = MetadataRequest.MetadataRequestTopic
    topics = [
        kind(name=None, topic_id=side.topic_id(name)) if params["by_id"] else kind(name=name)
        for name in params["names"]
    ]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=params["version"] < 4)


def draw_partitions(rng: random.Random, world: World) -> Params:
    names = sorted({world.partition(rng)[0] for _ in range(rng.randint(1, 3))} - {""}) or ["a b"]
    return {
        "names": names,
        "limit": rng.choice((2000, 1, 2, 0)),
        "cursor": [rng.choice(names), rng.choice((0, 1, 5, -1))] if rng.random() < 0.3 else None,
    }


def make_partitions(params: Params, side: Side) -> Any:
    kind = DescribeTopicPartitionsRequest
    cursor = params["cursor"]
    return kind(
        topics=[kind.TopicRequest(name=name) for name in params["names"]],
        response_partition_limit=params["limit"],
        cursor=kind.Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )


def make_producers(params: Params, side: Side) -> Any:
    kind = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[kind(name=params["topic"], partition_indexes=[params["partition"]])])


def draw_place(rng: random.Random, world: World) -> Params:
    topic, partition = world.partition(rng)
    return {"topic": topic, "partition": partition}


def make_log_dirs(params: Params, side: Side) -> Any:
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(topics=[kind(topic=params["topic"], partitions=[params["partition"]])])


# --- groups -----------------------------------------------------------------------------------------------------------


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
        rebalance_timeout_ms=1500,  # how long those who know each other wait for who does not come
        member_id=_member(params, side),
        group_instance_id=params["static"] if params["version"] >= 5 else None,
        protocol_type=params["type"],
        protocols=[kind(name=name, metadata=SUBSCRIPTION) for name in params["protocols"]],
    )


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


@dataclass(frozen=True)
class Kind:
    """A kind of step: its request's class, how often it is drawn, and the functions that the module text names."""

    request: Any
    weight: int
    draw: Callable[[random.Random, World], Params]
    make: Callable[[Params, Side], Any]
    learn: Callable[[Params, Any, Side], None] | None = None
    first: int = 0


KINDS = {
    "produce": Kind(ProduceRequest, 30, draw_produce, make_produce),
    "init-producer": Kind(InitProducerIdRequest, 4, draw_init_producer, make_init_producer, learn_producer),
    "fetch": Kind(FetchRequest, 30, draw_fetch, make_fetch, learn_session),
    "list-offsets": Kind(ListOffsetsRequest, 15, draw_offsets, make_offsets),
    "epoch-ends": Kind(OffsetForLeaderEpochRequest, 6, draw_epoch_ends, make_epoch_ends),
    "delete-records": Kind(DeleteRecordsRequest, 4, draw_delete_records, make_delete_records),
    "metadata": Kind(MetadataRequest, 4, draw_metadata, make_metadata),
    "partitions": Kind(DescribeTopicPartitionsRequest, 4, draw_partitions, make_partitions),
    "producers": Kind(DescribeProducersRequest, 3, draw_place, make_producers),
    "log-dirs": Kind(DescribeLogDirsRequest, 3, draw_place, make_log_dirs),
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


def script(seed: int, steps: int, topics: dict[str, int], prefix: str, now_ms: int) -> list[Params]:
    """A script of a seed; also the versions come from it."""
    rng = random.Random(seed)
    world = World(topics, prefix, now_ms)
    names, weights = list(KINDS), [kind.weight for kind in KINDS.values()]
    found = []
    for _ in range(steps):
        name = rng.choices(names, weights)[0]
        kind = KINDS[name]
        low, high = kind.request.schema.stable_versions
        low = max(low, kind.first)
        version = high if rng.random() < 0.3 else rng.randint(low, high)
        params = kind.draw(rng, world) | {"version": version}
        found.append({"kind": name, "version": version, "params": params})
        if name == "join":  # who does not sync in time is out of its group, and when that is nobody can tell
            more = {"generation": 0, "protocol": None, "reason": None, "version": 3}
            found.append({"kind": "sync", "version": 3, "params": params | more})
    return found
