"""``kraftcore spark``: metadata logs to tables, questions in SQL, a report."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import click

from kraftcore.errors import LocalError

_SQL_NULL = "null"


class Screen:
    """Lines of progress on stderr; on a terminal a bar that is redrawn."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar = sys.stderr.isatty() and not quiet

    def line(self, text: str) -> None:
        """One step that is done."""
        if not self._quiet:
            click.echo(f"\r\x1b[K{text}" if self._bar else text, err=True)

    def progress(self, share: float, label: str) -> None:
        """How far a step is, 0 to 1."""
        if self._bar:
            done = int(share * 30)
            click.echo(f"\r\x1b[K{label} [{'#' * done}{'.' * (30 - done)}] {share:4.0%}", nl=False, err=True)


def _options(command: Any) -> Any:
    # What every subcommand takes.
    for option in (
        click.option("--master", metavar="URL", help="Where Spark runs, as local[4] or spark://host:7077."),
        click.option("--memory", default="2g", show_default=True, help="Memory of Spark's driver, as 2g."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's; may be repeated."),
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
    ):
        command = option(command)
    return command


def _pairs(name: str, given: tuple[str, ...]) -> dict[str, str]:
    # KEY=VALUE, as an option takes them.
    found = {}
    for one in given:
        key, mark, value = one.partition("=")
        if not mark:
            raise click.UsageError(f"{name} {one}: expected KEY=VALUE")
        found[key] = value
    return found


@contextmanager
def _spark(master: str | None, memory: str, conf: tuple[str, ...]) -> Iterator[Any]:
    # A session; its errors in one line.
    from kraftcore.plugins import spark as kraft

    os.environ["TZ"] = "UTC"  # PySpark hands out times of this process's zone
    time.tzset()
    settings = {"spark__driver__memory": memory, "spark__sql__shuffle__partitions": "8"}
    for key, value in _pairs("--conf", conf).items():
        settings[key.replace(".", "__")] = value
    start = kraft.session  # first: without the extra this fails, and says what to install
    from pyspark.errors import PySparkException

    session = None
    scratch = tempfile.TemporaryDirectory(prefix="kraftcore-spark-", ignore_cleanup_errors=True)
    settings.setdefault("spark__sql__warehouse__dir", scratch.name)  # else Spark makes one where the command was called
    try:
        session = start(master, **settings)
        session.sparkContext.setLogLevel("OFF")
        yield session
    except PySparkException as error:
        text = str(error).strip().split("\nJVM stacktrace")[0].strip().splitlines()
        raise click.ClickException(text[0] if text else type(error).__name__) from None
    finally:
        if session is not None:
            session.stop()
        scratch.cleanup()


@click.group(
    epilog="""\b
Examples:
  kraftcore spark run --input /backup/controllers --tables /data/kraft
  kraftcore spark query --tables /data/kraft "SELECT epoch, leader_id, reason FROM gold_leadership ORDER BY epoch"
  kraftcore spark report --tables /data/kraft --to report.html
"""
)
def spark() -> None:
    """Turn metadata logs and snapshots into tables, ask them, and draw a report.

    Needs the extra 'spark': pip install 'kraftcore[spark]'. Java is brought along if there is none.
    """


@spark.command(
    short_help="Bring all tables up to date with what is new.",
    epilog="""\b
Examples:
  kraftcore spark run --input /var/lib/kafka/metadata --tables /data/kraft
  kraftcore spark run --input '/backup/*/controller-?' --input old.log --tables /data/kraft --errors fail
  kraftcore spark run --master spark://host:7077 --conf spark.executor.memory=2g --input /nfs/logs --tables /nfs/kraft
""",
)
@click.option(
    "--input", "inputs", multiple=True, required=True, metavar="PATH",
    help="Folder, file or glob; may be repeated. A shell may have made a glob into many: [PATH]...",
)  # fmt: skip
@click.argument("more", nargs=-1, metavar="[PATH]...")
@click.option("--tables", required=True, metavar="DIR", help="Folder of the tables.")
@click.option(
    "--errors", type=click.Choice(["fail", "drop", "keep"]), default="drop", show_default=True,
    help="Damaged data: stop, leave it out, or take what can be read. It is listed in the table errors anyway.",
)  # fmt: skip
@click.option(
    "--follow", "every_s", type=click.FloatRange(min=0.1), metavar="SECONDS",
    help="Do not end: look for more every so many seconds, until interrupted.",
)  # fmt: skip
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="Of the data source, as max_bytes_per_trigger=1000000000: less at a time; may be repeated.",
)  # fmt: skip
@_options
def run(
    inputs: tuple[str, ...],
    more: tuple[str, ...],
    tables: str,
    errors: str,
    every_s: float | None,
    options: tuple[str, ...],
    master: str | None,
    memory: str,
    conf: tuple[str, ...],
    quiet: bool,
) -> None:
    """Take in what is new below the inputs and bring all tables up to date.

    Running it again reads only what was added since; a run that was killed is taken up where it stood.
    """
    from kraftcore.plugins import spark as kraft

    screen = Screen(quiet=quiet)
    paths, of_source = [*inputs, *more], _pairs("--option", options)
    with _spark(master, memory, conf) as session:
        if every_s is not None:
            with suppress(KeyboardInterrupt):
                kraft.follow(
                    session, paths, tables, every_s=every_s, errors=errors, options=of_source, report=screen.line
                )
            return
        result = kraft.run(
            session, paths, tables, errors=errors, options=of_source, report=screen.line, progress=screen.progress
        )
    click.echo(
        f"{result.rows['bronze_records']} new records in {result.rows['bronze_batches']} batches, "
        f"{result.rows['errors']} errors; clusters brought up to date: {', '.join(result.clusters) or 'none'}"
    )


