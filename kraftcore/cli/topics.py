"""``kraftcore topics``: Kafka's kafka-topics. Text output is that of Kafka 4.3.1's TopicCommand.

Differences, all deliberate: topics are described in the order of their names (Kafka's is that of a hash table); wrong
usage is one line and a hint, not the whole help; no stack traces; ``--output json`` for actions that only read.
Regular expressions are Python's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from kraftcore.admin import (
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    Reassignment,
    TopicDescription,
    TopicPartition,
)
from kraftcore.cli.admin_tool import Connection, make_connection, server_options
from kraftcore.cli.kafka_style import (
    JavaNumber,
    KafkaTool,
    StdoutFailure,
    check_not_with,
    check_required,
    given,
    java_int,
    java_split,
    plain_words,
)
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.configdef.topics import ConfigSource, TopicDefaults
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError, LocalError, RefusedError, UnsupportedVersionError
from kraftcore.metadata.configs import TOPIC
from kraftcore.protocol.topics import INTERNAL_TOPICS

# Kafka's own topics; source: Kafka 4.3.1, Topic.isInternal.
ACTIONS = ("alter", "create", "describe", "list", "delete")
REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
OVERRIDES = "topics-with-overrides"
_HINT = " (To alter topic configurations, the kafka-configs tool can be used.)"
_COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To "
    "avoid issues it is best to use either, but not both."
)
MIN_ISR = "min.insync.replicas"


def _failed(error: KraftError) -> click.ClickException:
    return StdoutFailure(f"Error while executing topic command : {plain_words(error)}")


@click.command(
    cls=KafkaTool,
    failed=_failed,
    epilog="""\b
Examples:
  Create a topic, see where its partitions are, give it more of them:
    kraftcore topics --bootstrap-server 127.0.0.1:9092 --create --topic orders --partitions 6 --replication-factor 3
    kraftcore topics --bootstrap-server 127.0.0.1:9092 --describe --topic orders
    kraftcore topics --bootstrap-server 127.0.0.1:9092 --alter --topic orders --partitions 12
  What is not healthy:
    kraftcore topics --bootstrap-server 127.0.0.1:9092 --describe --under-replicated-partitions
    kraftcore topics --bootstrap-server 127.0.0.1:9092 --describe --unavailable-partitions
  All topics whose names begin with test, without Kafka's own:
    kraftcore topics --bootstrap-server 127.0.0.1:9092 --list --topic 'test.*' --exclude-internal

\b
Leader is 'none' while a partition has none; Isr are the replicas in sync; Elr those that may lead although they are
not in sync any more, LastKnownElr the last of them that was lost. Configurations of a topic that is there are changed
with 'kraftcore configs'.

\b
With --output json an object with:
  --list      topics: [name]
  --describe  topics: [{topic, topicId, partitionCount, replicationFactor, configs, partitions: [{partition, leader,
              replicas, isr, adding, removing, elr, lastKnownElr}]}], with those partitions alone that were asked for;
              leader, elr and lastKnownElr are null where there is none or nothing is known
