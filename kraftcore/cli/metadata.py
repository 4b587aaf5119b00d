"""``kraftcore metadata``: a cluster's metadata as a file, as a new quorum, and compared. Kafka has no such commands."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from kraftcore.cli.kafka_style import KafkaFailure, config_option
from kraftcore.cli.output import output_option, print_json, printable

if TYPE_CHECKING:
    from kraftcore.cli.metadata_states import State

_command_config = click.option(
    "--command-config",
    metavar="FILE",
    help="Properties file that says how to connect: security.protocol, ssl.* (files in PEM), sasl.*. Without it: "
    "unencrypted, and without a login.",
)


@click.group(
    epilog="""\b
Examples:
  kraftcore metadata backup --bootstrap-controller c1:9093 --directory /var/backups/kafka
  kraftcore metadata diff /var/backups/kafka/00000000000000001234-0000000007.checkpoint c1:9093
""",
)
def metadata() -> None:
    """Back a cluster's metadata up, restore it into new controllers, and say what differs between two states of it.

    Metadata is what controllers keep: topics and where their partitions are, configurations, quotas, access control
    entries, users, tokens, feature levels, registered brokers. It is not what is in the topics.
    """


@metadata.command(
    short_help="Write a quorum's metadata into one file.",
    epilog="""\b
Examples:
  Once a night:
    kraftcore metadata backup --bootstrap-controller c1:9093,c2:9093 --directory /var/backups/kafka
  What is in it:
    kraftcore dump-log --cluster-metadata-decoder --files /var/backups/kafka/00000000000000001234-0000000007.checkpoint
    kraftcore metadata diff /var/backups/kafka/00000000000000001234-0000000007.checkpoint c1:9093

\b
The file is a snapshot as Kafka's controllers write them: <offset>-<epoch>.checkpoint, with a checksum in every batch;
its first record, which Kafka skips, says of which cluster it is. It is read again once it is written. The quorum
does not notice. A backup has the hashes of users' passwords and tokens in it: keep it as you keep those.
""",
)
@click.option(
    "--bootstrap-controller",
    metavar="LIST",
    required=True,
    help="Controllers to ask, as host:port,host:port. One that answers is enough: it names the others.",
)
@_command_config
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    required=True,
    help="Where the file goes; made if it is missing.",
)
@output_option
def backup(bootstrap_controller: str, command_config: str | None, directory: str, output: str) -> None:
    """Write all that a live quorum has committed, of Kafka or of kraftcore, into one file."""
    from kraftcore.cli.admin_tool import make_connection
    from kraftcore.cli.metadata_states import observe_state, write_backup

    state = observe_state(make_connection(None, bootstrap_controller, command_config))
    written = write_backup(state, directory)
    size = os.stat(written.path).st_size
    if output == "json":
        print_json(
            file=written.path,
            clusterId=state.cluster_id,
            endOffset=state.end_offset,
            epoch=state.epoch,
            records=written.records,
            bytes=size,
            existed=written.existed,
        )
        return
    click.echo(
        printable(
            f"{'There is a backup of this moment already' if written.existed else 'Written'}: {written.path}\n"
            f"  cluster {state.cluster_id}, everything below offset {state.end_offset}, leader epoch {state.epoch}\n"
            f"  {written.records} records, {size} bytes, read again and found whole"
        )
    )


@metadata.command(
    short_help="Begin a new quorum with a backup.",
    epilog="""\b
Examples:
  One controller, to which others are added later (kraftcore quorum add-controller):
    kraftcore metadata restore BACKUP.checkpoint --config c1.properties --standalone
  Three at once: the same on each, with its own file; ids are drawn by "kraftcore storage random-uuid":
    kraftcore metadata restore BACKUP.checkpoint --config c1.properties --initial-controllers \\
      1@h1:9093:JEXY6aqzQY-32P5TStzaFg,2@h2:9093:MvDxzVmcRsaTz33bUuRU6A,3@h3:9093:07R5amHmR32VDA6jHkGbTA
  The same topics and users in another cluster, for brokers that have none of the data:
    kraftcore metadata restore BACKUP.checkpoint --config c1.properties --standalone \\
      --cluster-id $(kraftcore storage random-uuid) --without-brokers

