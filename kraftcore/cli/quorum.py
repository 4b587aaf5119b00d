"""``kraftcore quorum``: Kafka's kafka-metadata-quorum. Text output is that of Kafka 4.3.1's MetadataQuorumCommand.

Differences, all deliberate: the bootstrap options may also follow the sub-command; no stack traces; times in the
future are ``0 ms ago`` (Kafka fails); a leader that is no voter any more does not break the output;
``--output json``; the sub-command ``health`` (`kraftcore.cli.quorum_health`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import click

from kraftcore.admin import AdminClient, QuorumDescription, ReplicaProgress
from kraftcore.cli.admin_tool import Connection, bootstrap_options, connected
from kraftcore.cli.kafka_style import KafkaGroup
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.cli.quorum_health import health
from kraftcore.config.addresses import parse_endpoint, split_list
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, RemoteProtocolError
from kraftcore.ports.nursery import open_nursery
from kraftcore.raft.quorum import Endpoint
from kraftcore.storage.meta_properties import read_meta_properties

HEADERS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
INTEGER = re.compile(r"[+-]?\d{1,10}", re.ASCII)
NO_CONTROLLER = "Is this a valid controller configuration file?"


@click.group(
    cls=KafkaGroup,
    epilog="""\b
Examples:
  Who leads, how far behind the slowest voter is, who votes and who only watches:
    kraftcore quorum --bootstrap-controller 127.0.0.1:9093 describe --status
  Every replica's log end, lag and last fetch:
    kraftcore quorum --bootstrap-server 127.0.0.1:9092 describe --replication --human-readable
  Replace controller 3, whose disk was lost (start the new, empty one first: it watches until it is added):
    kraftcore quorum --bootstrap-controller 127.0.0.1:9093 remove-controller \\
      --controller-id 3 --controller-directory-id 3Db5QLSqSZieL3rJBUUegA
    kraftcore quorum --bootstrap-controller 127.0.0.1:9093 --command-config controller3.properties add-controller

\b
A majority of the voters decides. Adding a voter raises the number needed at once, so add one that has caught up
(Lag 0 among the observers), and change one voter at a time.
""",
)
@bootstrap_options()
def quorum(**_: object) -> None:
    """Describe the metadata quorum and change its voters, as kafka-metadata-quorum does."""


quorum.add_command(health)


@quorum.command(
    epilog="""\b
Examples:
  kraftcore quorum --bootstrap-controller 127.0.0.1:9093 describe --status
  kraftcore quorum --bootstrap-controller 127.0.0.1:9093 describe --replication --human-readable