""",
)
@output_option
@click.option(
    "--partition-size-limit-per-response",
    metavar="N",
    type=JavaNumber(),
    help="With --describe: how many partitions to ask the broker for at a time.  [default: 2000]",
)
@click.option(
    "--exclude-internal",
    is_flag=True,
    help="With --list, --describe: leave out Kafka's internal topics, as __consumer_offsets.",
)
@click.option(
    "--if-not-exists", is_flag=True, help="With --create: succeed without a change if the topic exists already."
)
@click.option(
    "--if-exists",
    is_flag=True,
    help="With --alter, --delete, --describe: succeed without a change if there is no such topic.",
)
@click.option(
    "--topics-with-overrides", is_flag=True, help="With --describe: only topics for which a configuration was set."
)
@click.option(
    "--at-min-isr-partitions",
    is_flag=True,
    help="With --describe: only partitions with exactly min.insync.replicas replicas in sync.",
)
@click.option(
    "--under-min-isr-partitions",
    is_flag=True,
    help="With --describe: only partitions with fewer replicas in sync than min.insync.replicas.",
)
@click.option(
    "--unavailable-partitions",
    is_flag=True,
    help="With --describe: only partitions whose leader is not alive, or that have none.",
)
@click.option(
    "--under-replicated-partitions",
    is_flag=True,
    help="With --describe: only partitions some of whose replicas are not in sync.",
)
@click.option(
    "--replica-assignment",
    metavar="LIST",
    help="With --create, --alter: broker ids of each partition's "
    "replicas; 1:2,2:3 are two partitions of two replicas. For "
    "--create in place of --partitions and --replication-factor.",
)
@click.option(
    "--replication-factor",
    metavar="N",
    type=JavaNumber(),
    help="With --create: replicas that each partition has.  [default: the broker's default.replication.factor]",
)
@click.option(
    "--partitions",
    metavar="N",
    type=JavaNumber(),
    help="With --create: number of partitions (by default the broker's "
    "num.partitions). With --alter: the greater number that the topic is to "
    "have.",
)
@click.option("--delete-config", metavar="NAME", help="Not supported any more: see 'kraftcore configs'.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --create: a configuration of the topic, as retention.ms=3600000; may be repeated.",
)
@click.option("--topic-id", metavar="ID", help="With --describe: id of the topic, in place of --topic.")
@click.option(
    "--topic",
    metavar="NAME",
    help="Name of the topic; but for --create also a regular expression for the names of several.",
)
@click.option(
    "--describe",
    is_flag=True,
    help="Print the partitions of topics, with leaders and replicas, and what was set for a topic.",
)
@click.option("--alter", is_flag=True, help="Give a topic more partitions.")
@click.option("--delete", is_flag=True, help="Delete topics with all their records.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--list", is_flag=True, help="Print the names of topics, in alphabetical order.")
@server_options(controllers=False)
@click.pass_context
def topics(
    ctx: click.Context, /, bootstrap_server: str, command_config: str | None, output: str, **options: Any
) -> None:
    """Create, delete, describe, list and change topics, as kafka-topics does.

    Name one action: --create, --delete, --describe, --list or --alter.
    """
    present = given(ctx)
    action = _check(present, as_json=output == "json")
    connection = make_connection(bootstrap_server, None, command_config)
    wanted = Wanted(**{name: value for name, value in options.items() if name in Wanted.__annotations__})
    if action == "list":
        _list(connection, wanted, as_json=output == "json")
    elif action == "describe":
        _describe(connection, wanted, as_json=output == "json")
    else:
        {"create": _create, "alter": _alter, "delete": _delete}[action](connection, wanted)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command's options."""

    topic: str | None
    topic_id: str | None
    configs: tuple[str, ...]
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    topics_with_overrides: bool
    if_exists: bool
    if_not_exists: bool
    exclude_internal: bool
    partition_size_limit_per_response: int | None

    @property
    def is_report(self) -> bool:
        """Whether only some partitions are shown, without their topics."""
        return (
            self.under_replicated_partitions
            or self.unavailable_partitions
            or self.under_min_isr_partitions
            or self.at_min_isr_partitions
        )


