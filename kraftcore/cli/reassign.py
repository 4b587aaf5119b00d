"""``kraftcore reassign``: Kafka's kafka-reassign-partitions. Text output is that of 4.3.1's ReassignPartitionsCommand.

Differences, all deliberate: topics and brokers are named in order (Kafka's is that of hash tables); no stack traces;
files that are not JSON, or have another form, are reported without names of Java classes; --cancel ends every line;
``--output json`` for actions that only read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
import trio

from kraftcore.admin import (
    AdminClient,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    PartlyRefusedError,
    Replica,
    ReplicaPlace,
    TopicPartition,
)
from kraftcore.admin.topics import is_missing
from kraftcore.cli.admin_tool import Connection, make_connection, server_options
from kraftcore.cli.kafka_style import (
    JavaNumber,
    KafkaTool,
    StdoutFailure,
    check_required,
    given,
    java_int,
    java_split,
    plain_words,
    words,
)
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.cli.partition_files import Plan, format_plan, read_file, read_plan, read_topics
from kraftcore.cli.reassign_plan import moves, propose, throttled_replicas
from kraftcore.errors import KraftError, LocalError, RefusedError
from kraftcore.metadata.configs import BROKER, TOPIC

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
# By action: required options, allowed options. Source: Kafka 4.3.1.
NEEDED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
ALLOWED = {
    "generate": ("bootstrap-server", "broker-list", "command-config", "disable-rack-aware", "output"),
    "execute": (
        *("additional", "bootstrap-server", "command-config", "throttle", "replica-alter-log-dirs-throttle"),
        *("timeout", "disallow-replication-factor-change"),
    ),
    "verify": ("bootstrap-server", "command-config", "preserve-throttles", "output"),
    "cancel": ("bootstrap-server", "bootstrap-controller", "command-config", "preserve-throttles", "timeout"),
    "list": ("bootstrap-server", "bootstrap-controller", "command-config", "output"),
}
_BUSY = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create "
    "a new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
_RETRY_MS = 100  # pause between tries to move a replica that its broker does not have yet


def _failed(error: KraftError) -> click.ClickException:
    return StdoutFailure(f"Error: {words(error)}")


@click.command(
    cls=KafkaTool,
    failed=_failed,
    epilog="""\b
Examples:
  1. Propose where the replicas of some topics could go, on brokers 1, 2 and 4; it prints what is and what is proposed:
    kraftcore reassign --bootstrap-server 127.0.0.1:9092 --generate \\
      --topics-to-move-json-file topics.json --broker-list 1,2,4
  2. Write the proposal, changed or not, to plan.json, and begin, with at most 50 MB/s between brokers:
    kraftcore reassign --bootstrap-server 127.0.0.1:9092 --execute --reassignment-json-file plan.json \\
      --throttle 50000000
  3. See how far it is; once all is done this takes the throttle away:
    kraftcore reassign --bootstrap-server 127.0.0.1:9092 --verify --reassignment-json-file plan.json
  Change the mind, and what is under way at all:
    kraftcore reassign --bootstrap-server 127.0.0.1:9092 --cancel --reassignment-json-file plan.json
    kraftcore reassign --bootstrap-controller 127.0.0.1:9093 --list

\b
topics.json: {"version": 1, "topics": [{"topic": "orders"}]}
plan.json:   {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 4]}]}
The first replica is the preferred leader. "log_dirs" beside "replicas" names directories on the brokers, or "any".
With --output json an object with:
  --generate  current, proposed  both as in plan.json
  --list      reassignments: [{topic, partition, replicas, adding, removing}]
  --verify    partitions: [{topic, partition, state, replicas, wanted}], logDirs: [{topic, partition, broker, state,
              logDir, futureLogDir, wanted}], throttlesCleared; a state is completed, inProgress or notActive
