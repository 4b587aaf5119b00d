"""``kraftcore spark query``, ``state`` and ``report``: ask tables."""

from __future__ import annotations

import os
import sys
from base64 import b64decode
from collections.abc import Iterable
from datetime import datetime
from shutil import get_terminal_size
from typing import NoReturn

import click

from kraftcore.cli.output import is_terminal
from kraftcore.cli.spark.answering import OUTPUTS, Event, Request, answer
from kraftcore.cli.spark.options import Moment, SparkOptions, at_option, spark_options, tables_option
from kraftcore.cli.spark.screen import Screen
from kraftcore.cli.spark.starting import starting
from kraftcore.cli.spark.warming import ask_shared, is_shared_running
from kraftcore.errors import LocalError

_output = click.option(
    "--output", type=click.Choice(OUTPUTS), default="table", show_default=True,
    help="table: for people, as wide as the terminal; json: one object a row, a line each; csv: with a heading; "
         "parquet: a file, to be redirected.",
)  # fmt: skip
_cold = click.option("--cold", is_flag=True, help="Where Spark is needed, start one that ends with this command.")


@click.command(
    epilog="""\b
Examples:
  kraftcore spark query --tables /data/kraft "SHOW TABLES"
  kraftcore spark query --tables /data/kraft --output json "SELECT * FROM gold_voter_sets"
  kraftcore spark query --tables /data/kraft --output parquet "SELECT * FROM gold_logs" > logs.parquet
  kraftcore spark query --tables /data/kraft --at 2026-11-21T14:05 "SELECT * FROM gold_logs"
"""
)
@tables_option
@at_option
@_output
@click.option(
    "--socket", type=click.Path(), metavar="FILE", envvar="KRAFTCORE_SPARK_SOCKET", show_envvar=True,
    help="Unix socket of a session that 'kraftcore spark serve' keeps: it answers, and no Spark is started.",
)  # fmt: skip
@_cold
@click.argument("sql")
@spark_options
def query(
    tables: str, at: datetime | None, output: str, socket: str | None, cold: bool, sql: str, options: SparkOptions
) -> None:
    """Ask the tables in SQL. Each table is a view of its name.

    The first query starts Spark in the background, where it stays for the next ones; after ten minutes without one it
    ends by itself.
    """
    request = {
        "command": "query", "tables": _place(tables), "at": _text(at), "output": output, "width": _width(output),
        "sql": sql,
    }  # fmt: skip
    if socket is None:
        _answer(request, options, cold=cold)
        return
    from kraftcore.plugins.spark.warm import ask

    if cold or options.master is not None or options.conf:
        raise click.UsageError("--cold, --master and --conf are for a session of its own, and --socket names one")
    _print(ask(socket, request), Screen(quiet=options.quiet))


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _place(tables: str) -> str:
    return tables if "://" in tables else os.path.abspath(tables)


def _width(output: str) -> int | None:
    # The width that a table may have; None: any.
    if output == "parquet" and is_terminal(sys.stdout):
        raise click.UsageError("--output parquet is bytes, and stdout is a terminal: add '> FILE.parquet'")
    return get_terminal_size().columns if is_terminal(sys.stdout) else None


class _NeedsSparkError(Exception):
    """This cannot be answered without Spark."""


def _no_spark() -> NoReturn:
    raise _NeedsSparkError


def _answer(request: Request, options: SparkOptions, *, cold: bool) -> None:
    # Without Spark if that will do; else asks the shared session, or, on a cluster and where asked to, one of its own.
    screen = Screen(quiet=options.quiet)
    if request["command"] == "query" and not cold and options.is_here and is_shared_running(options):
        _print(ask_shared(request, options, screen), screen)  # at once: neither Spark nor Arrow is imported here
        return
    with starting(options, screen) as start:
        from kraftcore.plugins.spark.tables import Tables

        if options.is_here and "://" not in request["tables"]:
            Tables(start, request["tables"]).check()  # before Spark starts
        if cold or not options.is_here:
            _print(answer(start, request), screen)
            return
        try:
            _print(answer(_no_spark, request), screen)
        except _NeedsSparkError:
            _print(ask_shared(request, options, screen), screen)


def _print(events: Iterable[Event], screen: Screen) -> None:
    for kind, text in events:
        if kind == "stage":
            screen.stage(text)
            continue
        screen.clear()
        click.echo(b64decode(text) if kind == "bytes" else text, err=kind == "err", nl=kind != "bytes")
    screen.clear()


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
    type=Moment(),
    metavar="TIME",
    help="Show the state at this moment in ISO 8601, as 2026-11-21T14:05; UTC, unless it ends with another zone.",
)
@click.option("--cluster", "cluster_id", metavar="ID", help="Show only the cluster of this id.")
@_output
@_cold
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@spark_options
def state(
    tables: str,
    offset: int | None,
    at: datetime | None,
    cluster_id: str | None,
    output: str,
    cold: bool,
    kinds: tuple[str, ...],
    options: SparkOptions,
) -> None:
    """What was in force at an offset or a time; now, if neither is given.

    KIND is leader, voters, topics, partitions, brokers, controllers, configs, features, quotas, scram_credentials,
    acls, delegation_tokens or producer_ids; all if left out.
    """
    from kraftcore.plugins.spark.state import KINDS

    for kind in kinds:
        if kind not in KINDS:
            raise click.UsageError(f"{kind}: there is no such kind; known are {', '.join(KINDS)}")
    if offset is not None and at is not None:
        raise click.UsageError("name --offset or --time, not both")
    if output in ("csv", "parquet") and len(kinds) != 1:
        raise click.UsageError(f"--output {output} is for one kind, as each has other columns: name it")
    request = {
        "command": "state", "tables": _place(tables), "output": output, "width": _width(output), "kinds": kinds,
        "offset": offset, "time": _text(at), "cluster_id": cluster_id,
    }  # fmt: skip
    _answer(request, options, cold=cold)


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
@at_option
@_cold
@spark_options
def report(
    tables: str,
    target: str,
    pictures: str | None,
    cluster_ids: tuple[str, ...],
    at: datetime | None,
    cold: bool,
    options: SparkOptions,
) -> None:
    """Write one HTML file with plots that opens in a browser without a network."""
    if not target.endswith((".html", ".htm")):
        raise LocalError(f"{target}: the report is HTML: name a file that ends in .html")
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise LocalError(f"{target}: cannot be written: there is no folder {folder}")
    if not os.access(target if os.path.exists(target) else folder, os.W_OK):
        raise LocalError(f"{target}: cannot be written: no right to write in {folder}")
    request = {
        "command": "report", "tables": _place(tables), "at": _text(at), "target": os.path.abspath(target),
        "pictures": None if pictures is None else os.path.abspath(pictures), "cluster_ids": cluster_ids,
    }  # fmt: skip
    _answer(request, options, cold=cold)
    Screen(quiet=options.quiet).line(f"{target}: written")
