"""Whether all nodes' metadata is one, Kafka's classes make the same of it, and its tools print the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broken import Broken
from image_records import end_of, images_of_kafka, machine_at, records_of, snapshots
from kafka_lab import KafkaNode, wait_for
from partition_files import log_end
from proposals import log_folder

from drills.load import Told
from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kraftcore.security.acl import Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from drills.cluster import Cluster

TOOL_S = 120
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass(frozen=True)
class Verdict:
    """What was looked at, and found to hold.

    Attributes:
        records: acknowledged to clients.
        transactions: of those, in committed transactions.
        errors: that clients were told of, all to be retried.
        offset: of the metadata log, where the images were compared.
        images: of nodes that were equal, as ours and as Kafka's classes have them.
        snapshots: that nodes had written, each equal to what another node's log comes to.
    """

    records: int
    transactions: int
    errors: int
    offset: int
    images: int
    snapshots: int

    def __str__(self) -> str:
        return (
            f"{self.records} records, {self.transactions} of them in transactions, {self.errors} errors told;"
            f" {self.images} images equal at {self.offset}, {self.snapshots} snapshots"
        )


def check_images(cluster: Cluster, told: Told) -> Verdict:
    """Compare the metadata of all nodes with each other, with Kafka's reading of it, and with what tools print.

    Raises:
        Broken: it differs.
    """
    lab = cluster.lab
    nodes = [node for node in lab.nodes.values() if node.process is not None]
    end = wait_for("a leader", lab.describe).high_watermark
    folders = [log_folder(node) for node in nodes]
    wait_for(f"all to have {end} records", lambda: all(log_end(folder) >= end for folder in folders))
    images = {node.name: _ours(node, end) for node in nodes}
    first = next(iter(images.values()))
    for name, records in images.items():
        _compare(f"{name}'s image", records, f"{nodes[0].name}'s", first)
    for node, records in zip(nodes, images_of_kafka(cluster.kafka, folders, end), strict=True):
        _compare(f"{node.name}'s image by Kafka's classes", records, "ours", first)
    count = sum(_check_snapshots(folder, folders, end) for folder in folders)
    _check_tools(cluster)
    return Verdict(len(told.kept), told.committed, len(told.errors), end, 2 * len(nodes), count)


def _ours(node: KafkaNode, end: int) -> list[str]:
    folder = log_folder(node)
    return records_of(machine_at(folder, end, next(reversed(snapshots(folder, end)), None)))


def _compare(name: str, records: list[str], other: str, expected: list[str]) -> None:
    if records != expected:
        more, less = sorted(set(records) - set(expected)), sorted(set(expected) - set(records))
        raise Broken(f"{name} has {more[:5]}, {other} has {less[:5]}")


def _check_snapshots(folder: Path, folders: list[Path], end: int) -> int:
    """A running node makes a snapshot of the image it has in memory: hold each against the other nodes' logs."""
    count = 0
    for path in snapshots(folder, end):
        written = records_of(machine_at(path.parent, end_of(path), path))
        others = (other for other in folders if other != folder and (other / f"{0:020d}.log").exists())
        for other in others:
            replayed = records_of(machine_at(other, end_of(path), None))
            _compare(str(path), written, f"the log in {other}", replayed)
            count += 1
            break
    return count


# --- what tools print -------------------------------------------------------------------------------------------------


def _check_tools(cluster: Cluster) -> None:
    """Brokers follow what controllers commit: what they say and the image agree at last.

    Raises:
        Broken: they do not.
    """
    asked = {
        "kafka-topics": (_topics, partial(_printed_topics, cluster)),
        "kafka-configs": (_configs, partial(_printed_configs, cluster)),
        "kafka-acls": (_acls, partial(_printed_acls, cluster)),
        "kafka-features": (_features, partial(_printed_features, cluster)),
        "kafka-metadata-quorum": (_quorum, partial(_printed_quorum, cluster)),
    }
    for name, (wanted, ask) in asked.items():
        last: list[Any] = []

        def agree(wanted: Any = wanted, ask: Any = ask, last: list[Any] = last) -> bool:
            node = cluster.active()
            end = log_end(log_folder(node))
            image = machine_at(log_folder(node), end, next(reversed(snapshots(log_folder(node), end)), None)).image
            last[:] = [ask(), wanted(image)]
            return bool(last[0] == last[1])

        try:
            wait_for(f"{name} to print what is committed", agree, timeout_s=TOOL_S)
        except TimeoutError:
            printed, expected = last
            differing = [key for key in {**printed, **expected} if printed.get(key) != expected.get(key)]
            shown = {key: (printed.get(key), expected.get(key)) for key in differing[:5]}
            raise Broken(f"{name} (printed, in the image): {shown}") from None


def _topics(image: Image) -> dict[object, object]:
    found: dict[object, object] = {}
    for topic in image.topics.values():
        found[topic.name] = str(topic.id)
        for number, each in image.partitions.of_topic(topic.id):
            leader = each.leader if each.has_leader else None
            known = (leader, each.replicas, tuple(sorted(each.isr)), tuple(sorted(each.elr)))
            found[topic.name, number] = (*known, tuple(sorted(each.last_known_elr)))
    return found


