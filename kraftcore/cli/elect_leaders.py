"""``kraftcore elect-leaders``: Kafka's kafka-leader-election. Text output is that of 4.3.1's LeaderElectionCommand.

Differences, all deliberate: partitions are named in order (Kafka's is that of hash tables); no stack traces; files
that are not JSON, or have another form, are reported without names of Java classes; ``--output json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import click
from click.shell_completion import CompletionItem

from kraftcore.admin import ElectionType, PartlyRefusedError, TopicPartition
from kraftcore.cli.admin_tool import Connection, make_connection, server_options
from kraftcore.cli.kafka_style import JavaNumber, KafkaFailure, KafkaTool, given, last_failure, words
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.cli.partition_files import read_election, read_file
from kraftcore.errors import LocalError, RefusedError, UnreachableError

# Kafka's tool waits less than its other clients: 30 s in all.
TIMEOUTS = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
CHOICES = ("topic", "all-topic-partitions", "path-to-json-file")


def _read_type(ctx: click.Context, param: click.Parameter, value: str | None) -> ElectionType | None:
    if value is None:
        return None
    if value.upper() not in ElectionType.__members__:
        raise click.BadParameter(f"Cannot parse argument '{value}' of option election-type", ctx, param)
    return ElectionType[value.upper()]


def _complete_type(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = (each.name.lower() for each in ElectionType)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(
    cls=KafkaTool,
    epilog="""\b
Examples:
  Back to the preferred leaders, after brokers were restarted:
    kraftcore elect-leaders --bootstrap-server 127.0.0.1:9092 --election-type preferred --all-topic-partitions
  One partition, whose replicas in sync are lost for good; what only they had is lost with them:
    kraftcore elect-leaders --bootstrap-server 127.0.0.1:9092 --election-type unclean --topic orders --partition 3

\b
The file: {"partitions": [{"topic": "orders", "partition": 1}, {"topic": "clicks", "partition": 2}]}
With --output json an object with electionType, elected: [{topic, partition}], notNeeded: [{topic, partition}] and
failed: [{topic, partition, error, message}]; the exit status is 1 if there are any.
""",
)
@output_option
@click.option(
    "--all-topic-partitions",
    is_flag=True,
    help="Elect for all partitions of all topics that need "
    "it: those not led by their preferred leader, or for "
    "unclean those without a leader.",
)
@click.option("--partition", metavar="N", type=JavaNumber(), help="With --topic: number of the partition, from 0.")
@click.option("--topic", metavar="NAME", help="Elect for one partition of this topic; with --partition.")
@click.option(
    "--path-to-json-file",
    metavar="FILE",
    type=click.Path(),
    help="Elect for the partitions in this JSON file; its form is shown below.",
)
@click.option(
    "--election-type",
    metavar="TYPE",
    callback=_read_type,
    shell_complete=_complete_type,
    help="preferred: the partition's first replica, if it is in sync. unclean: for a partition without a leader "
    "any replica that lives, also one that lacks records; they are lost.",
)
@click.option("--admin.config", "admin_config", metavar="FILE", help="Deprecated name of --command-config.")
@server_options(controllers=False)
@click.pass_context
def elect_leaders(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    command_config: str | None,
    admin_config: str | None,
    election_type: ElectionType,
    path_to_json_file: str | None,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    output: str,
) -> None:
    """Elect the leaders of partitions anew, as kafka-leader-election does.

    --election-type says how, one of --all-topic-partitions, --topic and --path-to-json-file for which partitions.
    """
    _check(given(ctx))
    partitions: Sequence[TopicPartition] | None = None
    if path_to_json_file is not None:
        partitions = read_election(read_file(path_to_json_file))
    elif topic is not None and partition is not None:
        partitions = [TopicPartition(topic, partition)]
    as_json = output == "json"
    if admin_config is not None:
        click.echo(
            "Option --admin.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead.",
            err=as_json,
        )
    connection = make_connection(bootstrap_server, None, command_config or admin_config)
    _print(election_type, _elect(connection, election_type, partitions, as_json=as_json), as_json=as_json)


def _check(present: Sequence[str]) -> None:
    if {"admin.config", "command-config"} <= {*present}:
        raise LocalError('Option "[admin.config]" can\'t be used with option "[command-config]"')
    missing = [option for option in ("bootstrap-server", "election-type") if option not in present]
    if missing:
        raise LocalError(f"Missing required option(s): {', '.join(missing)}")
    if len([option for option in CHOICES if option in present]) != 1:
        raise LocalError(f"One and only one of the following options is required: {', '.join(CHOICES)}")
    if "topic" in present and "partition" not in present:
        raise LocalError("Missing required option(s): partition")
    if "partition" in present and "topic" not in present:
        raise LocalError("Option partition is only allowed if topic is used")


def _elect(
    connection: Connection, election: ElectionType, partitions: Sequence[TopicPartition] | None, *, as_json: bool
) -> Mapping[TopicPartition, object]:
    patient = replace(connection, properties={**TIMEOUTS, **connection.properties})
    try:
        return patient.run(lambda client: client.elect_leaders(election, partitions))
    except PartlyRefusedError as error:
        return error.results
    except UnreachableError as error:
        click.echo("Timeout waiting for election results", err=as_json)
        raise KafkaFailure(f"Timeout waiting for election results\n{last_failure(error)}") from None
    except RefusedError as error:
        if error.error == "CLUSTER_AUTHORIZATION_FAILED":
            click.echo("Not authorized to perform leader election", err=as_json)
            raise KafkaFailure("Not authorized to perform leader election") from None
        raise


def _print(election: ElectionType, results: Mapping[TopicPartition, object], *, as_json: bool) -> None:
    elected = [each for each, result in results.items() if result is True]
    needless = [each for each, result in results.items() if result is False]
    failed = {each: result for each, result in results.items() if isinstance(result, RefusedError)}
    if as_json:
        print_json(
            electionType=election.name,
            elected=[each._asdict() for each in sorted(elected)],
            notNeeded=[each._asdict() for each in sorted(needless)],
            failed=[
                {**each._asdict(), "error": error.error, "message": error.message}
                for each, error in sorted(failed.items())
            ],
        )
    else:
        _print_text(election, elected, needless, failed)
    if failed:
        raise KafkaFailure(f"{len(failed)} replica(s) could not be elected")


def _print_text(
    election: ElectionType,
    elected: Sequence[TopicPartition],
    needless: Sequence[TopicPartition],
    failed: Mapping[TopicPartition, RefusedError],
) -> None:
    def named(wanted: Iterable[TopicPartition]) -> str:
        return ", ".join(map(str, sorted(wanted)))

    if elected:
        text = f"Successfully completed leader election ({election.name}) for partitions {named(elected)}"
        click.echo(printable(text))
    if needless:
        click.echo(printable(f"Valid replica already elected for partitions {named(needless)}"))
    for partition, error in sorted(failed.items()):
        text = f"Error completing leader election ({election.name}) for partition: {partition}: {words(error)}"
        click.echo(printable(text))
