"""``kraftcore cluster``: Kafka's kafka-cluster. Text output is that of Kafka 4.3.1's ClusterTool.

Differences, all deliberate: the bootstrap options may also precede the sub-command; nodes are listed by id; no stack
traces; ``--output json``.
"""

from __future__ import annotations

import click

from kraftcore.admin import NodeAddress
from kraftcore.cli.admin_tool import Connection, bootstrap_options, connected
from kraftcore.cli.kafka_style import KafkaGroup
from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.errors import LocalError, UnsupportedVersionError


class _Aliases(KafkaGroup):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command; ``cluster-id`` is Kafka's name of ``id``."""
        return super().get_command(ctx, "id" if cmd_name == "cluster-id" else cmd_name)


@click.group(
    cls=_Aliases,
    epilog="""\b
Examples:
  kraftcore cluster id --bootstrap-server 127.0.0.1:9092
  kraftcore cluster list-endpoints --bootstrap-controller 127.0.0.1:9093
  kraftcore cluster list-endpoints --bootstrap-server 127.0.0.1:9092 --include-fenced-brokers --output json
  kraftcore cluster unregister --bootstrap-server 127.0.0.1:9092 --id 13
""",
)
@bootstrap_options(short=True)
def cluster(**_: object) -> None:
    """Show a cluster's id and nodes, forget brokers, as kafka-cluster does."""


@cluster.command(
    "id",
    epilog="""\b
Examples:
  kraftcore cluster id --bootstrap-server 127.0.0.1:9092
""",
)
@output_option
@connected(short=True)
def cluster_id(connection: Connection, output: str) -> None:
    """Print the cluster id; 'cluster-id' is the same command."""
    found = connection.run(lambda client: client.describe_cluster(), is_look=True).cluster_id
    if output == "json":
        print_json(clusterId=found)
    else:
        click.echo(printable(f"Cluster ID: {found}"))


@cluster.command(
    "list-endpoints",
    short_help="List the brokers, or the controllers.",
    epilog="""\b
Examples:
  kraftcore cluster list-endpoints --bootstrap-controller 127.0.0.1:9093
  kraftcore cluster list-endpoints --bootstrap-server 127.0.0.1:9092 --include-fenced-brokers --output json
""",
)
@click.option(
    "--include-fenced-brokers",
    is_flag=True,
    help="Also list fenced brokers: those that are registered, but do not serve, as their heartbeats fail to come.",
)
@output_option
@connected(short=True)
def list_endpoints(connection: Connection, include_fenced_brokers: bool, output: str) -> None:
    """List the brokers, or with --bootstrap-controller the controllers that have registered."""
    controllers = connection.through_controllers
    if include_fenced_brokers and controllers:
        raise LocalError("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    try:
        nodes = connection.run(
            lambda client: client.list_endpoints(include_fenced=include_fenced_brokers), is_look=True
        )
    except UnsupportedVersionError as error:
        click.echo(printable(str(error)))  # with exit status 0, as in Kafka
        return
    if output == "json":
        for node in nodes:
            state = {} if controllers else {"state": _state(node)}
            kind = "controller" if controllers else "broker"
            print_json(id=node.id, host=node.host, port=node.port, rack=node.rack, **state, endpointType=kind)
        return
    _print_nodes(nodes, controllers=controllers)


@cluster.command(
    short_help="Forget a broker that is gone for good.",
    epilog="""\b
Examples:
  kraftcore cluster unregister --bootstrap-server 127.0.0.1:9092 --id 13
""",
)
@click.option("--id", "-i", "broker_id", type=int, required=True, help="Node id of the broker that is gone.")
@output_option
@connected(short=True)
def unregister(connection: Connection, broker_id: int, output: str) -> None:
    """Forget a broker that is gone for good; one that still runs registers anew."""
    connection.run(lambda client: client.unregister_broker(broker_id))
    if output == "json":
        print_json(brokerId=broker_id, unregistered=True)
    else:
        click.echo(f"Broker {broker_id} is no longer registered.")


def _state(node: NodeAddress) -> str:
    return "fenced" if node.is_fenced else "unfenced"


def _print_nodes(nodes: tuple[NodeAddress, ...], *, controllers: bool) -> None:
    rows = [["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]]
    kind = "controller" if controllers else "broker"
    hosts = [printable(node.host) for node in nodes]
    racks = [printable(node.rack or "") for node in nodes]
    for node, host, rack in zip(nodes, hosts, racks, strict=True):
        rows.append([str(node.id), host, str(node.port), rack or "null", _state(node), kind])
    widths = [
        10,
        max(map(len, hosts), default=100),
        10,
        max((len(rack) for rack in racks if rack), default=10),
        10,
        15,
    ]
    for row in rows:
        columns = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        if controllers:
            del columns[4]
        click.echo(" ".join(columns))