""",
)
@click.option(
    "--status", is_flag=True, help="Print a summary: leader, epoch, high watermark, greatest lag, voters, observers."
)
@click.option(
    "--replication",
    is_flag=True,
    help="Print a line for each replica: log end offset, lag, and when it last fetched and had all.",
)
@click.option(
    "--human-readable",
    is_flag=True,
    help="With --replication: print times as '42 ms ago', in place of milliseconds since 1970.",
)
@output_option
@connected()
def describe(connection: Connection, status: bool, replication: bool, human_readable: bool, output: str) -> None:
    """Describe the quorum as its leader sees it.

    MaxFollowerLag is how many records the slowest voter lacks, MaxFollowerLagTimeMs for how long it has lacked them (-1
    while unknown). JSON: one object for --status; one a line, with times in milliseconds since 1970 or null, for
    --replication.
    """
    if status and replication:
        raise LocalError("Only one of --status or --replication should be specified with describe sub-command")
    if not status and not replication:
        raise LocalError("One of --status or --replication must be specified with describe sub-command")
    if status and human_readable:
        raise LocalError("The option --human-readable is only supported along with --replication")

    async def ask(client: AdminClient) -> tuple[str, QuorumDescription]:
        cluster_id = ""

        async def ask_for_id() -> None:
            nonlocal cluster_id
            cluster_id = (await client.describe_cluster()).cluster_id

        async with open_nursery() as nursery:  # side by side, for one timeout counts for both
            if status:
                nursery.start_soon(ask_for_id)
            found = await client.describe_quorum()
        return cluster_id, found

    cluster_id, found = connection.run(ask, is_look=True)
    if status:
        _print_status(cluster_id, found, as_json=output == "json")
    elif output == "json":
        for role, replica in _by_role(found):
            print_json(
                nodeId=replica.key.id,
                directoryId=str(replica.key.directory_id),
                logEndOffset=replica.log_end_offset,
                lag=found.lag(replica),
                lastFetchTimestamp=replica.last_fetch_ms,
                lastCaughtUpTimestamp=replica.last_caught_up_ms,
                status=role,
            )
    else:
        now_ms = int(time.time() * 1000) if human_readable else None
        _print_table([HEADERS, *(_row(found, role, replica, now_ms) for role, replica in _by_role(found))])


def _print_status(cluster_id: str, found: QuorumDescription, *, as_json: bool) -> None:
    if not found.voters:
        raise RemoteProtocolError(f"node {found.leader_id} says that it leads a quorum without voters")
    slowest = min(found.voters, key=lambda voter: voter.log_end_offset)
    leader = found.leader
    lag_ms = -1
    if slowest is leader:
        lag_ms = 0
    elif leader is not None and leader.last_caught_up_ms is not None and slowest.last_caught_up_ms is not None:
        lag_ms = leader.last_caught_up_ms - slowest.last_caught_up_ms
    voters, observers = _nodes(found, found.voters), _nodes(found, found.observers)
    if as_json:
        print_json(
            clusterId=cluster_id,
            leaderId=found.leader_id,
            leaderEpoch=found.leader_epoch,
            highWatermark=found.high_watermark,
            maxFollowerLag=found.lag(slowest),
            maxFollowerLagTimeMs=lag_ms,
            currentVoters=voters,
            currentObservers=observers,
        )
        return
    for label, value in (
        ("ClusterId:", cluster_id),
        ("LeaderId:", found.leader_id),
        ("LeaderEpoch:", found.leader_epoch),
        ("HighWatermark:", found.high_watermark),
        ("MaxFollowerLag:", found.lag(slowest)),
        ("MaxFollowerLagTimeMs:", lag_ms),
        ("CurrentVoters:", json.dumps(voters, ensure_ascii=False)),
        ("CurrentObservers:", json.dumps(observers, ensure_ascii=False)),
    ):
        click.echo(printable(f"{label:<24}{value}"))


def _nodes(found: QuorumDescription, replicas: Iterable[ReplicaProgress]) -> list[dict[str, object]]:
    nodes = []
    for replica in replicas:
        node: dict[str, object] = {"id": replica.key.id}
        if replica.key.has_directory:
            node["directoryId"] = str(replica.key.directory_id)
        endpoints = found.endpoints.get(replica.key.id)
        if endpoints:
            node["endpoints"] = [str(endpoint) for endpoint in endpoints]
        nodes.append(node)
    return nodes


def _by_role(found: QuorumDescription) -> Iterator[tuple[str, ReplicaProgress]]:
    leader = found.leader
    if leader is not None:
        yield "Leader", leader
    for voter in found.voters:
        if voter is not leader:
            yield "Follower", voter
    for observer in found.observers:
        yield "Observer", observer


def _row(found: QuorumDescription, role: str, replica: ReplicaProgress, now_ms: int | None) -> tuple[str, ...]:
    def when(then_ms: int | None) -> str:
        if then_ms is None:
            return "-1"
        return str(then_ms) if now_ms is None else f"{max(0, now_ms - then_ms)} ms ago"

    return (
        str(replica.key.id),
        str(replica.key.directory_id),
        str(replica.log_end_offset),
        str(found.lag(replica)),
        when(replica.last_fetch_ms),
        when(replica.last_caught_up_ms),
        role,
    )


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))


@quorum.command(
    "add-controller",
    epilog="""\b
Examples:
  On the new controller's machine, while it runs:
    kraftcore quorum --bootstrap-controller 127.0.0.1:9093 --command-config controller4.properties add-controller
