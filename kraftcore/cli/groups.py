"""``kraftcore groups``: Kafka's kafka-consumer-groups. Text output is that of Kafka 4.3.1's ConsumerGroupCommand.

Differences, all deliberate: groups and partitions stand in the order of their names (Kafka's is that of hash tables);
wrong usage is one line and a hint, not the whole help; no stack traces; ``--output json`` for actions that only read.
Errors of an action are printed on stdout, with exit status 0, as by Kafka's tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from kraftcore.cli.admin_tool import Connection, make_connection, server_options
from kraftcore.cli.groups_change import delete, delete_offsets, reset
from kraftcore.cli.groups_common import TYPES, GroupFailure, Wanted, consumer_groups, line_of
from kraftcore.cli.groups_describe import describe
from kraftcore.cli.kafka_style import JavaNumber, KafkaTool, check_not_with, check_required, given, words
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.errors import KraftError, LocalError

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
SCENARIOS = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
STATES = ("PreparingRebalance", "Stable", "CompletingRebalance", "Dead", "Empty", "Assigning", "Reconciling")
_NO_EXECUTE = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)


def _failed(error: KraftError) -> click.ClickException:
    return GroupFailure(f"\nError: Executing consumer group command failed due to {words(error)}")


@click.command(
    cls=KafkaTool,
    failed=_failed,
    epilog="""\b
Examples:
  What groups there are, how far one came, who is in it:
    kraftcore groups --bootstrap-server 127.0.0.1:9092 --list --state
    kraftcore groups --bootstrap-server 127.0.0.1:9092 --describe --group orders
    kraftcore groups --bootstrap-server 127.0.0.1:9092 --describe --group orders --members --verbose
  Read a topic again from its beginning; see first what would be done:
    kraftcore groups --bootstrap-server 127.0.0.1:9092 --reset-offsets --group g --topic t --to-earliest --dry-run
    kraftcore groups --bootstrap-server 127.0.0.1:9092 --reset-offsets --group g --topic t --to-earliest --execute
  Forget a group, or what it committed in a topic:
    kraftcore groups --bootstrap-server 127.0.0.1:9092 --delete --group orders
    kraftcore groups --bootstrap-server 127.0.0.1:9092 --delete-offsets --group orders --topic sales

\b
With --output json an object with:
  --list                groups: [{group, type, state}]
  --describe            groups: [{group, state, partitions: [{topic, partition, leaderEpoch, currentOffset,
                        logEndOffset, lag, consumerId, host, clientId}]}]; null for what is not known
  --describe --members  groups: [{group, state, members: [{consumerId, groupInstanceId, host, clientId, partitions:
                        [{topic, partition}]}]}]
  --describe --state    groups: [{group, state, coordinator, coordinatorId, assignmentStrategy, members}]
