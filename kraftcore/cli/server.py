"""``kraftcore server``: a node on its own, set up by a Kafka properties file."""

from __future__ import annotations

import click

from kraftcore.cli.collecting import not_collecting
from kraftcore.cli.kafka_style import KafkaFailure, KafkaGroup


@click.group(
    cls=KafkaGroup,
    epilog="""\b
Examples:
  kraftcore storage format -c c1.properties -t $(kraftcore storage random-uuid) --standalone
  kraftcore server start c1.properties
""",
)
def server() -> None:
    """Run a node in this process, without an application around it."""


@server.command(
    epilog="""\b
Examples:
  A first controller, alone:
    kraftcore storage format -c c1.properties -t MkU3OEVBNTcwNTJENDM2Qk --standalone
    kraftcore server start c1.properties
  The same with another port, its events as JSON:
    kraftcore server start c1.properties --override listeners=CONTROLLER://127.0.0.1:9193 --output json

\b
A file needs as little as this (pydoc kraftcore.config.NodeConfig lists all settings):
  process.roles=controller
  node.id=1
  controller.listener.names=CONTROLLER
  listeners=CONTROLLER://127.0.0.1:9093
  controller.quorum.bootstrap.servers=127.0.0.1:9093
  log.dirs=/var/lib/kraftcore
To have Prometheus watch it (extra "metrics"):
  kraftcore.plugins=metrics
  kraftcore.plugin.metrics.listen=127.0.0.1:9404

\b
One line an event on stdout; with --output json an object with "time" (ISO 8601), "event" and:
  ignored     properties        properties of Kafka that mean nothing to a node
  started     nodeId, directoryId, clusterId, directory, listeners, advertisedListeners, pid, version
  role        role, epoch
  leader      leaderId (null: unknown), epoch
  voters      voters, as [{"id": 1, "directoryId": "...", "endpoints": ["CONTROLLER://..."]}]
  snapshot    endOffset, epoch  a snapshot came from the leader
  broker      stage (Recovering: registered, Running: unfenced, Leaving, Gone), epoch
  log         level, logger, text
  tls         reloaded (true, false), error
  stopping    signal
  stopped     error (null: it was asked to)

\b
Signals: SIGTERM and SIGINT stop the node, which hands leadership over first; a second one ends it at once, which
loses nothing that was acknowledged. SIGHUP reads the TLS files again; with partition.control=requests, where there are
none, it stops the broker as SIGTERM does (not under nohup).
The exit status is 0 after a stop that was asked for, and 1 if the node could not start or failed.
"""
)
@click.argument("file", type=click.Path())
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Use this value of a property in place of the file's; may be repeated.",
)
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="text: a line an event. json: one object an event.  [default: text]",
)
@click.pass_context
def start(ctx: click.Context, file: str, overrides: tuple[str, ...], output: str) -> None:
    """Run a node as FILE says, until it is told to stop.

    FILE is a Kafka server's .properties file. The directory must be formatted (kraftcore storage format). The node
    keeps the log, votes and leads; with process.roles=controller it is a controller, for Kafka's brokers as well. Of
    a metadata log it writes snapshots, as metadata.log.max.record.bytes.between.snapshots and
    metadata.log.max.snapshot.interval.ms say; any other log it keeps whole. With kraftcore.offers.log=true it takes
    appends from kraftcore's own clients.

    With process.roles=broker, or broker,controller, it is a broker of a KRaft cluster, of Kafka's controllers or of
    ours, and hands leaderships over before it stops.

    With partition.control=requests it is a broker that obeys LeaderAndIsr, StopReplica and UpdateMetadata
    (docs/broker.md); its log directories need not be formatted.
    """
    with not_collecting():  # until all is imported
        error = _run(file, overrides, as_json=output == "json")
    if error is not None:
        raise KafkaFailure(error)
    ctx.exit(0)


def _run(file: str, overrides: tuple[str, ...], *, as_json: bool) -> str | None:
    from kraftcore.cli.server_roles import load_server

    properties = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--override {text}: write KEY=VALUE")
        properties[key.strip()] = value
    return load_server(file, properties)(as_json=as_json)