def _check(present: Sequence[str], *, as_json: bool) -> str:
    """Return the chosen action; refuses combinations of options as Kafka's tool does, in the same order."""
    actions = [action for action in ACTIONS if action in present]
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    action = actions[0]
    if "delete-config" in present:
        click.echo(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases.",
            err=True,
        )
    if "bootstrap-server" not in present:
        raise click.UsageError("--bootstrap-server must be specified")
    if action == "describe" and "if-exists" in present:
        if "topic" not in present and "topic-id" not in present:
            raise click.UsageError("--topic or --topic-id is required to describe a topic")
        if "topic" in present and "topic-id" in present:
            click.echo(
                "Only topic id will be used when both --topic and --topic-id are specified "
                "and topicId is not Uuid.ZERO_UUID",
                err=as_json,
            )
    if action not in ("list", "describe"):
        check_required(present, "topic")
    if action == "alter":
        if "config" in present:
            combination = 'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]"'
            raise click.UsageError(combination + _HINT)
        check_required(present, "partitions")
    for option, allowed in (
        ("config", ("alter", "create")),
        ("partitions", ("alter", "create")),
        ("replication-factor", ("create",)),
        ("replica-assignment", ("alter", "create")),
    ):
        check_not_with(present, option, _others(*allowed))
    if action == "create":
        check_not_with(present, "replica-assignment", ("partitions", "replication-factor"))
    for option in REPORTS:
        check_not_with(present, option, (*_others("describe"), OVERRIDES))
    check_not_with(present, OVERRIDES, (*_others("describe"), *REPORTS))
    check_not_with(present, "if-exists", _others("alter", "delete", "describe"))
    check_not_with(present, "if-not-exists", _others("create"))
    for option in ("exclude-internal", "output"):
        check_not_with(present, option, _others("list", "describe"))
    return action


def _others(*allowed: str) -> tuple[str, ...]:
    return tuple(action for action in ACTIONS if action not in allowed)


def _create(connection: Connection, wanted: Wanted) -> None:
    name = wanted.topic or ""
    assignment = read_assignment(wanted.replica_assignment) if wanted.replica_assignment else None
    configs = _read_configs(wanted.configs)
    if "." in name or "_" in name:
        click.echo(_COLLISION)
    if wanted.replication_factor is not None and not 1 <= wanted.replication_factor <= 32767:
        raise LocalError("The replication factor must be between 1 and 32767 inclusive")
    if wanted.partitions is not None and wanted.partitions < 1:
        raise LocalError("The partitions must be greater than 0")
    new = NewTopic(name, wanted.partitions, wanted.replication_factor, assignment, configs)
    try:
        connection.run(lambda client: client.create_topics([new], retry_throttled=False))
    except RefusedError as error:
        if error.error == "TOPIC_ALREADY_EXISTS" and wanted.if_not_exists:
            return
        raise
    click.echo(printable(f"Created topic {name}."))


def read_assignment(text: str) -> Mapping[int, Sequence[int]]:
    """Read ``1:2,2:3``: broker ids by partition.

    Raises:
        LocalError: an id is not a number, a broker is twice in a partition, or partitions differ in size.
    """
    found: dict[int, list[int]] = {}
    for number, part in enumerate(java_split(text, ",")):
        brokers = [java_int(each.strip()) for each in java_split(part, ":")]
        twice = sorted({each for each in brokers if brokers.count(each) > 1})
        if twice:
            raise LocalError(f"Partition replica lists may not contain duplicate entries: {','.join(map(str, twice))}")
        found[number] = brokers
        if len(brokers) != len(found[0]):
            raise LocalError(f"Partition {number} has different replication factor: {brokers}")
    return found


def _read_configs(texts: Sequence[str]) -> Mapping[str, str]:
    pairs = [_without_empty_end(re.split(r"\s*=\s*", text)) for text in texts]
    if any(len(pair) != 2 for pair in pairs):
        raise LocalError(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
        )
    configs = {key.strip(): value.strip() for key, value in pairs}
    TopicDefaults({}).validate(configs)
    return configs


def _without_empty_end(parts: list[str]) -> list[str]:
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _alter(connection: Connection, wanted: Wanted) -> None:
    total = wanted.partitions or 0
    assignment = read_assignment(wanted.replica_assignment) if wanted.replica_assignment else None

    async def work(client: AdminClient) -> None:
        names = await _names(client, wanted)
        _check_found(names, wanted)
        if not names:
            return
        changes = dict.fromkeys(names, NewPartitions(total))
        if assignment is not None:
            for name, topic in (await client.describe_topics(names)).items():
                added = [replicas for number, replicas in assignment.items() if number >= len(topic.partitions)]
                changes[name] = NewPartitions(total, added)
        await client.create_partitions(changes, retry_throttled=False)

    connection.run(work)


