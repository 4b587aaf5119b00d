"""``kraftcore storage repair``; Kafka has no such command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kraftcore.cli.output import output_option, print_json, printable
from kraftcore.core.uuid import Uuid

if TYPE_CHECKING:
    from kraftcore.node.repair import Damage


@click.command(
    short_help="Show what is damaged, and mend it.",
    epilog="""\b
Examples:
  What is damaged, and what mending it would lose:
    kraftcore storage repair --config server.properties
  Then, with a copy of the directory put away and nothing better at hand:
    kraftcore storage repair --config server.properties --execute
  meta.properties was deleted; its cluster id is that of the other nodes (kraftcore cluster cluster-id):
    kraftcore storage repair --config server.properties --cluster-id MkU3OEVBNTcwNTJENDM2Qk --execute

\b
Where other voters live, replace the node instead (docs/damage.md): they hold what is lost here. With --output json an
object a damage: "damage", "remedy" (null: none), "loses", "mended".
The exit status is 0 if nothing is damaged any more, else 1.
""",
)
@click.option("--config", "-c", "path", required=True, type=click.Path(), help="The server's .properties file.")
@click.option(
    "--execute",
    is_flag=True,
    help="Mend the damage. Without it nothing is changed that a start of the node would not change.",
)
@click.option("--cluster-id", "-t", help="Id of the cluster, to write a meta.properties anew that is lost.")
@click.option(
    "--directory-id", help="Id of the directory for that file, if another one was in it than the one that is shown."
)
@output_option
@click.pass_context
def repair(
    ctx: click.Context, path: str, execute: bool, cluster_id: str | None, directory_id: str | None, output: str
) -> None:
    """Show what keeps a node's directory from being used, and what mending it would lose; with --execute, mend it.

    The node must not run. One damage is shown at a time, for mending it may show another.
    """
    from kraftcore.config import NodeConfig
    from kraftcore.node.repair import repair as repair_directory

    as_json = output == "json"

    def tell(damage: Damage) -> None:
        mends = execute and damage.remedy is not None
        if as_json:
            print_json(damage=damage.what, remedy=damage.remedy, loses=damage.loses, mended=mends)
            return
        click.echo(printable(f"Damaged: {damage.what}"))
        if damage.remedy is None:
            click.echo("Nothing here can mend it.")
        else:
            click.echo(printable(f"{'Now' if mends else 'With --execute'}: {damage.remedy}"))
            click.echo(printable(f"That loses: {damage.loses}"))

    is_whole = repair_directory(
        NodeConfig.from_properties(path),
        tell,
        execute=execute,
        cluster_id=cluster_id,
        directory_id=None if directory_id is None else Uuid.from_string(directory_id),
    )
    if is_whole and not as_json:
        click.echo("Nothing is damaged.")
    ctx.exit(0 if is_whole else 1)