@spark.command(
    epilog="""\b
Examples:
  kraftcore spark query --tables /data/kraft "SHOW TABLES"
  kraftcore spark query --tables /data/kraft --output json "SELECT * FROM gold_voter_sets"
"""
)
@click.option("--tables", required=True, metavar="DIR", help="Folder of the tables.")
@click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="A table for people, or one JSON object a line.",
)  # fmt: skip
@click.argument("sql")
@_options
def query(
    tables: str, output: str, sql: str, master: str | None, memory: str, conf: tuple[str, ...], quiet: bool
) -> None:
    """Ask the tables in SQL. Each table is a view of its name."""
    from kraftcore.plugins import spark as kraft

    with _spark(master, memory, conf) as session:
        rows = kraft.query(session, tables, sql)
        names = rows.columns
        if output == "json":
            for row in rows.toLocalIterator():
                click.echo(json.dumps(row.asDict(recursive=True), default=_plain))
            return
        _print_table(names, [[_text(value) for value in row] for row in rows.toLocalIterator()])


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return float(value) if isinstance(value, Decimal) else str(value)


def _text(value: object) -> str:
    if value is None:
        return _SQL_NULL
    if isinstance(value, str):
        return value
    if hasattr(value, "asDict"):
        value = value.asDict(recursive=True)
    if isinstance(value, list):
        value = [one.asDict(recursive=True) if hasattr(one, "asDict") else one for one in value]
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return json.dumps(value, default=_plain)