""",
)
@click.option(
    "--dry-run", is_flag=True, help="Read the controller's files and print what would be added; change nothing."
)
@output_option
@connected()
def add_controller(connection: Connection, dry_run: bool, output: str) -> None:
    """Make a running controller a voter.

    --command-config is the new controller's own configuration: its id and listeners are taken from there, and its
    directory id from the meta.properties in its metadata directory, so run this on its machine.
    """
    if connection.config_path is None:
        raise LocalError(
            "You must supply the configuration file of the controller you are adding when using add-controller."
        )
    new = _read_controller(connection.properties)
    if not dry_run:
        connection.run(lambda client: client.add_voter(new.id, new.directory_id, new.endpoints))
    endpoints = [str(endpoint) for endpoint in new.endpoints]
    if output == "json":
        print_json(
            controllerId=new.id,
            directoryId=str(new.directory_id),
            endpoints=endpoints,
            added=not dry_run,
            dryRun=dry_run,
        )
        return
    verb = "DRY RUN of adding" if dry_run else "Added"
    click.echo(f"{verb} controller {new.id} with directory id {new.directory_id} and endpoints: {', '.join(endpoints)}")


@dataclass(frozen=True, slots=True)
class _Controller:
    id: int
    directory_id: Uuid
    endpoints: tuple[Endpoint, ...]


def _read_controller(properties: Mapping[str, str]) -> _Controller:
    return _Controller(_node_id(properties), _directory_id(properties), _controller_listeners(properties))


def _node_id(properties: Mapping[str, str]) -> int:
    text = properties.get("node.id")
    if text is None:
        raise LocalError(f"node.id not found in configuration file. {NO_CONTROLLER}")
    if not INTEGER.fullmatch(text.strip()) or int(text) >= 1 << 31:
        raise LocalError(f"node.id={text} is no number up to {(1 << 31) - 1}. {NO_CONTROLLER}")
    if int(text) < 0:
        raise LocalError(f"node.id was negative in configuration file. {NO_CONTROLLER}")
    if "controller" not in properties.get("process.roles", ""):
        raise LocalError(f"process.roles did not contain 'controller' in configuration file. {NO_CONTROLLER}")
    return int(text)


def _directory_id(properties: Mapping[str, str]) -> Uuid:
    folder = properties.get("metadata.log.dir")
    if folder is None:
        folders = split_list(properties.get("log.dirs", ""))
        if not folders:
            raise LocalError(f"Neither metadata.log.dir nor log.dirs were found. {NO_CONTROLLER}")
        folder = folders[0]
    found = read_meta_properties(OsFiles(), folder)
    if found is None:
        raise LocalError(f"Unable to read meta.properties from {folder}")
    if found.directory_id is None:
        raise LocalError(f"No directory id found in {folder}")
    return found.directory_id


def _controller_listeners(properties: Mapping[str, str]) -> tuple[Endpoint, ...]:
    listeners = {}
    for key in ("listeners", "advertised.listeners"):  # what is advertised wins
        for text in split_list(properties.get(key, "")):
            endpoint = parse_endpoint(text)
            listeners[endpoint.name] = endpoint
    names = properties.get("controller.listener.names")
    if names is None:
        raise LocalError(f"controller.listener.names was not found. {NO_CONTROLLER}")
    found = []
    for name in split_list(names):
        listener = listeners.get(name.upper())
        if listener is None:
            raise LocalError(f"Cannot find information about controller listener name: {name.upper()}")
        found.append(Endpoint(listener.name, listener.host or "localhost", listener.port))
    return tuple(dict.fromkeys(found))


@quorum.command(
    "remove-controller",
    epilog="""\b
Examples:
  kraftcore quorum --bootstrap-controller 127.0.0.1:9093 remove-controller \\
    --controller-id 3 --controller-directory-id 3Db5QLSqSZieL3rJBUUegA
""",
)
@click.option("--controller-id", "-i", type=int, required=True, help="Node id of the voter to remove.")
@click.option(
    "--controller-directory-id",
    "-d",
    required=True,
    help="Directory id of that voter, as 'describe --status' prints it.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed; ask no node and change nothing.")
@output_option
@connected()
def remove_controller(
    connection: Connection, controller_id: int, controller_directory_id: str, dry_run: bool, output: str
) -> None:
    """Take a voter out of the quorum, running or not. It goes on as an observer.

    The majority that remains decides, so make sure that it runs.
    """
    if controller_id < 0:
        raise LocalError(f"Invalid negative --controller-id: {controller_id}")
    try:
        directory_id = Uuid.from_string(controller_directory_id)
    except LocalError as error:
        raise LocalError(f"Failed to parse --controller-directory-id: {error}") from None
    if not dry_run:
        connection.run(lambda client: client.remove_voter(controller_id, directory_id))
    if output == "json":
        print_json(controllerId=controller_id, directoryId=str(directory_id), removed=not dry_run, dryRun=dry_run)
        return
    verb = "DRY RUN of removing " if dry_run else "Removed "
    click.echo(f"{verb} KRaft controller {controller_id} with directory id {directory_id}")
