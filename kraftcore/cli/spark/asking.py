"""``kraftcore spark query``, ``state`` and ``report``: ask tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from kraftcore.cli.spark.options import SparkOptions, spark_options, tables_option
from kraftcore.cli.spark.screen import Screen
from kraftcore.cli.spark.starting import Starter, starting
from kraftcore.errors import LocalError


@click.command(
    epilog="""\b
Examples:
  kraftcore spark query --tables /data/kraft "SHOW TABLES"
  kraftcore spark query --tables /data/kraft --output json "SELECT * FROM gold_voter_sets"
"""
)
@tables_option
@click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="table: for people; json: one object a row, a line each.",
)  # fmt: skip
@click.option(
    "--socket", type=click.Path(), metavar="FILE", envvar="KRAFTCORE_SPARK_SOCKET", show_envvar=True,
    help="Unix socket of a session that 'kraftcore spark serve' keeps: it answers, and no Spark is started.",
)  # fmt: skip
@click.argument("sql")
@spark_options
def query(
    tables: str,
    output: str,
    socket: str | None,
    sql: str,
    options: SparkOptions,
) -> None:
    """Ask the tables in SQL. Each table is a view of its name."""
    if socket is not None:
        from kraftcore.plugins.spark.warm import ask

        if options.master is not None or options.conf:
            raise click.UsageError("--master and --conf are for 'serve': the session that is asked has its own")
        place = tables if "://" in tables else os.path.abspath(tables)
        for line in ask(socket, {"tables": place, "output": output, "sql": sql}):
            click.echo(line)
        return
    screen = Screen(quiet=options.quiet)
    with starting(options, screen) as start:
        _check_tables(start, tables)
        session = start()
        screen.stage("asking Spark")
        for line in answer_lines(session, tables, output, sql):
            screen.clear()
            click.echo(line)


def _check_tables(start: Starter, tables: str) -> None:
    # Errors that need no Spark are raised before Spark starts.
    from kraftcore.plugins.spark.tables import Tables

    if start.is_here and "://" not in tables:
        Tables(start, tables).check()


def answer_lines(session: Any, tables: str, output: str, sql: str) -> Iterator[str]:
    """The lines that a query prints."""
    from kraftcore.plugins import spark as kraft
    from kraftcore.plugins.spark.printing import json_lines, table_lines

    rows = kraft.query(session, tables, sql)
    yield from json_lines(rows) if output == "json" else table_lines(rows)


@click.command(
    short_help="What was in force at an offset or a time.",
    epilog="""\b
Examples:
  kraftcore spark state --tables /data/kraft --time 2026-11-21T14:05 partitions brokers
  kraftcore spark state --tables /data/kraft --offset 300 --output json
""",
)
@tables_option
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    help="Show the state right after the record at this offset of the metadata log.",
)
@click.option(
    "--time",
    "at",
    metavar="TIME",
    help="Show the state at this moment in ISO 8601, as 2026-11-21T14:05; UTC, unless it ends with another zone.",
)
@click.option("--cluster", "cluster_id", metavar="ID", help="Show only the cluster of this id.")
@click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="table: a table a kind, for people; json: one object a row, a line each.",
)  # fmt: skip
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@spark_options
def state(
    tables: str,
    offset: int | None,
    at: str | None,
    cluster_id: str | None,
    output: str,
    kinds: tuple[str, ...],
    options: SparkOptions,
) -> None:
    """What was in force at an offset or a time; now, if neither is given.

    KIND is leader, voters, topics, partitions, brokers, controllers, configs, features, quotas, scram_credentials,
    acls, delegation_tokens or producer_ids; all if left out.
    """
    from kraftcore.plugins import spark as kraft
    from kraftcore.plugins.spark.printing import json_lines, table_lines
    from kraftcore.plugins.spark.state import KINDS, beyond_log, unknown_ends

    for kind in kinds:
        if kind not in KINDS:
            raise click.UsageError(f"{kind}: there is no such kind; known are {', '.join(KINDS)}")
    if offset is not None and at is not None:
        raise click.UsageError("name --offset or --time, not both")
    try:
        moment = None if at is None else datetime.fromisoformat(at)
    except ValueError:
        raise click.UsageError(f"--time {at}: expected ISO 8601, as 2026-11-21T14:05") from None
    screen = Screen(quiet=options.quiet)
    with starting(options, screen) as start:
        _check_tables(start, tables)
        start()
        screen.stage("asking Spark")
        found = kraft.state_as_of(start(), tables, cluster_id=cluster_id, offset=offset, time=moment)
        screen.clear()
        if offset is None and moment is None:
            unknown = unknown_ends(start(), tables, cluster_id=cluster_id)
            for name, (begin, known_end) in sorted(unknown.items()):
                shown = "it never is" if known_end is None else "shown is how it was there"
                click.echo(
                    f"{name}: the state at the end is not known: no snapshot after offset {begin}; {shown}", err=True
                )
        else:
            for line in beyond_log(start(), tables, cluster_id=cluster_id, offset=offset, time=moment):
                click.echo(line, err=True)
        for kind in kinds or found:
            lines = list(json_lines(found[kind], {"kind": kind}) if output == "json" else table_lines(found[kind]))
            if output == "table":
                lines = [f"{kind}:", *lines] if len(lines) > 1 else []
            for line in lines:
                click.echo(line)


@click.command(
    short_help="Write one HTML file with plots.",
    epilog="""\b
Examples:
  kraftcore spark report --tables /data/kraft --to report.html
  kraftcore spark report --tables /data/kraft --to report.html --pictures plots
  kraftcore spark report --tables /data/fleet --to one.html --cluster 4L6g3nShT-eMCtK--X86sw
""",
)
@tables_option
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="Path of the HTML file to write; it needs no other file.",
)
@click.option(
    "--pictures", metavar="DIR", help="Also write each plot into this folder, as CLUSTER-PLOT.svg, for wikis and mails."
)
@click.option(
    "--cluster", "cluster_ids", multiple=True, metavar="ID",
    help="Report only on the cluster of this id; may be repeated.  [default: all, of more than 100 the 100 with "
         "the worst incidents]",
)  # fmt: skip
@spark_options
def report(
    tables: str,
    target: str,
    pictures: str | None,
    cluster_ids: tuple[str, ...],
    options: SparkOptions,
) -> None:
    """Write one HTML file with plots that opens in a browser without a network."""
    from kraftcore.plugins import spark as kraft

    if not target.endswith((".html", ".htm")):
        raise LocalError(f"{target}: the report is HTML: name a file that ends in .html")
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise LocalError(f"{target}: cannot be written: there is no folder {folder}")
    if not os.access(target if os.path.exists(target) else folder, os.W_OK):
        raise LocalError(f"{target}: cannot be written: no right to write in {folder}")
    screen = Screen(quiet=options.quiet)
    with starting(options, screen) as start:
        _check_tables(start, tables)
        session = start()
        screen.stage("asking Spark, and drawing")
        kraft.write_report(session, tables, target, pictures=pictures, cluster_ids=cluster_ids)
    screen.line(f"{target}: written")