def _print_table(names: list[str], rows: list[list[str]]) -> None:
    widths = [max([len(name), *(len(row[i]) for row in rows)]) for i, name in enumerate(names)]
    click.echo("  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)).rstrip())
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@spark.command(
    short_help="What was in force at an offset or a time.",
    epilog="""\b
Examples:
  kraftcore spark state --tables /data/kraft --time 2026-11-21T14:05 partitions brokers
  kraftcore spark state --tables /data/kraft --offset 300 --output json
""",
)
@click.option("--tables", required=True, metavar="DIR", help="Folder of the tables.")
@click.option("--offset", type=click.IntRange(min=0), help="Right after the record at this offset.")
@click.option("--time", "at", metavar="TIME", help="At this moment: ISO 8601; UTC, unless it says otherwise.")
@click.option("--cluster", "cluster_id", metavar="ID", help="Of this cluster only.")
@click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="Tables for people, or one JSON object a line.",
)  # fmt: skip
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@_options
def state(
    tables: str,
    offset: int | None,
    at: str | None,
    cluster_id: str | None,
    output: str,
    kinds: tuple[str, ...],
    master: str | None,
    memory: str,
    conf: tuple[str, ...],
    quiet: bool,
) -> None:
    """What was in force at an offset or a time; now, if neither is given.

    KIND is leader, voters, topics, partitions, brokers, controllers, configs, features, quotas, scram_credentials,
    acls, delegation_tokens or producer_ids; all if left out.
    """
    from kraftcore.plugins import spark as kraft

    try:
        moment = None if at is None else datetime.fromisoformat(at)
    except ValueError:
        raise click.UsageError(f"--time {at}: expected ISO 8601, as 2026-11-21T14:05") from None
    with _spark(master, memory, conf) as session:
        found = kraft.state_as_of(session, tables, cluster_id=cluster_id, offset=offset, time=moment)
        for kind in kinds:
            if kind not in found:
                raise click.UsageError(f"{kind}: there is no such kind; known are {', '.join(found)}")
        for kind in kinds or found:
            rows = found[kind].collect()
            if output == "json":
                for row in rows:
                    line = {"kind": kind, **row.asDict(recursive=True)}
                    click.echo(json.dumps(line, default=_plain))
            elif rows:
                click.echo(f"{kind}:")
                _print_table(found[kind].columns, [[_text(value) for value in row] for row in rows])


@spark.command(
    short_help="Write one HTML file with plots.",
    epilog="""\b
Examples:
  kraftcore spark report --tables /data/kraft --to report.html
  kraftcore spark report --tables /data/kraft --to report.html --pictures plots
""",
)
@click.option("--tables", required=True, metavar="DIR", help="Folder of the tables.")
@click.option("--to", "target", required=True, metavar="FILE", help="The HTML file to write.")
@click.option(
    "--pictures", metavar="DIR", help="Also write each plot into this folder, as CLUSTER-PLOT.svg: for wikis and mails."
)
@_options
def report(
    tables: str,
    target: str,
    pictures: str | None,
    master: str | None,
    memory: str,
    conf: tuple[str, ...],
    quiet: bool,
) -> None:
    """Write one HTML file with plots that opens in a browser without a network."""
    from kraftcore.plugins import spark as kraft

    if not target.endswith((".html", ".htm")):
        raise LocalError(f"{target}: the report is HTML: name a file that ends in .html")
    with _spark(master, memory, conf) as session:
        kraft.write_report(session, tables, target, pictures=pictures)
    Screen(quiet=quiet).line(f"{target}: written")


@spark.command(
    short_help="Write specs for spark-pipelines.",
    epilog="""\b
Examples:
  kraftcore spark spec --input '/backup/*' --tables /data/pipelines/tables --to /data/pipelines/spec
  kraftcore spark spec --input '/backup/*' --tables /data/pipelines/tables --to /data/pipelines/spec | sh -e
""",
)
@click.option(
    "--input", "inputs", multiple=True, required=True, metavar="PATH", help="Folder, file or glob; may be repeated."
)
@click.option("--tables", required=True, metavar="DIR", help="Folder of the tables; not one of 'kraftcore spark run'.")
@click.option("--to", "target", required=True, metavar="DIR", help="Folder for the specs and the pipelines' state.")
@click.option(
    "--errors", type=click.Choice(["fail", "drop", "keep"]), default="drop", show_default=True,
    help="Damaged data: stop, leave it out, or take what can be read.",
)  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="TABLE", help="A table of bronze or silver; may be repeated. All if left out."
)
def spec(inputs: tuple[str, ...], tables: str, target: str, errors: str, only: tuple[str, ...]) -> None:
    """Write specs of Spark declarative pipelines that make the same tables, and print the commands that run them.

    Needs the extra 'spark-pipelines': pip install 'kraftcore[spark-pipelines]'.
    """
    from kraftcore.plugins import spark as kraft

    for command in kraft.write_specs(inputs, tables, target, errors=errors, only=only):
        click.echo(shlex.join(command))