\b
Then start the controllers, Kafka's or kraftcore's. Never restore beside controllers of the same cluster that may still
run: two quorums would decide for the same brokers. With controller.quorum.voters in the file no voters are given.
""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@config_option
@click.option(
    "--cluster-id",
    "-t",
    help="Id of the new cluster; brokers' directories must have the same.  [default: that of the backup]",
)
@click.option("--standalone", "-s", is_flag=True, help="Make this controller the only voter.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="LIST",
    help="The voters, as id@host:port:directoryId,id@...; the same list on each of them.",
)
@click.option(
    "--without-brokers",
    is_flag=True,
    help="Forget the brokers: for brokers that have none of the topics' data. Once they are there, have leaders "
    "elected: kraftcore elect-leaders --election-type unclean --all-topic-partitions.",
)
@output_option
def restore(
    file: str,
    path: str,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    without_brokers: bool,
    output: str,
) -> None:
    """Format a new controller's directories so that its log begins with the metadata of a backup.

    FILE is a backup, or any snapshot of a metadata log. The voters are those that you name, with new addresses and new
    directory ids. A formatted directory is never touched. Killed half way, it can simply be run again.
    """
    from kraftcore.cli.metadata_restore import restore_backup
    from kraftcore.cli.storage import check_exclusive, choose_voters
    from kraftcore.config.storage_properties import load_server_file

    check_exclusive(standalone, False, initial_controllers)
    server = load_server_file(path)
    if server.endpoint is None:
        raise KafkaFailure("This is a broker's file: brokers fetch the metadata from the controllers.")
    voters = choose_voters(server, standalone, initial_controllers)
    done = restore_backup(file, server, voters, cluster_id, without_brokers=without_brokers)
    directory_id = done.properties.directory_id
    if output == "json":
        print_json(
            nodeId=server.node_id,
            clusterId=done.plan.cluster_id,
            directory=server.metadata_directory,
            directoryId=str(directory_id),
            initialControllers=None if voters is None else [str(each) for each in voters],
            endOffset=done.begin.end_offset,
            epoch=done.begin.epoch,
            topics=done.topics,
            brokers=done.brokers,
        )
        return
    told = ", ".join(f"{each.node_id} at {each.host}:{each.port}" for each in voters or ())
    click.echo(
        printable(
            f"Node {server.node_id}, directory {directory_id} in {server.metadata_directory}\n"
            f"  cluster {done.plan.cluster_id}, {done.topics} topics, {done.brokers} brokers\n"
            f"  its log goes on from offset {done.begin.end_offset}, leader epoch {done.begin.epoch}\n"
            f"  voters: {told or 'those in controller.quorum.voters'}"
        )
    )