def _printed_topics(cluster: Cluster) -> dict[object, object]:
    found: dict[object, object] = {}
    for line in cluster.tool("topics", "--describe").splitlines():
        fields = dict(part.strip().split(":", 1) for part in line.split("\t") if ":" in part)
        fields = {name: value.strip() for name, value in fields.items()}
        if "TopicId" in fields:
            found[fields["Topic"]] = fields["TopicId"]
        elif "Partition" in fields:
            leader = None if fields["Leader"] == "none" else int(fields["Leader"])
            isr, elr, last = (tuple(sorted(_ids(fields[name]))) for name in ("Isr", "Elr", "LastKnownElr"))
            found[fields["Topic"], int(fields["Partition"])] = (leader, _ids(fields["Replicas"]), isr, elr, last)
    return found


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each.strip().isdigit())


def _configs(image: Image) -> dict[object, object]:
    kinds = {TOPIC: "topic", BROKER: "broker", CLIENT_METRICS: "client-metric", GROUP: "group"}
    found: dict[object, object] = {
        (kinds[resource.type], resource.name, key): value
        for resource, entries in image.configs.items()
        for key, value in entries.items()
    }
    for user, credential in image.scram.items():
        found["scram", user.name, MECHANISMS[user.mechanism]] = str(credential.iterations)
    for entity, quotas in image.quotas.items():
        for key, value in quotas.items():
            found["quota", entity, key] = value
    return found


ENTITY = re.compile(
    r"(?:Dynamic|Default) configs for (topic|broker|client-metric|group)s? (?:(\S+) are:|in the cluster are:)"
)
QUOTA = re.compile(r"Quota configs for (.*) are (.*)")
SCRAM = re.compile(r"SCRAM credential configs for user-principal '(.*)' are (.*)")
NAMED = re.compile(r"(?:the )?(default )?(user-principal|client-id|ip)(?: '(.*?)')?(?:, |$)")
ENTITY_TYPES = {"user-principal": "user", "client-id": "client-id", "ip": "ip"}


def _printed_configs(cluster: Cluster) -> dict[object, object]:
    found: dict[object, object] = {}
    for kind in ("topics", "brokers", "client-metrics", "groups"):
        name = ("", "")
        for line in cluster.tool("configs", "--describe", "--entity-type", kind).splitlines():
            heading = ENTITY.match(line)
            if heading:
                name = (heading[1], heading[2] or "")
            elif "=" in line and " sensitive=" in line:
                key, _, value = line.strip().partition(" sensitive=")[0].partition("=")
                found[*name, key] = value
    asked = (("users",), ("clients",), ("users", "clients"), ("ips",))
    for types in asked:
        arguments = [word for kind in types for word in ("--entity-type", kind)]
        for line in cluster.tool("configs", "--describe", *arguments).splitlines():
            scram, quota = SCRAM.match(line), QUOTA.match(line)
            if scram:
                for part in scram[2].split(", "):
                    mechanism, _, value = part.partition("=iterations=")
                    found["scram", scram[1], mechanism] = value
            elif quota:
                entity = tuple(sorted((ENTITY_TYPES[kind], name or None) for _, kind, name in NAMED.findall(quota[1])))
                for part in quota[2].split(", "):
                    key, _, value = part.partition("=")
                    found["quota", entity, key] = float(value)
    return found


def _acls(image: Image) -> dict[object, object]:
    return {
        (
            ResourceType(acl.resource_type).name,
            acl.resource_name,
            PatternType(acl.pattern_type).name,
            acl.principal,
            acl.host,
            Operation(acl.operation).name,
            Permission(acl.permission_type).name,
        ): True
        for acl in image.acls.values()
    }


RESOURCE = re.compile(r"resourceType=(\w+), name=(.*), patternType=(\w+)\)")
ENTRY = re.compile(r"\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)")


def _printed_acls(cluster: Cluster) -> dict[object, object]:
    found: dict[object, object] = {}
    at: tuple[str, ...] = ()
    for line in cluster.tool("acls", "--list").splitlines():
        resource, entry = RESOURCE.search(line), ENTRY.search(line)
        if resource:
            at = resource.groups()
        elif entry:
            found[*at, *entry.groups()] = True
    return found


def _features(image: Image) -> dict[object, object]:
    levels = {name: level for name, level in image.features.items() if name != "metadata.version" and level}
    version = image.features.metadata_version
    assert version is not None
    return {
        "metadata.version": version.text,
        **{name: str(level) for name, level in levels.items()},
        "kraft.version": "1",
    }


def _printed_features(cluster: Cluster) -> dict[object, object]:
    found: dict[object, object] = {}
    for line in cluster.tool("features", "describe").splitlines():
        fields = dict(re.findall(r"(\w+): (\S+)", line))
        if fields["FinalizedVersionLevel"] != "0":
            found[fields["Feature"]] = fields["FinalizedVersionLevel"]
    return found


def _quorum(image: Image) -> dict[object, object]:
    """The controllers that are registered, all of which vote."""
    return dict.fromkeys(image.controllers, True)


def _printed_quorum(cluster: Cluster) -> dict[object, object]:
    printed = cluster.tool("quorum", "describe", "--status")
    voters = re.search(r"CurrentVoters: *(\[.*\])", printed)
    assert voters is not None, printed
    return {int(number): True for number in re.findall(r'"id": (\d+)', voters[1])}
