"""``kraftcore spark run`` and ``spec``: make tables, or pipelines that make them."""

from __future__ import annotations

import shlex
from contextlib import suppress

import click

from kraftcore.cli.spark.options import SparkOptions, pairs, spark_options, tables_option
from kraftcore.cli.spark.screen import Screen
from kraftcore.cli.spark.starting import starting
from kraftcore.errors import LocalError


@click.command(
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
@tables_option
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
    "--option", "source_options", multiple=True, metavar="KEY=VALUE",
    help="An option of the data source; may be repeated. max_bytes_per_trigger=1000000000 takes at most that "
         "many bytes in at a time.",
)  # fmt: skip
@click.option(
    "--merge-files", type=click.IntRange(min=0), metavar="N",
    help="Merge a table's small files once those of more than N steps of a run have gathered; 0: never. "
         " [default: 32]",
)  # fmt: skip
@click.option(
    "--keep-hours", type=click.IntRange(min=1), metavar="N",
    help="With --follow, which each hour does what 'kraftcore spark clean' does: for how long states that it has "
         "replaced are kept.  [default: 24]",
)  # fmt: skip
@spark_options
def run(
    inputs: tuple[str, ...],
    more: tuple[str, ...],
    tables: str,
    errors: str,
    every_s: float | None,
    source_options: tuple[str, ...],
    merge_files: int | None,
    keep_hours: int | None,
    options: SparkOptions,
) -> None:
    """Take in what is new below the inputs and bring all tables up to date.

    Running it again reads only what was added since; a run that was killed is taken up where it stood.
    """
    from kraftcore.plugins import spark as kraft

    if keep_hours is not None and every_s is None:
        raise click.UsageError("--keep-hours is for --follow; 'kraftcore spark clean --hours N' does it once")
    screen = Screen(quiet=options.quiet)
    paths, of_source = [*inputs, *more], pairs("--option", source_options)
    with starting(options, screen) as start:
        from kraftcore.plugins.spark.merging import FILES_MAX
        from kraftcore.plugins.spark.pipeline import FOLLOWED_HOURS

        most = FILES_MAX if merge_files is None else merge_files
        session = start if options.is_here else start()
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
                    keep_hours=FOLLOWED_HOURS if keep_hours is None else keep_hours,
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


@click.command(
    short_help="Delete what is no longer needed.",
    epilog="""\b
Examples:
  kraftcore spark clean --tables /data/kraft
  kraftcore spark clean --tables /data/kraft --hours 24
""",
)
@tables_option
@click.option(
    "--hours", type=click.IntRange(min=0), default=168, show_default=True,
    help="For how long states that a run has replaced are kept: --at can ask for them, and a query that began before "
         "the run goes on.",
)  # fmt: skip
def clean(tables: str, hours: int) -> None:
    """Forget what the tables said before the last so many hours, and delete the files that nothing else needs."""
    from kraftcore.plugins import spark as kraft

    gone = kraft.clean(tables, hours=hours)
    click.echo(f"{gone} state{'' if gone == 1 else 's'} from before the last {hours} hours forgotten")


@click.command(
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
