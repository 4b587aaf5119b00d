"""``kraftcore up``: a whole Kafka, for a shell."""

from __future__ import annotations

from typing import Any

import click

from kraftcore.cli.collecting import not_collecting
from kraftcore.cli.kafka_style import KafkaFailure


@click.command(
    epilog="""\b
Examples:
  kraftcore up --brokers 3
  kraftcore up --brokers 3 --first-port 9092 --directory ./kafka --property min.insync.replicas=2
  kraftcore up --brokers 3 --processes --output json
  kraftcore up --user alice:secret --tls
  kraftcore up --control 8082

\b
One line an event on stdout; with --output json an object with "time" (ISO 8601), "event" and:
  started   bootstrapServers, brokers, controllers, directory (null: a temporary one), securityProtocol, caFile (null:
            no TLS), controlUrl (null: no --control); with --processes also pids, by id
  log       level, logger, text; with --processes also node
  ended     node, pid, signal, status, error: a process of --processes is gone (null: what does not apply)
  running   node, pid: one that was started again is ready
  stopping  signal
  stopped   error (null: it was asked to)
What is refused before anything runs, a property say, is told on stderr alone.

SIGINT (Ctrl-C), SIGTERM and SIGHUP (its terminal was closed; not under nohup) stop it, brokers first; a second SIGINT
or SIGTERM ends it at once. The exit status is 0 after a stop that was asked for, and 1 if it could not start or a node
failed.

With --processes a node may end, killed by its process id, say: the others go on. SIGUSR1 starts all that have ended
again (without --processes it does nothing, and says so); kraftcore server start DIRECTORY/broker-2.properties starts a
single one. The exit status is 1 if it could not start, a node failed while it was stopped, or all nodes have ended. If
the command itself is killed, all nodes end.
"""
)
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True, help="How many brokers.")
@click.option("--controllers", type=click.IntRange(1, 9), default=1, show_default=True, help="How many controllers.")
@click.option(
    "--first-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Broker 1 listens here, the others above.  [default: free ones]",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Keep everything here, and go on with what is there.  [default: a temporary one, removed at the end]",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of all nodes, by Kafka's name; repeatable. Not node ids, roles, directories and listeners.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME:PASSWORD",
    help="Who may connect, by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; repeatable.  [default: anybody]",
)
@click.option("--tls", is_flag=True, help="Clients connect by TLS, to certificates that are made on the spot.")
@click.option(
    "--control",
    metavar="[HOST:]PORT",
    help="Serve an HTTP interface here that breaks nodes and requests; 0: any free port.  [default: none; "
    "default host: 127.0.0.1]",
)
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", help="json: one object an event instead of text."
)
@click.option("--processes", is_flag=True, help="Give each node a process of its own.")
@click.pass_context
def up(
    ctx: click.Context,
    brokers: int,
    controllers: int,
    first_port: int,
    directory: str | None,
    properties: tuple[str, ...],
    users: tuple[str, ...],
    tls: bool,
    control: str | None,
    output: str,
    processes: bool,
) -> None:
    """Run brokers and controllers here, until told to stop.

    Prints the bootstrap servers. Clients connect from this machine alone. It is made for trying things and for tests:
    all nodes share one process and one disk. With --processes each has a process, as kraftcore server start runs it:
    load gets all processors, and a failure test kills single nodes. With --control a test in any language kills nodes,
    cuts the network and has requests fail, by HTTP; GET / tells how.
    """
    if first_port + brokers - 1 > 65535:
        raise click.UsageError(f"--first-port {first_port} leaves no room for {brokers} brokers up to port 65535")
    if processes and control is not None:
        raise click.UsageError("--control: not with --processes, whose nodes signals end, freeze and start again")
    logins, address = _logins(users), None if control is None else _address(control)
    given = {}
    for text in properties:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--property {text}: write KEY=VALUE")
        given[key.strip()] = value
    with not_collecting():  # until all is imported
        from kraftcore.testing.kafka_files import SET_HERE

        for key in given:
            if key in SET_HERE:
                raise click.UsageError(f"--property {key}: kraftcore up sets it itself, for each node")
        common: dict[str, Any] = {
            "brokers": brokers,
            "controllers": controllers,
            "first_port": first_port,
            "directory": directory,
            "properties": given,
            "users": logins,
            "tls": tls,
            "as_json": output == "json",
        }
        if processes:
            from kraftcore.cli.up_processes import run_up_processes

            error = run_up_processes(**common)
        else:
            from kraftcore.cli.up_run import run_up

            error = run_up(control=address, **common)
    if error is not None:
        raise KafkaFailure(error)
    ctx.exit(0)


def _logins(users: tuple[str, ...]) -> dict[str, str]:
    logins = dict(map(_user, users))
    if len(logins) < len(users):
        raise click.UsageError("--user: a name is given twice; each user has one password")
    return logins


def _user(text: str) -> tuple[str, str]:
    name, colon, password = text.partition(":")
    if not (colon and name and password):
        raise click.UsageError(f"--user {text}: write NAME:PASSWORD")
    return name, password


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise click.UsageError(f"--control {text}: write PORT or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)