""",
)
@output_option
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="[LIST]",
    help="With --list: print each group's type; with a LIST, as classic,consumer, only groups of these types.",
)
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[LIST]",
    help="With --list: print each group's state; with a LIST, as Stable,Empty, "
    "only groups in these states. With --describe: each group's state and "
    "coordinator, in place of its offsets.",
)
@click.option(
    "--offsets",
    is_flag=True,
    help="With --describe: each partition with the committed offset and the lag. This is the default.",
)
@click.option(
    "--verbose",
    is_flag=True,
    help="With --describe: more columns, as the partitions of each member "
    "and the leader epoch of each committed offset.",
)
@click.option("--members", is_flag=True, help="With --describe: the members of each group, in place of its offsets.")
@click.option(
    "--shift-by",
    metavar="N",
    type=JavaNumber(64),
    help="With --reset-offsets: move the committed offset by N records, forward, or back if N is negative.",
)
@click.option(
    "--to-current", is_flag=True, help="With --reset-offsets: the committed offset, or the end where none is committed."
)
@click.option(
    "--to-latest", is_flag=True, help="With --reset-offsets: the end of each partition: only new records are read."
)
@click.option(
    "--to-earliest", is_flag=True, help="With --reset-offsets: the first offset of each partition that still exists."
)
@click.option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    help="With --reset-offsets: the first record that is younger than this duration in ISO 8601, as PT1H30M.",
)
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDTHH:mm:SS.sss",
    help="With --reset-offsets: the first record of this time or later; UTC, "
    "unless it ends with another zone, as +02:00.",
)
@click.option(
    "--from-file", metavar="FILE", help="With --reset-offsets: the offsets in this CSV file, as --export prints it."
)
@click.option(
    "--to-offset",
    metavar="N",
    type=JavaNumber(64),
    help="With --reset-offsets: this offset, or the nearest that exists in the partition.",
)
@click.option("--export", is_flag=True, help="With --reset-offsets: print the offsets as CSV, for --from-file.")
@click.option("--execute", is_flag=True, help="With --reset-offsets: commit the new offsets.")
@click.option("--dry-run", is_flag=True, help="With --reset-offsets: print the new offsets, and commit nothing.")
@click.option(
    "--delete-offsets", is_flag=True, help="Delete the offsets that a group committed in the topics of --topic."
)
@click.option(
    "--reset-offsets",
    is_flag=True,
    help="Commit other offsets for a group that has no members at the moment; one of --to-..., --shift-by, "
    "--by-duration and --from-file says which.",
)
@click.option(
    "--timeout",
    metavar="MS",
    type=JavaNumber(64),
    default=5000,
    show_default=True,
    help="Milliseconds until a request that got no answer is given up, 1 to 2147483647.",
)
@click.option(
    "--delete", is_flag=True, help="Delete groups that have no members, with all offsets that they committed."
)
@click.option("--all-groups", is_flag=True, help="All groups, in place of --group.")
@click.option("--describe", is_flag=True, help="Print how far each group has read, or its --members, or its --state.")
@click.option("--list", is_flag=True, help="Print the names of all groups.")
@click.option(
    "--all-topics",
    is_flag=True,
    help="With --reset-offsets: all topics in which the group committed an offset, in place of --topic.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:N,N]",
    help="With --reset-offsets and --delete-offsets: a topic, or some of its "
    "partitions, as orders:0,2; may be repeated.",
)
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Id of a group; may be repeated.")
@server_options(controllers=False)
@click.pass_context
def groups(
    ctx: click.Context, /, bootstrap_server: str, command_config: str | None, output: str, **options: Any
) -> None:
    """List, describe, reset and delete consumer groups, as kafka-consumer-groups does.

    Name one action: --list, --describe, --reset-offsets, --delete-offsets or --delete.
    """
    present = given(ctx)
    wanted = Wanted(**{name: value for name, value in options.items() if name in Wanted.__annotations__})
    action = _check(present, wanted)
    if not 0 < options["timeout"] < 2**31:
        raise click.UsageError(f"--timeout {options['timeout']}: it must be between 1 and {2**31 - 1}")
    connection = make_connection(bootstrap_server, None, command_config)
    limited = {**connection.properties, "default.api.timeout.ms": str(options["timeout"])}
    connection = replace(connection, properties=limited)
    if action == "list":
        _list(connection, wanted, as_json=output == "json")
    elif action == "describe":
        describe(connection, wanted, as_json=output == "json")
    else:
        {"delete": delete, "reset-offsets": reset, "delete-offsets": delete_offsets}[action](connection, wanted)


def _check(present: Sequence[str], wanted: Wanted) -> str:
    """Return the chosen action; refuses combinations of options as Kafka's tool does, in the same order."""
    needed: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("members", ("describe",)),
        ("verbose", ("describe",)),
        ("offsets", ("describe",)),
        ("state", ("describe", "list")),
        ("type", ("list",)),
    )
    for option, with_these in needed:
        if option in present and not any(action in present for action in with_these):
            raise click.UsageError(f"Option(s) [{option}] are unavailable given other options on the command line")
    check_required(present, "bootstrap-server")
    has_scope = "group" in present or "all-groups" in present
    if "describe" in present:
        if not has_scope:
            raise click.UsageError("Option [describe] takes one of these options: [group], [all-groups]")
        if sum(each in present for each in ("members", "offsets", "state")) > 1:
            raise click.UsageError(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if wanted.state:
            raise click.UsageError("Option [describe] does not take a value for [state]")
    if "delete" in present:
        if not has_scope:
            raise click.UsageError("Option [delete] takes one of these options: [group], [all-groups]")
        if "topic" in present:
            raise click.UsageError(
                "The consumer does not support topic-specific offset deletion from a consumer group."
            )
    if "delete-offsets" in present and ("group" not in present or "topic" not in present):
        raise click.UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if "delete-offsets" in present and len(wanted.groups) > 1:
        raise LocalError("Found multiple arguments for option group, but you asked for only one")
    if "reset-offsets" in present:
        if "dry-run" in present and "execute" in present:
            raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if "dry-run" not in present and "execute" not in present:
            click.echo(_NO_EXECUTE, err=True)
        if not has_scope:
            raise click.UsageError("Option [reset-offsets] takes one of these options: [group], [all-groups]")
        for option in SCENARIOS:
            check_not_with(present, option, [each for each in SCENARIOS if each != option])
    check_not_with(present, "group", ("all-groups",))
    check_not_with(present, "group", ("list",))
    check_not_with(present, "topic", ("list", "describe"))
    actions = [action for action in ACTIONS if action in present]
    if len(actions) != 1:
        listed = ", ".join(f"--{action}" for action in ACTIONS)
        raise click.UsageError(f"Command must include exactly one action: {listed}")
    check_not_with(present, "output", [action for action in ACTIONS if action not in ("list", "describe")])
    if actions[0] == "reset-offsets":
        if not any(each in present for each in ("all-topics", "topic", "from-file")):
            raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
        if not any(each in present for each in SCENARIOS):
            listed = ", ".join(f"[{each}]" for each in SCENARIOS)
            raise click.UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{listed}]")
    return actions[0]