""",
)
@output_option
@click.option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="With --execute: refuse a plan that gives a partition another number of replicas than it has.",
)
@click.option(
    "--preserve-throttles",
    is_flag=True,
    help="With --verify, --cancel: leave the throttles as they are. Without it they are removed once all is done.",
)
@click.option(
    "--additional",
    is_flag=True,
    help="With --execute: begin although other reassignments are under "
    "way. The same plan again with another --throttle changes the "
    "throttle.",
)
@click.option(
    "--timeout",
    metavar="MS",
    type=JavaNumber(64),
    default=10_000,
    help="Milliseconds to wait for moves between the directories of a broker to begin.  [default: 10000]",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    metavar="BYTES",
    type=JavaNumber(64),
    default=-1,
    help="With --execute: bytes per second that each broker may move between its directories. -1: no limit. "
    " [default: -1]",
)
@click.option(
    "--throttle",
    metavar="BYTES",
    type=JavaNumber(64),
    default=-1,
    help="With --execute: bytes per second that each broker may send, and receive, for these moves; choose at "
    "least 1024. -1: no limit.  [default: -1]",
)
@click.option(
    "--disable-rack-aware",
    is_flag=True,
    help="With --generate: propose replicas without regard to the racks of brokers.",
)
@click.option(
    "--broker-list", metavar="IDS", help="With --generate: ids of the brokers that are to have the replicas, as 1,2,3."
)
@click.option(
    "--topics-to-move-json-file",
    metavar="FILE",
    type=click.Path(),
    help="With --generate: JSON file with the topics to move; its form is shown below.",
)
@click.option(
    "--reassignment-json-file",
    metavar="FILE",
    type=click.Path(),
    help="With --execute, --verify, --cancel: JSON file with the replicas that "
    "partitions are to have; its form is shown below.",
)
@click.option("--list", is_flag=True, help="List the reassignments that are under way.")
@click.option(
    "--cancel", is_flag=True, help="Cancel the reassignments of the partitions in the plan that are under way."
)
@click.option(
    "--verify", is_flag=True, help="Print how far the plan is carried out; once all of it is, remove the throttles."
)
@click.option("--execute", is_flag=True, help="Begin to carry out the plan of --reassignment-json-file.")
@click.option(
    "--generate", is_flag=True, help="Print the present assignment of some topics and a proposed one; change nothing."
)
@server_options(controllers=True)
@click.pass_context
def reassign(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    output: str,
    **options: Any,
) -> None:
    """Move replicas of partitions to other brokers or directories, as kafka-reassign-partitions does.

    Name one action: --generate proposes a plan, --execute begins it, --verify says how far it is, --cancel ends it,
    --list shows all that is under way.
    """
    action = _check(given(ctx))
    connection = make_connection(bootstrap_server, bootstrap_controller, command_config)
    as_json = output == "json"
    if action == "list":
        _list(connection, as_json)
    elif action == "generate":
        _generate(connection, options, as_json)
    else:
        plan = read_plan(read_file(options["reassignment_json_file"]))
        if action == "verify":
            _verify(connection, plan, options, as_json)
        else:
            {"execute": _execute, "cancel": _cancel}[action](connection, plan, options)


def _check(present: Sequence[str]) -> str:
    actions = [action for action in NEEDED if action in present]
    if len(actions) != 1:
        names = ", ".join(f"--{action}" for action in NEEDED)
        raise click.UsageError(f"Command must include exactly one action: {names}")
    action = actions[0]
    connections = {"bootstrap-server", "bootstrap-controller"} & {*present}
    if len(connections) == 2:
        raise click.UsageError("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not connections:
        raise click.UsageError("Please specify either --bootstrap-server or --bootstrap-controller")
    check_required(present, *NEEDED[action])
    for option in present:
        if option != action and option not in (*NEEDED[action], *ALLOWED[action]):
            raise click.UsageError(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    return action


def _list(connection: Connection, as_json: bool) -> None:
    def ids(label: str, numbers: Sequence[int]) -> str:
        return f" {label}: {','.join(map(str, numbers))}." if numbers else ""

    found = connection.run(lambda client: client.list_reassignments())
    if as_json:
        under_way = [
            {**each._asdict(), **{key: list(ids) for key, ids in asdict(found[each]).items()}} for each in sorted(found)
        ]
        print_json(reassignments=under_way)
        return
    click.echo("Current partition reassignments:" if found else "No partition reassignments found.")
    for partition, each in sorted(found.items()):
        replicas = ",".join(map(str, each.replicas))
        changes = ids("adding", each.adding) + ids("removing", each.removing)
        click.echo(printable(f"{partition}: replicas: {replicas}.{changes}"))


def _generate(connection: Connection, options: Mapping[str, Any], as_json: bool) -> None:
    topics = read_topics(read_file(options["topics_to_move_json_file"]))
    brokers = [java_int(each) for each in java_split(options["broker_list"], ",")]
    for what, names in (("Broker list", brokers), ("List of topics to reassign", topics)):
        twice = sorted({each for each in names if names.count(each) > 1}, key=str)  # type: ignore[arg-type]
        if twice:
            raise LocalError(f"{what} contains duplicate entries: [{', '.join(map(str, twice))}]")

    async def work(client: AdminClient) -> None:
        current = await _replicas_of(client, topics)
        living = (await client.describe_cluster()).nodes
        places = await _directories(client, current, {node.id for node in living})
        nodes = [node for node in living if node.id in brokers]
        proposed = propose(current, nodes, by_rack=not options["disable_rack_aware"])
        if as_json:
            print_json(current=json.loads(format_plan(current, places)), proposed=json.loads(format_plan(proposed)))
            return
        click.echo(printable(f"Current partition replica assignment\n{format_plan(current, places)}\n"))
        click.echo(printable(f"Proposed partition reassignment configuration\n{format_plan(proposed)}"))

    connection.run(work)


async def _replicas_of(client: AdminClient, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    names = sorted(set(topics))
    try:
        found = await client.describe_topics(names)
    except PartlyRefusedError as error:
        missing = [name for name, result in error.results.items() if is_missing(result)]
        if missing:
            raise RefusedError("UNKNOWN_TOPIC_OR_PARTITION", f"Topic {missing[0]} not found.") from None
        raise
    return {
        TopicPartition(name, part.number): part.replicas for name, topic in found.items() for part in topic.partitions
    }


async def _directories(
    client: AdminClient, current: Mapping[TopicPartition, Sequence[int]], living: set[int]
) -> dict[Replica, str]:
    """Directories of the replicas on brokers that live."""
    replicas = [Replica(*each, broker) for each, brokers in current.items() for broker in brokers if broker in living]
    places = await client.describe_replica_log_dirs(replicas)
    return {replica: place.log_dir for replica, place in places.items() if place.log_dir is not None}


def _execute(connection: Connection, plan: Plan, options: Mapping[str, Any]) -> None:
    proposed = _checked(plan)
    throttle, log_dir_throttle = options["throttle"], options["replica_alter_log_dirs_throttle"]

    async def work(client: AdminClient) -> None:
        under_way = await client.list_reassignments()
        if under_way and not options["additional"]:
            raise StdoutFailure(_BUSY)
        living = {node.id for node in (await client.describe_cluster()).nodes}
        for broker_id in sorted({each for replicas in proposed.values() for each in replicas}):
            if broker_id not in living:
                raise LocalError(f"Unknown broker id {broker_id}")
        known = await _replicas_of(client, (each.topic for each in proposed))
        missing = [str(each) for each in sorted(proposed) if each not in known]
        if missing:
            raise RefusedError("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find partition: {', '.join(missing)}")
        current = {each: known[each] for each in proposed}
        places = await _directories(client, current, living)
        click.echo(printable(f"Current partition replica assignment\n\n{format_plan(current, places)}\n"))
        click.echo("Save this to use as the --reassignment-json-file option during rollback")
        if throttle >= 0 or log_dir_throttle >= 0:
            click.echo(_VERIFY)
        if throttle >= 0:
            moving = moves(under_way, proposed, current)
            await client.alter_configs(
                {
                    ConfigResource(TOPIC, topic): [_set(LEADERS, leaders), _set(FOLLOWERS, followers)]
                    for topic, (leaders, followers) in throttled_replicas(moving).items()
                }
            )
            brokers = {broker for move in moving.values() for broker in (*move.sources, *move.destinations)}
            rates = [_set(LEADER_RATE, str(throttle)), _set(FOLLOWER_RATE, str(throttle))]
            await client.alter_configs({_broker(each): rates for each in sorted(brokers)})
            click.echo(f"The inter-broker throttle limit was set to {throttle} B/s")
        if log_dir_throttle >= 0:
            rates = [_set(LOG_DIR_RATE, str(log_dir_throttle))]
            brokers = {replica.broker_id for replica in plan.log_dirs}
            await client.alter_configs({_broker(each): rates for each in sorted(brokers)})
            click.echo(f"The replica-alter-dir throttle limit was set to {log_dir_throttle} B/s")
        await _alter(
            client,
            proposed,
            "Error reassigning partition(s):",
            allow_change=not options["disallow_replication_factor_change"],
        )
        plural = "" if len(proposed) == 1 else "s"
        names = ",".join(map(str, sorted(proposed)))
        click.echo(printable(f"Successfully started partition reassignment{plural} for {names}"))
        if plan.log_dirs:
            await _move_directories(client, plan.log_dirs, options["timeout"])

    connection.run(work)


def _checked(plan: Plan) -> dict[TopicPartition, tuple[int, ...]]:
    if not plan.partitions:
        raise LocalError("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in plan.partitions):
        raise LocalError("Partition replica list cannot be empty")
    proposed = dict(plan.partitions)
    counts = Counter(partition for partition, _ in plan.partitions)
    if len(proposed) < len(plan.partitions):
        twice = ",".join(str(each) for each in sorted(proposed) if counts[each] > 1)
        raise LocalError(f"Partition reassignment contains duplicate topic partitions: {twice}")
    repeated = []
    for partition, replicas in plan.partitions:
        same = sorted({each for each in replicas if replicas.count(each) > 1})
        if same:
            repeated.append(f"{partition} contains multiple entries for {','.join(map(str, same))}")
    if repeated:
        raise LocalError(f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}")
    return proposed


def _set(key: str, value: str) -> ConfigChange:
    return ConfigChange(key, ConfigOperation.SET, value)


def _broker(broker_id: int) -> ConfigResource:
    return ConfigResource(BROKER, str(broker_id))


async def _alter(
    client: AdminClient,
    wanted: Mapping[TopicPartition, Sequence[int] | None],
    failure: str,
    *,
    allow_change: bool = True,
) -> None:
    try:
        await client.alter_reassignments(wanted, allow_replication_factor_change=allow_change)
    except PartlyRefusedError as error:
        lines = [
            f"{partition}: {plain_words(result)}"
            for partition, result in sorted(error.results.items())
            if isinstance(result, RefusedError)
        ]
        raise StdoutFailure("\n".join([failure, *lines])) from None
    except RefusedError as error:  # of the whole request: counts for each partition, as in Kafka's client
        lines = [f"{partition}: {error.message}" for partition in sorted(wanted)]
        raise StdoutFailure("\n".join([failure, *lines])) from None


async def _move_directories(client: AdminClient, wanted: Mapping[Replica, str], timeout_ms: int) -> None:
    """Ask until every broker has begun to move; a broker that does not have the replica yet cannot."""
    pending = dict(wanted)
    deadline = trio.current_time() + timeout_ms / 1000
    while True:
        results: Mapping[Any, object] = dict.fromkeys(pending)
        try:
            await client.alter_replica_log_dirs(pending)
        except PartlyRefusedError as error:
            results = error.results
        for replica, result in sorted(results.items(), key=lambda item: _by_broker(item[0])):
            if isinstance(result, RefusedError):
                if result.error != "REPLICA_NOT_AVAILABLE":
                    raise LocalError(f"Failed to alter dir for {replica}\n{words(result)}")
                continue
            place = f"replica {replica.topic}-{replica.partition} with broker {replica.broker_id} "
            click.echo(printable(f"Successfully started moving log directory to {pending.pop(replica)} for {place}"))
        if not pending:
            return
        if trio.current_time() >= deadline:
            plural = "" if len(pending) == 1 else "s"
            names = ",".join(str(each) for each in sorted(pending, key=_by_broker))
            raise StdoutFailure(f"Timed out before log directory move{plural} could be started for: {names}")
        await trio.sleep(_RETRY_MS / 1000)


def _by_broker(replica: Replica) -> tuple[int, str, int]:
    return replica.broker_id, replica.topic, replica.partition


def _verify(connection: Connection, plan: Plan, options: Mapping[str, Any], as_json: bool) -> None:
    async def work(client: AdminClient) -> None:
        under_way = await client.list_reassignments()
        targets = dict(plan.partitions)
        current = await _known_replicas(client, {each.topic for each in targets if each not in under_way})
        if not as_json:
            click.echo("Status of partition reassignment:")
            for each, replicas in sorted(targets.items()):
                click.echo(printable(_state_line(each, replicas, current.get(each, ()), each in under_way)))
        places = await client.describe_replica_log_dirs(plan.log_dirs)
        by_broker = sorted(plan.log_dirs, key=_by_broker)
        if not as_json:
            lines = [_place_line(each, places[each], plan.log_dirs[each]) for each in by_broker]
            click.echo(printable("\n".join(lines)))
        # A replica that is in no directory counts as not moved, as in Kafka's tool (MissingLogDirMoveState).
        moving = any(place.log_dir is None or place.future_log_dir is not None for place in places.values())
        clears = not under_way and not moving and not options["preserve_throttles"]
        if clears:
            await _clear_throttles(client, plan, silent=as_json)
        if as_json:
            print_json(
                partitions=[
                    _state(each, targets[each], current.get(each, ()), each in under_way) for each in sorted(targets)
                ],
                logDirs=[_place(each, places[each], plan.log_dirs[each]) for each in by_broker],
                throttlesCleared=clears,
            )

    connection.run(work)


async def _known_replicas(client: AdminClient, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Look up replicas as ``_replicas_of`` does; missing topics are left out."""
    try:
        found: Mapping[str, object] = await client.describe_topics(sorted(topics))
    except PartlyRefusedError as error:
        failed = [each for each in error.results.values() if isinstance(each, RefusedError) and not is_missing(each)]
        if failed:
            raise failed[0] from None
        found = {name: each for name, each in error.results.items() if not isinstance(each, RefusedError)}
    return await _replicas_of(client, found) if found else {}