def _list(connection: Connection, wanted: Wanted, *, as_json: bool) -> None:
    names = connection.run(lambda client: _names(client, wanted))
    if as_json:
        print_json(topics=names)
    else:
        click.echo(printable("\n".join(names)))


def _delete(connection: Connection, wanted: Wanted) -> None:
    async def work(client: AdminClient) -> None:
        names = await _names(client, wanted)
        _check_found(names, wanted)
        if names:
            await client.delete_topics(names, retry_throttled=False)

    connection.run(work)


async def _names(client: AdminClient, wanted: Wanted) -> list[str]:
    found = [topic.name for topic in await client.list_topics(include_internal=not wanted.exclude_internal)]
    pattern = None if wanted.topic is None else topic_pattern(wanted.topic)
    return [
        name
        for name in found
        if (pattern is None or pattern.fullmatch(name)) and not (wanted.exclude_internal and name in INTERNAL_TOPICS)
    ]


def topic_pattern(text: str) -> re.Pattern[str]:
    """The pattern of names in --topic: a regular expression, or several separated by commas.

    Raises:
        LocalError: it is not a regular expression.
    """
    cleaned = text.strip().replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")
    try:
        return re.compile(cleaned)
    except (re.error, OverflowError, RecursionError):  # a repetition that is too large; too deep
        raise LocalError(f"{cleaned} is an invalid regex.") from None


def _check_found(found: Sequence[object], wanted: Wanted) -> None:
    if wanted.topic and not found and not wanted.if_exists:
        raise LocalError(f"Topic '{wanted.topic}' does not exist as expected")


class Described(NamedTuple):
    """A topic to show.

    Attributes:
        topic: the topic.
        changed: its configurations that are not Kafka's defaults.
        has_topic: whether the topic itself is shown, not only partitions.
        partitions: the partitions to show, with their reassignments.
        replication_factor: of its first partition.
    """

    topic: TopicDescription
    changed: Sequence[ConfigEntry]
    has_topic: bool
    partitions: Sequence[tuple[PartitionDescription, Reassignment | None]]
    replication_factor: int


def _describe(connection: Connection, wanted: Wanted, *, as_json: bool) -> None:
    living, found = connection.run(lambda client: _described(client, wanted))
    if as_json:
        print_json(topics=[_as_object(each, living) for each in found if each.has_topic or each.partitions])
        return
    for each in found:
        for line in _topic_lines(each, living):
            click.echo(line)


