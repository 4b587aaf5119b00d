"""Questions about what is there."""

from __future__ import annotations

import random
from typing import Any

from broker_twin.side import Side
from broker_twin.world import Kind, Params, World, draw_place
from kraftcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest
from kraftcore.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftcore.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kraftcore.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
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


def draw_cluster(rng: random.Random, world: World) -> Params:
    return {"authorized": rng.random() < 0.4, "endpoints": rng.choice((1, 1, 2, 0)), "fenced": rng.random() < 0.3}


def make_cluster(params: Params, side: Side) -> Any:
    version = params["version"]
    return DescribeClusterRequest(
        include_cluster_authorized_operations=params["authorized"],
        endpoint_type=params["endpoints"] if version >= 1 else 1,
        include_fenced_brokers=params["fenced"] and version >= 2,
    )


TOPIC, BROKER, LOGGERS, METRICS, GROUP = 2, 4, 8, 16, 32
BROKER_KEYS = ("log.retention.ms", "message.max.bytes", "num.io.threads", "log.cleaner.threads", "no.such.key")
TOPIC_KEYS = (
    "retention.ms", "max.message.bytes", "compression.type", "cleanup.policy", "segment.bytes", "min.insync.replicas",
    "message.timestamp.type", "no.such.key",
)  # fmt: skip


def draw_configs(rng: random.Random, world: World) -> Params:
    kind = rng.choice((TOPIC, TOPIC, TOPIC, GROUP, BROKER, METRICS, 0, 99))
    name = world.group(rng) if kind == GROUP else world.partition(rng)[0]
    keys = rng.sample(TOPIC_KEYS, 3) if rng.random() < 0.5 else None
    if kind == BROKER:  # not all: each has settings of its own
        name, keys = rng.choice(("1", "", "2", "x")), rng.sample(BROKER_KEYS, 2)
    return {
        "type": kind,
        "name": name,
        "keys": keys,
        "synonyms": rng.random() < 0.5,
        "twice": rng.random() < 0.1,
    }


def make_configs(params: Params, side: Side) -> Any:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    one = kind(resource_type=params["type"], resource_name=params["name"], configuration_keys=params["keys"])
    return DescribeConfigsRequest(resources=[one] * (1 + params["twice"]), include_synonyms=params["synonyms"])


def draw_config_resources(rng: random.Random, world: World) -> Params:
    return {"types": rng.choice(([], [TOPIC], [METRICS, GROUP], [BROKER], [LOGGERS], [99], [TOPIC, TOPIC, 0]))}


def make_config_resources(params: Params, side: Side) -> Any:
    return ListConfigResourcesRequest(resource_types=params["types"] if params["version"] >= 1 else [])


def draw_quotas(rng: random.Random, world: World) -> Params:
    names = rng.choice(
        (["user"], ["client-id"], ["user", "client-id"], ["ip"], ["user", "ip"], ["other"], [], ["user"] * 2)
    )
    parts = [(name, rng.choice((0, 1, 2, 3)), rng.choice((None, "a"))) for name in names]
    return {"parts": parts, "strict": rng.random() < 0.4}


def make_quotas(params: Params, side: Side) -> Any:
    kind = DescribeClientQuotasRequest.ComponentData
    components = [kind(entity_type=name, match_type=how, match=what) for name, how, what in params["parts"]]
    return DescribeClientQuotasRequest(components=components, strict=params["strict"])


def draw_acls(rng: random.Random, world: World) -> Params:
    return {
        "resource": rng.choice((1, 2, 0, 99)),
        "name": rng.choice((None, "t")),
        "pattern": rng.choice((1, 2, 3, 4)),
        "principal": rng.choice((None, "User:a", "a")),
        "operation": rng.choice((1, 3, 0, 99)),
        "permission": rng.choice((1, 3, 0)),
    }


def make_acls(params: Params, side: Side) -> Any:
    return DescribeAclsRequest(
        resource_type_filter=params["resource"],
        resource_name_filter=params["name"],
        pattern_type_filter=params["pattern"],
        principal_filter=params["principal"],
        host_filter=None,
        operation=params["operation"],
        permission_type=params["permission"],
    )


def draw_users(rng: random.Random, world: World) -> Params:
    return {"users": rng.choice((None, [], ["a"], ["a", "b"], ["a", "a"], [""]))}


def make_users(params: Params, side: Side) -> Any:
    kind, users = DescribeUserScramCredentialsRequest, params["users"]
    return kind(users=None if users is None else [kind.UserName(name=user) for user in users])


def draw_reassignments(rng: random.Random, world: World) -> Params:
    return {"all": rng.random() < 0.3} | draw_place(rng, world)


def make_reassignments(params: Params, side: Side) -> Any:
    kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    one = kind(name=params["topic"], partition_indexes=[params["partition"]])
    return ListPartitionReassignmentsRequest(topics=None if params["all"] else [one])


def draw_move(rng: random.Random, world: World) -> Params:
    return draw_place(rng, world) | {"folder": rng.choice(("here", "here", "/nowhere", "relative", ""))}


def make_move(params: Params, side: Side) -> Any:
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    path = str(side.node.folder) if params["folder"] == "here" else params["folder"]
    topic = kind.AlterReplicaLogDirTopic(name=params["topic"], partitions=[params["partition"]])
    return AlterReplicaLogDirsRequest(dirs=[kind(path=path, topics=[topic])])


KINDS = {
    "cluster": Kind(DescribeClusterRequest, 2, draw_cluster, make_cluster),
    "configs": Kind(DescribeConfigsRequest, 5, draw_configs, make_configs),
    "config-resources": Kind(ListConfigResourcesRequest, 1, draw_config_resources, make_config_resources),
    "quotas": Kind(DescribeClientQuotasRequest, 1, draw_quotas, make_quotas),
    "acls": Kind(DescribeAclsRequest, 1, draw_acls, make_acls),
    "users": Kind(DescribeUserScramCredentialsRequest, 1, draw_users, make_users),
    "reassignments": Kind(ListPartitionReassignmentsRequest, 1, draw_reassignments, make_reassignments),
    "move": Kind(AlterReplicaLogDirsRequest, 2, draw_move, make_move),
    "metadata": Kind(MetadataRequest, 4, draw_metadata, make_metadata),
    "partitions": Kind(DescribeTopicPartitionsRequest, 4, draw_partitions, make_partitions),
    "producers": Kind(DescribeProducersRequest, 3, draw_place, make_producers),
    "log-dirs": Kind(DescribeLogDirsRequest, 3, draw_place, make_log_dirs),
}