def _state_line(partition: TopicPartition, wanted: Sequence[int], current: Sequence[int], is_under_way: bool) -> str:
    if is_under_way:
        return f"Reassignment of partition {partition} is still in progress."
    if tuple(current) == tuple(wanted):
        return f"Reassignment of partition {partition} is completed."
    return (
        f"There is no active reassignment of partition {partition}, but replica set is "
        f"{','.join(map(str, current))} rather than {','.join(map(str, wanted))}."
    )


def _state(
    partition: TopicPartition, wanted: Sequence[int], current: Sequence[int], is_under_way: bool
) -> dict[str, object]:
    is_done = tuple(current) == tuple(wanted)
    state = "inProgress" if is_under_way else "completed" if is_done else "notActive"
    replicas = None if is_under_way else list(current)
    return {**partition._asdict(), "state": state, "replicas": replicas, "wanted": list(wanted)}


def _place(replica: Replica, place: ReplicaPlace, wanted: str) -> dict[str, object]:
    is_done = place.future_log_dir is None and place.log_dir == wanted
    return {
        "topic": replica.topic,
        "partition": replica.partition,
        "broker": replica.broker_id,
        "state": "inProgress" if place.future_log_dir == wanted else "completed" if is_done else "notActive",
        "logDir": place.log_dir,
        "futureLogDir": place.future_log_dir,
        "wanted": wanted,
    }


