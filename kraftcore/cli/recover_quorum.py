"""``kraftcore storage recover-quorum``: the last resort when most voters' disks are lost. Kafka has no such tool."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kraftcore.cli.kafka_style import KafkaFailure, config_option
from kraftcore.cli.output import output_option, print_json
from kraftcore.config.storage_properties import load_server_file
from kraftcore.core.disk.os_files import OsFiles

if TYPE_CHECKING:
    from kraftcore.node.recovering import Survivor
    from kraftcore.raft.quorum import Endpoint

_LOSS = """\
If this node goes on alone
  all of the above is kept, also what was never committed;
  what other voters ({others}) committed beyond offset {end} is lost: whether there is any cannot be told from here.
"""
_UNCHANGED = """\
Nothing was changed. Look at every node that is left; on the one whose last record has the greatest epoch, and of those
the greatest offset, repeat this with --accept-data-loss."""
_CHANGED = """\
Node {node} is the only voter now, by the record at offset {at}, in leader epoch {epoch}. Start it.
Any other node of the old quorum still counts itself among the old voters: format its directory before it starts again
("kraftcore storage format --no-initial-controllers"), then make it a voter ("kraftcore quorum add-controller")."""


@click.command(
    "recover-quorum",
    short_help="Go on without a majority: the last resort.",
    epilog="""\b
Examples:
  What this node has, and what would be lost; changes nothing:
    kraftcore storage recover-quorum --config c1.properties
  Go on with it alone:
    kraftcore storage recover-quorum --config c1.properties --accept-data-loss
""",
)
@config_option
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Make this node the only voter. Without it nothing is changed: what would be lost is printed.",
)
@output_option
def recover_quorum(path: str, accept_data_loss: bool, output: str) -> None:
    """When the disks of most voters are lost for good, let one that is left be the only voter.

    Only for that case: while a majority can come back, start it. The node must not run. Look at every node that is
    left, and go on with the one whose last record has the greatest epoch, and of those the greatest offset.
    """
    from kraftcore.node.recovering import become_only_voter, look

    server = load_server_file(path)
    if server.endpoint is None:
        raise KafkaFailure("This is a broker's file: only controllers vote.")
    files = OsFiles()
    before = look(files, server.metadata_directory, server.node_id)
    after = None
    if accept_data_loss:
        after = become_only_voter(files, server.metadata_directory, server.node_id, server.endpoint)
        before = replace(before, key=after.key)  # with the directory id that it got, if it had none
    if output == "json":
        print_json(
            **_object(before, server.endpoint),
            lostVoters=list(before.others),
            onlyVoterFrom=None if after is None else after.voters_offset,
        )
        return
    click.echo(_described(before, server.metadata_directory, server.endpoint))
    click.echo(_LOSS.format(others=", ".join(map(str, before.others)) or "none", end=before.log_end_offset))
    click.echo(
        _UNCHANGED if after is None else _CHANGED.format(node=after.key.id, at=after.voters_offset, epoch=after.epoch)
    )


def _described(found: Survivor, directory: str, endpoint: Endpoint) -> str:
    last = f", the last one of leader epoch {found.last_epoch}" if found.log_end_offset else ""
    snapshot = "none" if found.snapshot is None else f"up to offset {found.snapshot[0]}, epoch {found.snapshot[1]}"
    where = {None: "", -1: ", by the first checkpoint"}.get(
        found.voters_offset, f", by the record at offset {found.voters_offset}"
    )
    own_id = f"directory {found.key.directory_id}" if found.key.has_directory else "a directory without an id"
    return (
        f"Node {found.key.id}, {own_id} in {directory}\n"
        f"  records       from offset {found.log_start_offset} to {found.log_end_offset}{last}\n"
        f"  snapshot      {snapshot}\n"
        f"  leader epoch  {found.epoch}\n"
        f"  voters        {', '.join(str(key.id) for key in found.voters.keys) or 'none'}{where}\n"
        f"  address       {_address(found, endpoint)}\n"
    )


def _known(found: Survivor) -> list[str]:
    entry = found.voters.get(found.key.id)
    return [] if entry is None else list(map(str, entry.endpoints))


def _address(found: Survivor, endpoint: Endpoint) -> str:
    known = _known(found)
    if str(endpoint) in known:
        return f"{endpoint}, by its log and by its file"
    return f"{', '.join(known) or 'none'} by its log, {endpoint} by its file, which will count"


def _object(found: Survivor, endpoint: Endpoint) -> dict[str, object]:
    return {
        "nodeId": found.key.id,
        "directoryId": str(found.key.directory_id) if found.key.has_directory else None,
        "logStartOffset": found.log_start_offset,
        "logEndOffset": found.log_end_offset,
        "lastEpoch": found.last_epoch,
        "leaderEpoch": found.epoch,
        "snapshot": None if found.snapshot is None else {"endOffset": found.snapshot[0], "epoch": found.snapshot[1]},
        "kraftVersion": found.kraft_version,
        "endpoints": _known(found),
        "endpointOfFile": str(endpoint),
        "voters": [{"id": key.id, "directoryId": str(key.directory_id)} for key in found.voters.keys],
    }
