"""``kraftcore storage rewrite-endpoints``: the cure when all voters' addresses changed. Kafka has no such tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kraftcore.cli.kafka_style import KafkaFailure, config_option
from kraftcore.cli.output import output_option, print_json
from kraftcore.config.addresses import parse_voters
from kraftcore.config.storage_properties import load_server_file
from kraftcore.core.disk.os_files import OsFiles

if TYPE_CHECKING:
    from kraftcore.node.readdressing import Readdressing
    from kraftcore.raft.quorum import Voter

_UNCHANGED = """\
Nothing was changed: {files} would be written anew. With every controller stopped, repeat this with --execute, on each
controller with the same --controllers."""
_CHANGED = """\
{files} written anew. Do the same on the other controllers, then start them all. Brokers and controllers that do not
vote need the new addresses in controller.quorum.bootstrap.servers."""
_NOTHING = "Nothing is to be done here: the log and the snapshots name these addresses already."


@click.command(
    "rewrite-endpoints",
    short_help="All controllers have new addresses: tell their logs.",
    epilog="""\b
Examples:
  What the log of this controller says, and what it would say; changes nothing:
    kraftcore storage rewrite-endpoints -c c1.properties --controllers 1@h1:9093,2@h2:9093,3@h3:9093
  Write the new addresses; then the same command on the other controllers, each with its own file:
    kraftcore storage rewrite-endpoints -c c1.properties --controllers 1@h1:9093,2@h2:9093,3@h3:9093 --execute

\b
The file has the new addresses already: listeners, advertised.listeners, controller.quorum.bootstrap.servers.
If a majority of the voters still reaches each other, nothing of this is needed: a controller that starts with a new
address tells the leader.
""",
)
@config_option
@click.option(
    "--controllers",
    metavar="LIST",
    required=True,
    help="Where each voter is now, as id@host:port,id@...: all voters, also those that did not move. The same list on "
    "each controller.",
)
@click.option("--execute", is_flag=True, help="Write the new addresses. Without it they are shown beside the old ones.")
@output_option
def rewrite_endpoints(path: str, controllers: str, execute: bool, output: str) -> None:
    """Write the voters' new addresses into a stopped controller's log and snapshots, in place of the old ones.

    For the day on which the addresses of all controllers changed (or of so many that no majority reaches each other):
    voters find each other by their log, and only a leader can change what stands there. Voters, records, offsets,
    leader epochs and directory ids stay, and so do elections: nothing that was committed can be lost.
    """
    from kraftcore.node.readdressing import rewrite_endpoints as rewrite

    server = load_server_file(path)
    if server.endpoint is None:
        raise KafkaFailure("This is a broker's file: only controllers vote.")
    addresses = {
        voter.key.id: endpoint
        for voter in parse_voters(controllers, server.endpoint.name)
        for endpoint in voter.endpoints
    }
    found = rewrite(OsFiles(), server.metadata_directory, server.endpoint, server.node_id, addresses, execute=execute)
    if output == "json":
        print_json(**_object(found, execute))
        return
    click.echo(_described(found, server.metadata_directory))
    files = ", ".join(found.files)
    click.echo(_NOTHING if not files else (_CHANGED if execute else _UNCHANGED).format(files=files))


def _described(found: Readdressing, directory: str) -> str:
    lines = [f"Node {found.key.id}, directory {found.key.directory_id} in {directory}"]
    for before, after in zip(found.before, found.after, strict=True):
        own = " (this node)" if before.key == found.key else ""
        to = "unchanged" if before == after else f"-> {_places(after)}"
        lines.append(f"  voter {before.key.id}{own}: {_places(before)} {to}")
    lines += [
        f"  {number} is no voter by this node's log: its address changes nothing here" for number in found.unknown
    ]
    return "\n".join(lines) + "\n"


def _places(voter: Voter) -> str:
    return ",".join(map(str, voter.endpoints))


def _object(found: Readdressing, execute: bool) -> dict[str, object]:
    return {
        "nodeId": found.key.id,
        "directoryId": str(found.key.directory_id),
        "voters": [
            {
                "id": before.key.id,
                "directoryId": str(before.key.directory_id),
                "endpoints": list(map(str, before.endpoints)),
                "newEndpoints": list(map(str, after.endpoints)),
            }
            for before, after in zip(found.before, found.after, strict=True)
        ],
        "noVoters": list(found.unknown),
        "files": list(found.files),
        "written": execute and bool(found.files),
    }
