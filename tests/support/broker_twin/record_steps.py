"""Requests that write and read records."""

from __future__ import annotations

import random
from typing import Any

from broker_twin import batches
from broker_twin.side import Side
from broker_twin.world import Kind, Params, World, epoch
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

ZIPPED = "zipped"
"""What the name of the topic ends with that brokers compress for."""


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
    params["others"] = rng.sample(sorted(world.topics), rng.randint(1, 2)) if rng.random() < 0.1 else []
    return params


def make_produce(params: Params, side: Side) -> Any:
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=params["partition"], records=batches.bytes_of(params, side))]
    if params["more"]:
        data.append(topic.PartitionProduceData(index=params["partition"] + 1, records=batches.bytes_of(params, side)))
    named = [topic(name=params["topic"], topic_id=side.topic_id(params["topic"]), partition_data=data)]
    for name in params["others"]:
        other = topic.PartitionProduceData(index=0, records=batches.bytes_of(params | {"producer": ""}, side))
        named.append(topic(name=name, topic_id=side.topic_id(name), partition_data=[other]))
    return ProduceRequest(acks=params["acks"], timeout_ms=5000, topic_data=named)


def draw_silent_produce(rng: random.Random, world: World) -> Params:
    return draw_produce(rng, world) | {"acks": 0}


def play_silent_produce(params: Params, side: Side) -> list[Any]:
    """Nobody answers a produce without acks; what is asked next tells whether the connection lives."""
    side.send("client", make_produce(params, side), params["version"])
    place = params | {"when": -1, "epoch": -1, "isolation": 0, "replica": -1, "twice": False}
    return [side.ask("client", make_offsets(place, side), 7)]


def draw_markers(rng: random.Random, world: World) -> Params:
    places = sorted({world.partition(rng) for _ in range(rng.choice((1, 1, 2, 3)))})
    return {
        "producer": rng.choice(world.producers) if world.producers and rng.random() < 0.8 else "nobody",
        "epoch_delta": rng.choice((0, 0, 0, 1, -1, 3)),
        "commits": rng.random() < 0.5,
        "places": places,
        "coordinator_epoch": rng.choice((0, 0, 0, 1, 2, -1)),
        "transaction_version": rng.choice((0, 0, 1, 2)),
        "twice": rng.random() < 0.1,
    }


def make_markers(params: Params, side: Side) -> Any:
    kind = WriteTxnMarkersRequest.WritableTxnMarker
    topics: dict[str, list[int]] = {}
    for name, number in params["places"]:
        topics.setdefault(name, []).append(number)
    producer_id, epoch = side.producers.get(params["producer"], (2**40, 0))
    marker = kind(
        producer_id=producer_id,
        producer_epoch=max(epoch + params["epoch_delta"], 0),
        transaction_result=params["commits"],
        topics=[kind.WritableTxnMarkerTopic(name=name, partition_indexes=found) for name, found in topics.items()],
        coordinator_epoch=params["coordinator_epoch"],
        transaction_version=params["transaction_version"],
    )
    return WriteTxnMarkersRequest(markers=[marker] * (1 + params["twice"]))


def draw_long_poll(rng: random.Random, world: World) -> Params:
    params = draw_produce(rng, world) | {"acks": 1, "more": False, "others": []}
    params |= {
        "fetch_version": rng.randint(*FetchRequest.schema.stable_versions),
        "elsewhere": (elsewhere := rng.random() < 0.3),
        "min_bytes": rng.choice((1, 1, 1, 100, 10_000)),
        "behind": rng.choice((0, 1)) if elsewhere else 0,  # else it may be answered before or after the write
        "isolation": rng.choice((0, 0, 1)),
        "max_bytes": rng.choice((1 << 20, 1, 0)),
    }
    return params


def play_long_poll(params: Params, side: Side) -> list[Any]:
    """A Fetch from the end waits while somebody writes there, or elsewhere."""
    place = params | {"when": -1, "epoch": -1, "isolation": 0, "replica": -1, "twice": False}
    told = side.ask("client", make_offsets(place, side), 7)
    asked = {
        "topic": params["topic"],
        "partition": params["partition"],
        "offset": max(told.topics[0].partitions[0].offset - params["behind"], 0),
        "epoch": -1,
        "last_epoch": -1,
        "max_bytes": params["max_bytes"],
    }
    fetch = {
        "wanted": [asked],
        "max_bytes": 1 << 25,
        "min_bytes": params["min_bytes"],
        "max_wait": 300,
        "isolation": params["isolation"],
        "session": None,
        "epoch": -1,
        "forgotten": [],
        "replica": -1,
        "version": params["fetch_version"],
    }
    request = make_fetch(fetch, side)
    written = make_produce(params | ({"partition": params["partition"] + 1} if params["elsewhere"] else {}), side)
    side.send("waiter", request, fetch["version"])
    answer = side.ask("client", written, params["version"])
    return [answer, side.receive("waiter", request, fetch["version"])]


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
                "epoch": epoch(rng),
                "last_epoch": -1 if rng.random() < 0.85 else rng.choice((0, 0, 1, 7)),
                "max_bytes": rng.choice((1 << 20, 1 << 20, 1 << 20, 0, 1, 60, 100, 500)),
            }
        )
    limits = (1 << 25, 1 << 25, 1 << 25, 0, 1, 100, 1000)
    if any(each["topic"].endswith(ZIPPED) for each in wanted):  # two libraries compress to other sizes
        limits = (1 << 25, 0)
        wanted = [each | {"max_bytes": rng.choice((0, 1 << 20))} for each in wanted]
    params: Params = {
        "wanted": wanted,
        "max_bytes": rng.choice(limits),
        "min_bytes": rng.choice((0, 0, 0, 1, 100)),
        "max_wait": rng.choice((0, 0, 0, 5)),
        "isolation": rng.choice((0, 0, 1)),
        "session": None,
        "epoch": -1,
        "forgotten": [],
        "replica": -1 if rng.random() < 0.93 else rng.choice((1, 77, -2)),
    }
    if rng.random() < 0.3:
        params["wanted"] = [each for each in wanted if not each["topic"].endswith(ZIPPED)]  # sizes of later answers
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
        "epoch": epoch(rng),
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
        "current": epoch(rng),
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


KINDS = {
    "produce": Kind(ProduceRequest, 30, draw_produce, make_produce),
    "init-producer": Kind(InitProducerIdRequest, 4, draw_init_producer, make_init_producer, learn_producer),
    "silent-produce": Kind(ProduceRequest, 4, draw_silent_produce, play=play_silent_produce),
    "markers": Kind(WriteTxnMarkersRequest, 5, draw_markers, make_markers),
    "long-poll": Kind(ProduceRequest, 4, draw_long_poll, play=play_long_poll),
    "fetch": Kind(FetchRequest, 30, draw_fetch, make_fetch, learn_session),
    "list-offsets": Kind(ListOffsetsRequest, 15, draw_offsets, make_offsets),
    "epoch-ends": Kind(OffsetForLeaderEpochRequest, 6, draw_epoch_ends, make_epoch_ends),
    "delete-records": Kind(DeleteRecordsRequest, 4, draw_delete_records, make_delete_records),
}