def _place_line(replica: Replica, place: ReplicaPlace, wanted: str) -> str:
    where = f"Partition {replica.topic}-{replica.partition}"
    if place.log_dir is None:
        return (
            f"{where} is not found in any live log dir on broker {replica.broker_id}. There is likely an offline log "
            "directory on the broker."
        )
    if place.future_log_dir == wanted:
        return f"Reassignment of replica {replica} is still in progress."
    if place.future_log_dir is not None:
        return (
            f"{where} on broker {replica.broker_id} is being moved to log dir {place.future_log_dir} instead of "
            f"{wanted}."
        )
    if place.log_dir == wanted:
        return f"Reassignment of replica {replica} completed successfully."
    return f"{where} on broker {replica.broker_id} is not being moved from log dir {place.log_dir} to {wanted}."


async def _clear_throttles(client: AdminClient, plan: Plan, *, silent: bool = False) -> None:
    # Brokers of an earlier step are not known, so all brokers are cleared.
    brokers = {node.id for node in (await client.describe_cluster()).nodes}
    brokers.update(each for _, replicas in plan.partitions for each in replicas)
    topics = sorted({partition.topic for partition, _ in plan.partitions})
    names = ",".join(map(str, sorted(brokers)))
    if not silent:
        click.echo(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {names}")
    await _clear(client, [_broker(each) for each in sorted(brokers)], (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE))
    if not silent:
        plural = "" if len(topics) == 1 else "s"
        click.echo(printable(f"Clearing topic-level throttles on topic{plural} {','.join(topics)}"))
    await _clear(client, [ConfigResource(TOPIC, topic) for topic in topics], (LEADERS, FOLLOWERS))


async def _clear(client: AdminClient, resources: Iterable[ConfigResource], keys: Iterable[str]) -> None:
    changes = [ConfigChange(key, ConfigOperation.DELETE, None) for key in keys]
    await client.alter_configs(dict.fromkeys(resources, changes))


def _cancel(connection: Connection, plan: Plan, options: Mapping[str, Any]) -> None:
    async def work(client: AdminClient) -> None:
        partitions = [partition for partition, _ in plan.partitions]
        active = sorted(await client.list_reassignments(partitions))
        if active:
            plural = "" if len(active) == 1 else "s"
            await _alter(client, dict.fromkeys(active), f"Error cancelling partition reassignment{plural} for:")
            names = ",".join(map(str, active))
            click.echo(printable(f"Successfully cancelled partition reassignment{plural} for: {names}"))
        else:
            click.echo("None of the specified partition reassignments are active.")
        places = await client.describe_replica_log_dirs(plan.log_dirs)
        back = {
            replica: place.log_dir
            for replica, place in places.items()
            if place.future_log_dir is not None and place.log_dir is not None
        }
        if back:
            await _move_directories(client, back, options["timeout"])
        else:
            click.echo("None of the specified partition moves are active.")
        if not options["preserve_throttles"]:
            await _clear_throttles(client, plan)

    connection.run(work)