async def _described(client: AdminClient, wanted: Wanted) -> tuple[set[int], list[Described]]:
    """Return the ids of the brokers that live, and the topics to show."""
    topics = await _find(client, wanted)
    if not topics:
        return set(), []
    resources = [ConfigResource(TOPIC, topic.name) for topic in topics]
    configs = await client.describe_configs(resources)
    living = {node.id for node in (await client.describe_cluster()).nodes}
    partitions = [TopicPartition(topic.name, part.number) for topic in topics for part in topic.partitions]
    try:
        moves = await client.list_reassignments(partitions)
    except (UnsupportedVersionError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.error != "CLUSTER_AUTHORIZATION_FAILED":
            raise
        moves = {}
    found = []
    for topic, resource in zip(topics, resources, strict=True):
        moving = {part.number: moves.get(TopicPartition(topic.name, part.number)) for part in topic.partitions}
        found.append(_chosen(topic, configs[resource], living, moving, wanted))
    return living, found


async def _find(client: AdminClient, wanted: Wanted) -> list[TopicDescription]:
    topic_id = None if wanted.topic_id is None else Uuid.from_string(wanted.topic_id)
    if topic_id:
        listed = await client.list_topics(include_internal=not wanted.exclude_internal)
        if all(topic.id != topic_id for topic in listed):
            if wanted.if_exists:
                return []
            raise LocalError(f"TopicId '{topic_id}' does not exist as expected")
        return list((await client.describe_topics_by_id([topic_id])).values())
    names = await _names(client, wanted)
    _check_found(names, wanted)
    limit = wanted.partition_size_limit_per_response
    found = await client.describe_topics(names, partitions_per_answer=2000 if limit is None else limit)
    return list(found.values())


def _chosen(
    topic: TopicDescription,
    config: Sequence[ConfigEntry],
    living: set[int],
    moving: Mapping[int, Reassignment | None],
    wanted: Wanted,
) -> Described:
    changed = [entry for entry in config if entry.source is not ConfigSource.DEFAULT]
    has_topic = not wanted.is_report and bool(changed or not wanted.topics_with_overrides) and bool(topic.partitions)
    least = next((entry.value for entry in config if entry.name == MIN_ISR), None)
    shown = []
    for part in () if wanted.topics_with_overrides else topic.partitions:
        move = moving[part.number]
        if not wanted.is_report or _is_reported(part, move, living, least, wanted):
            shown.append((part, move))
    first = next(iter(topic.partitions), None)
    factor = 0 if first is None else _replication_factor(first, moving[first.number])
    return Described(topic, changed, has_topic, shown, factor)


def _topic_lines(described: Described, living: set[int]) -> list[str]:
    topic, lines = described.topic, []
    if described.has_topic:
        text = ",".join(f"{entry.name}={'null' if entry.value is None else entry.value}" for entry in described.changed)
        topic_id = f"\tTopicId: {topic.id}" if topic.id else ""
        lines.append(
            f"Topic: {printable(topic.name)}{topic_id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {described.replication_factor}\tConfigs: {printable(text)}"
        )
    lines += [_partition_line(topic.name, part, move, living) for part, move in described.partitions]
    return lines


def _as_object(described: Described, living: set[int]) -> dict[str, object]:
    topic = described.topic
    return {
        "topic": topic.name,
        "topicId": str(topic.id) if topic.id else None,
        "partitionCount": len(topic.partitions),
        "replicationFactor": described.replication_factor,
        "configs": {entry.name: entry.value for entry in described.changed},
        "partitions": [
            {
                "partition": part.number,
                "leader": part.leader_id if part.leader_id in living else None,
                "replicas": part.replicas,
                "isr": part.isr,
                "adding": () if move is None else move.adding,
                "removing": () if move is None else move.removing,
                "elr": part.eligible_leaders,
                "lastKnownElr": part.last_known_eligible,
            }
            for part, move in described.partitions
        ],
    }


def _is_reported(
    part: PartitionDescription, move: Reassignment | None, living: set[int], least: str | None, wanted: Wanted
) -> bool:
    has_leader = part.leader_id in living
    in_sync = len(part.isr)
    if wanted.under_replicated_partitions and _replication_factor(part, move) > in_sync:
        return True
    if wanted.unavailable_partitions and not has_leader:
        return True
    if wanted.under_min_isr_partitions and (not has_leader or in_sync < java_int(least or "null")):
        return True
    return wanted.at_min_isr_partitions and in_sync == java_int(least or "null")


def _replication_factor(part: PartitionDescription, move: Reassignment | None) -> int:
    # A reassignment may end between the two answers; its removed replicas are then missing in the partition.
    if move is not None and {*move.adding, *move.removing} & {*part.replicas}:
        return len(move.replicas) - len(move.adding)
    return len(part.replicas)


def _partition_line(name: str, part: PartitionDescription, move: Reassignment | None, living: set[int]) -> str:
    def ids(numbers: Sequence[int] | None) -> str:
        return "N/A" if numbers is None else ",".join(map(str, numbers))

    moving = "" if move is None else f"\tAdding Replicas: {ids(move.adding)}\tRemoving Replicas: {ids(move.removing)}"
    leader = part.leader_id if part.leader_id in living else "none"
    return (
        f"\tTopic: {printable(name)}\tPartition: {part.number}\tLeader: {leader}\tReplicas: {ids(part.replicas)}"
        f"\tIsr: {ids(part.isr)}{moving}\tElr: {ids(part.eligible_leaders)}"
        f"\tLastKnownElr: {ids(part.last_known_eligible)}"
    )