# --- listing ----------------------------------------------------------------------------------------------------------


def _list(connection: Connection, wanted: Wanted, *, as_json: bool) -> None:
    states = _choose("state", wanted.state, STATES)
    types = _choose("types", wanted.types, TYPES)
    found = [
        each
        for each in connection.run(consumer_groups)
        if (not states or each.state in states) and (not types or each.type.capitalize() in types)
    ]
    if as_json:
        print_json(groups=[{"group": each.id, "type": each.type.capitalize(), "state": each.state} for each in found])
        return
    if wanted.state is None and wanted.types is None:
        for each in found:
            click.echo(printable(each.id))
        return
    columns = [("GROUP", [each.id for each in found])]
    if wanted.types is not None:
        columns.append(("TYPE", [each.type.capitalize() or "Unknown" for each in found]))
    if wanted.state is not None:
        columns.append(("STATE", [each.state or "Unknown" for each in found]))
    widths = [max([15, *(len(each.id) for each in found)]) + 10, 20, 20]
    for row in zip(*([head, *cells] for head, cells in columns), strict=True):
        click.echo(printable(line_of(row, widths)))


def _choose(what: str, text: str | None, known: Sequence[str]) -> set[str]:
    """The states or types in a list, compared without regard to case."""
    if not text:
        return set()
    by_name = {each.lower(): each for each in known}
    named = [each.strip().lower() for each in text.split(",")]
    if any(each not in by_name for each in named):
        valid = f"Valid {'states' if what == 'state' else 'types'} are: {', '.join(known)}"
        raise click.UsageError(f"Invalid {what} list '{text}'. {valid}")
    return {by_name[each] for each in named}
