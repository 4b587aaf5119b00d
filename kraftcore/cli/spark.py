"""``kraftcore spark``: metadata logs to tables, questions in SQL, a report."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import Any

import click

from kraftcore.cli.output import is_terminal
from kraftcore.errors import LocalError

_WAITED = "Exception thrown in awaitResult"
"""Spark's words for a failed job that it waited for; the error itself is the cause."""


class Screen:
    """Lines of progress on stderr; on a terminal a bar that is redrawn."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar = is_terminal(sys.stderr) and not quiet

    def line(self, text: str) -> None:
        """Print a step that is done."""
        if not self._quiet:
            click.echo(f"\r\x1b[K{text}" if self._bar else text, err=True)

    def progress(self, share: float, label: str) -> None:
        """Show the share of a step that is done, 0 to 1."""
        if self._bar:
            done = int(share * 30)
            click.echo(f"\r\x1b[K{label} [{'#' * done}{'.' * (30 - done)}] {share:4.0%}", nl=False, err=True)


_tables = click.option(
    "--tables",
    required=True,
    type=click.Path(),
    metavar="DIR",
    help="Folder of the tables, or its URL where it is an object store's.",
)


def _options(command: Any) -> Any:
    # The options of every subcommand.
    for option in (
        click.option(
            "--master",
            metavar="URL",
            help="Where Spark runs, as local[4] or spark://host:7077.  [default: all processors of this machine]",
        ),
        click.option(
            "--memory", default="2g", show_default=True, help="Memory of Spark's driver, with a unit: 512m, 2g."
        ),
        click.option(
            "--conf",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of Spark's, as spark.executor.memory=2g; may be repeated.",
        ),
        click.option("--quiet", is_flag=True, help="Print no progress on stderr."),
    ):
        command = option(command)
    return command


def _pairs(name: str, given: tuple[str, ...]) -> dict[str, str]:
    # Reads KEY=VALUE options.
    found = {}
    for one in given:
        key, mark, value = one.partition("=")
        if not mark:
            raise click.UsageError(f"{name} {one}: expected KEY=VALUE")
        found[key] = value
    return found


class Starter:
    """Starts Spark when it is called for the first time.

    Args:
        master: where Spark runs; None: on this machine, unless Spark's own settings name another.
        memory: of its driver.
        conf: more settings, as KEY=VALUE.
    """

    def __init__(self, master: str | None, memory: str, conf: tuple[str, ...]) -> None:
        from kraftcore.plugins import spark as kraft

        os.environ["TZ"] = "UTC"  # PySpark hands out times of this process's zone
        time.tzset()
        self._start = kraft.session  # first: without the extra this fails, and says what to install
        self._master = master
        self._settings = {"spark__driver__memory": memory, "spark__sql__shuffle__partitions": "8"}
        for key, value in _pairs("--conf", conf).items():
            self._settings[key.replace(".", "__")] = value
        self._session: Any = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def is_here(self) -> bool:
        """Whether Spark runs on this machine, so that small work can be done without Spark as well."""
        if self._master is None:
            return "SPARK_MASTER" not in os.environ and "MASTER" not in os.environ
        return self._master.startswith("local")

    def __call__(self) -> Any:
        """Return the session, started if need be."""
        if self._session is None:
            # Otherwise Spark makes a folder in the working directory.
            self._scratch = tempfile.TemporaryDirectory(prefix="kraftcore-spark-", ignore_cleanup_errors=True)
            self._settings.setdefault("spark__sql__warehouse__dir", self._scratch.name)
            self._session = self._start(self._master, **self._settings)
            self._session.sparkContext.setLogLevel("OFF")
        return self._session

    def close(self) -> None:
        """Stop Spark if it was started."""
        if self._session is not None:
            self._session.stop()
        if self._scratch is not None:
            self._scratch.cleanup()


@contextmanager
def _spark(master: str | None, memory: str, conf: tuple[str, ...]) -> Iterator[Starter]:
    # Gives a starter to the block, and prints Spark's errors in one line.
    starter = Starter(master, memory, conf)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # PySpark prints each refused query as a JSON line of its own.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    try:
        yield starter
    except (PySparkException, Py4JError) as error:
        raise click.ClickException(one_line(error)) from None
    finally:
        starter.close()


def one_line(error: Exception) -> str:
    """Spark's error message without stack and plan."""
    java = getattr(error, "java_exception", None)
    while java is not None and _WAITED in str(java.toString()) and java.getCause() is not None:
        java = java.getCause()
    text = str(error) if java is None else str(java.toString())
    lines = [line.strip() for line in text.split("\nJVM stacktrace")[0].splitlines()]
    said = next((line for line in lines if line), type(error).__name__)
    return re.sub(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ", "", said).rstrip(";")


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
  kraftcore spark run --input /var/lib/kafka/metadata --tables /data/kraft --errors fail
  kraftcore spark run --input '/backup/*/controller-?' --input old/00000000000000000204.log --tables /data/kraft
  kraftcore spark run --master spark://host:7077 --conf spark.executor.memory=2g --input /nfs/logs --tables /nfs/kraft
""",
)
@click.option(
    "--input", "inputs", multiple=True, required=True, type=click.Path(), metavar="PATH",
    help="Folder, file or glob to read logs and snapshots from; may be repeated. A glob that the shell has made "
         "into many paths works, too.",
)  # fmt: skip
@click.argument("more", nargs=-1, type=click.Path(), metavar="[PATH]...")
@_tables
@click.option(
    "--errors", type=click.Choice(["fail", "drop", "keep"]), default="drop", show_default=True,
    help="What to do with damaged data. fail: stop; drop: leave it out; keep: take what can be read. It is "
         "listed in the table errors in each case.",
)  # fmt: skip
@click.option(
    "--follow", "every_s", type=click.FloatRange(min=0.1), metavar="SECONDS",
    help="Do not end, but look for more data every so many seconds, at least 0.1, until interrupted.",
)  # fmt: skip
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="An option of the data source; may be repeated. max_bytes_per_trigger=1000000000 takes at most that "
         "many bytes in at a time.",
)  # fmt: skip
@click.option(
    "--merge-files", type=click.IntRange(min=0), metavar="N",
    help="Merge a table's small files once those of more than N steps of a run have gathered; 0: never. "
         " [default: 32]",
)  # fmt: skip
@_options
def run(
    inputs: tuple[str, ...],
    more: tuple[str, ...],
    tables: str,
    errors: str,
    every_s: float | None,
    options: tuple[str, ...],
    merge_files: int | None,
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
    with _spark(master, memory, conf) as start:
        from kraftcore.plugins.spark.merging import FILES_MAX

        most = FILES_MAX if merge_files is None else merge_files
        session = start if start.is_here else start()
        if every_s is not None:
            with suppress(KeyboardInterrupt):
                kraft.follow(
                    session,
                    paths,
                    tables,
                    every_s=every_s,
                    errors=errors,
                    options=of_source,
                    report=screen.line,
                    merge_files=most,
                )
            return
        result = kraft.run(
            session,
            paths,
            tables,
            errors=errors,
            options=of_source,
            report=screen.line,
            progress=screen.progress,
            merge_files=most,
        )
    wrong = result.rows["errors"]
    errors_told = f"{wrong} error{'' if wrong == 1 else 's'}{' (in the table errors)' if wrong else ''}"
    click.echo(
        f"{result.rows['bronze_records']} new records in {result.rows['bronze_batches']} batches, "
        f"{errors_told}; clusters brought up to date: {', '.join(result.clusters) or 'none'}"
    )
    if result.failed:
        what = "; ".join(f"{name}: {reason}" for name, reason in sorted(result.failed.items()))
        raise LocalError(f"of some clusters gold could not be made, and stays as it was: {what}")


@spark.command(
    epilog="""\b
Examples:
  kraftcore spark query --tables /data/kraft "SHOW TABLES"
  kraftcore spark query --tables /data/kraft --output json "SELECT * FROM gold_voter_sets"
"""
)
@_tables
@click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="table: for people; json: one object a row, a line each.",
)  # fmt: skip
@click.option(
    "--socket", type=click.Path(), metavar="FILE", envvar="KRAFTCORE_SPARK_SOCKET", show_envvar=True,
    help="Unix socket of a session that 'kraftcore spark serve' keeps: it answers, and no Spark is started.",
)  # fmt: skip
@click.argument("sql")
@_options
def query(
    tables: str,
    output: str,
    socket: str | None,
    sql: str,
    master: str | None,
    memory: str,
    conf: tuple[str, ...],
    quiet: bool,
) -> None:
    """Ask the tables in SQL. Each table is a view of its name."""
    if socket is not None:
        from kraftcore.plugins.spark.warm import ask

        if master is not None or conf:
            raise click.UsageError("--master and --conf are for 'serve': the session that is asked has its own")
        place = tables if "://" in tables else os.path.abspath(tables)
        for line in ask(socket, {"tables": place, "output": output, "sql": sql}):
            click.echo(line)
        return
    with _spark(master, memory, conf) as start:
        _check_tables(start, tables)
        for line in _answer(start(), tables, output, sql):
            click.echo(line)


def _check_tables(start: Starter, tables: str) -> None:
    # Errors that need no Spark are raised before Spark starts.
    from kraftcore.plugins.spark.tables import Tables

    if start.is_here and "://" not in tables:
        Tables(start, tables).check()


def _answer(session: Any, tables: str, output: str, sql: str) -> Iterator[str]:
    # Yields the lines that a query prints.
    from kraftcore.plugins import spark as kraft
    from kraftcore.plugins.spark.printing import json_lines, table_lines

    rows = kraft.query(session, tables, sql)
    yield from json_lines(rows) if output == "json" else table_lines(rows)


@spark.command(
    short_help="Keep a session that answers queries at once.",
    epilog="""\b
Examples:
  kraftcore spark serve --socket /run/user/1000/kraft.sock &
  kraftcore spark query --socket /run/user/1000/kraft.sock --tables /data/kraft "SELECT * FROM gold_voter_sets"
""",
)
@click.option(
    "--socket",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="Path of the Unix socket to listen on; it is made, and only its owner may connect.",
)
@_options
def serve(socket: str, master: str | None, memory: str, conf: tuple[str, ...], quiet: bool) -> None:
    """Keep a Spark session, and answer what 'query --socket FILE' asks, until interrupted."""
    from kraftcore.plugins.spark import warm

    stop = threading.Event()
    with _spark(master, memory, conf) as start, closing(warm.listen(socket)) as listener:
        session = start()

        def answer(request: dict[str, Any]) -> Iterator[str]:
            # A session of its own: views are named the same, whatever the folder.
            try:
                yield from _answer(session.newSession(), request["tables"], request["output"], request["sql"])
            except KeyError as error:
                raise LocalError(f"the request lacks {error}") from None
            except Exception as error:
                raise LocalError(one_line(error)) from None

        numbers = signal.SIGINT, signal.SIGTERM
        before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
        try:
            Screen(quiet=quiet).line(f"{socket}: answering")
            warm.serve(listener, answer, stop)
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


@spark.command(
    short_help="What was in force at an offset or a time.",
    epilog="""\b
Examples:
  kraftcore spark state --tables /data/kraft --time 2026-11-21T14:05 partitions brokers
  kraftcore spark state --tables /data/kraft --offset 300 --output json
""",
)
@_tables
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
    with _spark(master, memory, conf) as start:
        _check_tables(start, tables)
        found = kraft.state_as_of(start(), tables, cluster_id=cluster_id, offset=offset, time=moment)
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


@spark.command(
    short_help="Write one HTML file with plots.",
    epilog="""\b
Examples:
  kraftcore spark report --tables /data/kraft --to report.html
  kraftcore spark report --tables /data/kraft --to report.html --pictures plots
  kraftcore spark report --tables /data/fleet --to one.html --cluster 4L6g3nShT-eMCtK--X86sw
""",
)
@_tables
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
@_options
def report(
    tables: str,
    target: str,
    pictures: str | None,
    cluster_ids: tuple[str, ...],
    master: str | None,
    memory: str,
    conf: tuple[str, ...],
    quiet: bool,
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
    with _spark(master, memory, conf) as start:
        _check_tables(start, tables)
        kraft.write_report(start(), tables, target, pictures=pictures, cluster_ids=cluster_ids)
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
    "--input",
    "inputs",
    multiple=True,
    required=True,
    type=click.Path(),
    metavar="PATH",
    help="Folder, file or glob that the pipelines read logs and snapshots from; may be repeated.",
)
@click.option(
    "--tables",
    required=True,
    type=click.Path(),
    metavar="DIR",
    help="Folder that the pipelines write tables to; another one than that of 'kraftcore spark run'.",
)
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(),
    metavar="DIR",
    help="Folder to write the specs to, in which the pipelines keep their state.",
)
@click.option(
    "--errors", type=click.Choice(["fail", "drop", "keep"]), default="drop", show_default=True,
    help="What the pipelines do with damaged data. fail: stop; drop: leave it out; keep: take what can be read.",
)  # fmt: skip
@click.option(
    "--only",
    multiple=True,
    metavar="TABLE",
    help="Make only this table, of bronze or silver; may be repeated.  [default: all]",
)
def spec(inputs: tuple[str, ...], tables: str, target: str, errors: str, only: tuple[str, ...]) -> None:
    """Write specs of Spark declarative pipelines that make the same tables, and print the commands that run them.

    Needs the extra 'spark-pipelines': pip install 'kraftcore[spark-pipelines]'.
    """
    from kraftcore.plugins import spark as kraft

    for command in kraft.write_specs(inputs, tables, target, errors=errors, only=only):
        click.echo(shlex.join(command))