class _Place(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A snapshot, a directory with or without an offset, or controllers."""

    name = "PLACE"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete as a path."""
        return [CompletionItem(incomplete, type="file")]


@metadata.command(
    short_help="Say what differs between two states.",
    epilog="""\b
Examples:
  What happened since the backup:
    kraftcore metadata diff /var/backups/kafka/00000000000000001234-0000000007.checkpoint c1:9093
  Two clusters:
    kraftcore metadata diff c1:9093 d1:9093
  What the records from offset 1000 to 1999 of a controller's log did, or of a mirror's:
    kraftcore metadata diff /var/lib/kafka/metadata@1000 /var/lib/kafka/metadata@2000

\b
A PLACE is one of
  FILE.checkpoint     a backup, or a snapshot of Kafka or kraftcore
  DIRECTORY           of a controller, a broker or a mirror, also one in use: all records in it, committed or not
  DIRECTORY@OFFSET    the same, only the records below the offset
  HOST:PORT,...       controllers of a live quorum: what is committed now

\b
With --output json an object a difference: "kind", "name", "before" and "after" (null: not there); secrets are left out.
The exit status is 0 if nothing differs, else 1.
""",
)
@click.argument("before", type=_Place())
@click.argument("after", type=_Place())
@_command_config
@output_option
@click.pass_context
def diff(ctx: click.Context, before: str, after: str, command_config: str | None, output: str) -> None:
    """Say what differs between two states of metadata: of two clusters, of two backups, of two moments."""
    from kraftcore.cli.metadata_words import differences_of, sentences
    from kraftcore.metadata.differences import differences

    first, second = (_state(place, command_config) for place in (before, after))
    found = list(differences_of(differences(first.image, second.image), first.image, second.image))
    if output == "json":
        for each in found:
            print_json(kind=each.kind, name=each.name, before=each.before, after=each.after)
    else:
        _echo_all([_heading(first), _heading(second)], sentences(found))
    ctx.exit(1 if found else 0)


@metadata.command(
    short_help="Walk about in metadata, live and at earlier moments.",
    epilog="""\b
Examples:
  A live quorum, of Kafka or of kraftcore:
    kraftcore metadata shell c1:9093
      /image> cd topics/orders
      /image/topics/orders> cat 0
      /image/topics/orders> log
      /image/topics/orders> at 14:05
      /image/topics/orders @1234> cat 0/leader
  One command, for a script:
    kraftcore metadata shell /var/lib/kafka/metadata cat cluster/brokers

\b
PLACE is what "kraftcore metadata diff" takes. The tree is much like kafka-metadata-shell's; topics/NAME is short for
topics/byName/NAME. Passwords and keys are not shown. Of a live quorum the log since its last snapshot is fetched, which
is how far back "at" and "log" reach; what is committed meanwhile is seen at once.
""",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("place", type=_Place())
@click.argument("command", nargs=-1)
@_command_config
@click.pass_context
def shell(ctx: click.Context, place: str, command: tuple[str, ...], command_config: str | None) -> None:
    """Look at metadata as at folders and files: ls, cd, cat, find, log, at.

    Without COMMAND the commands are typed, or piped in. The exit status is 1 if one of those that are given or piped in
    fails.
    """
    import trio

    from kraftcore.cli.admin_tool import make_connection
    from kraftcore.cli.metadata_shell import Shell, run_shell, terminal_kept
    from kraftcore.cli.metadata_states import follow_state

    def run(state: State, directory: str) -> bool:
        return run_shell(Shell(state, directory, trio.from_thread.run_sync), " ".join(command))

    if _is_address(place):
        with terminal_kept():
            is_well = follow_state(make_connection(None, place, command_config), run)
    else:
        path = place if os.path.exists(place) else place.rpartition("@")[0]
        known = Shell(_state(place, command_config), path if os.path.isdir(path) else None)
        is_well = run_shell(known, " ".join(command))
    ctx.exit(0 if is_well else 1)


def _echo_all(headings: Iterable[str], lines: Iterator[str]) -> None:
    for heading, mark in zip(headings, ("before: ", "after:  "), strict=True):
        click.echo(printable(mark + heading))
    first = next(lines, None)
    if first is None:
        click.echo("Nothing differs.")
        return
    click.echo(printable(first))
    for line in lines:
        click.echo(printable(line))


def _heading(state: State) -> str:
    cluster = "a cluster that is not named" if state.cluster_id is None else f"cluster {state.cluster_id}"
    return f"{state.source}: {cluster}, everything below offset {state.end_offset}, leader epoch {state.epoch}"


def _state(place: str, command_config: str | None) -> State:
    from kraftcore.cli.admin_tool import make_connection
    from kraftcore.cli.metadata_states import observe_state, read_directory, read_snapshot

    path, at, offset = place.rpartition("@")
    if os.path.isdir(place):
        return read_directory(place)
    if os.path.isfile(place):
        return read_snapshot(place)
    if at and offset.isdecimal() and os.path.isdir(path):
        return read_directory(path, int(offset))
    if not _is_address(place):
        raise click.UsageError(
            f"{place} is not there: give a snapshot's file, a directory, DIRECTORY@OFFSET, or controllers as HOST:PORT"
        )
    return observe_state(make_connection(None, place, command_config))


def _is_address(place: str) -> bool:
    return not os.path.exists(place) and "/" not in place and ":" in place
