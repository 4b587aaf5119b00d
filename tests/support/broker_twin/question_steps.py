"""Questions about what is there."""

from __future__ import annotations

import random
from typing import Any

from broker_twin.side import Side
from broker_twin.world import Kind, Params, World, draw_place
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest


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


def make_log_dirs(params: Params, side: Side) -> Any:
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(topics=[kind(topic=params["topic"], partitions=[params["partition"]])])


KINDS = {
    "metadata": Kind(MetadataRequest, 4, draw_metadata, make_metadata),
    "partitions": Kind(DescribeTopicPartitionsRequest, 4, draw_partitions, make_partitions),
    "producers": Kind(DescribeProducersRequest, 3, draw_place, make_producers),
    "log-dirs": Kind(DescribeLogDirsRequest, 3, draw_place, make_log_dirs),
}
