"""The three layers as Spark declarative pipelines (``spark-pipelines``, PySpark 4.2 and later).

Bronze and silver are streaming tables over the data source. Gold is materialized views, made by the functions that
``run`` calls. Those functions take rows, and a pipeline's query functions have none; so gold is a pipeline of its own,
run after the first, and its rows are made when its definitions are loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.arrow_batches import DROP
from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.cluster_rows import ClusterRows
from kraftcore.plugins.spark.commits import RUNS
from kraftcore.plugins.spark.earlier import format_of
from kraftcore.plugins.spark.folders import LocalFolder, is_local
from kraftcore.plugins.spark.gold_registry import GOLD
from kraftcore.plugins.spark.pipeline import check_input, input_options, rows_of
from kraftcore.plugins.spark.stores import from_anywhere
from kraftcore.plugins.spark.tables import BRONZE, SILVER, Tables

LAYERS = ("layers", "gold")
"""Names of the pipelines, in the order to run them."""
_WHERE = "local[*]"  # without it Spark uses one core
_FLOWS_AT_ONCE = 4
_SIGNS = "*?[]{}\\"
_PREFIX = "spark.kraftcore."
_SPEC = """\
# Run it with spark-pipelines run --spec; see kraftcore's docs/spark.md.
name: kraftcore-{layer}
storage: {storage}
libraries:
  - glob:
      include: {layer}.py
configuration:
{configuration}
"""
_SETTINGS = """\
# For Spark; add yours. 'kraftcore spark spec' replaces this file.
spark.sql.warehouse.dir {tables}
# A catalog that lasts: with the one in memory, a second run finds tables that it does not know.
spark.sql.catalogImplementation hive
spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName={catalog};create=true
spark.driver.extraJavaOptions -Dderby.stream.error.file={log}
spark.sql.shuffle.partitions 8
# Each flow begins with Python processes of its own, to which Spark gives 10 s.
spark.sql.pipelines.execution.maxConcurrentFlows {flows}
"""
_DEFINITIONS = '''\
"""Definitions for spark-pipelines, which sets ``spark``."""

from kraftcore.plugins.spark.declarative import declare_{layer}

declare_{layer}(spark)  # noqa: F821
'''


def declare_layers(session: SparkSession) -> None:
    """Define a streaming table for each table of bronze and silver. Called by the definitions file of a pipeline.

    Args:
        session: the pipeline's session. Its configuration holds the data source's options (a JSON object) as
            ``spark.kraftcore.options`` and may name tables, with commas, as ``spark.kraftcore.tables_wanted``.
    """
    from pyspark import pipelines

    # The source is not registered here: Spark's client (seen with 4.3.0) then ends the run with UNKNOWN_RESPONSE.
    options = json.loads(_setting(session, "options"))
    wanted = set(_setting(session, "tables_wanted", "").split(",")) - {""}
    views = BRONZE | {name: kind.view for name, kind in SILVER.items()}
    for name, view in views.items():
        if not wanted or name in wanted:
            pipelines.table(name=name)(partial(rows_of, session, view, options))


def declare_gold(session: SparkSession) -> None:
    """Define a materialized view for each table of gold, made from the tables of bronze and silver as they are now.

    Args:
        session: the pipeline's session. Its configuration names the folder of tables as ``spark.kraftcore.tables``.
    """
    from pyspark import pipelines

    tables = Tables(session, _setting(session, "tables"), is_sparks_own=True)
    clusters = sorted(row[0] for row in tables.read("bronze_files").select("cluster_id").distinct().collect())
    source = ClusterRows(tables, clusters or [""])
    canonicals = [Canonical(one, source.of(one), tables.masking_key) for one in clusters or [""]]
    for name, make in GOLD.items():
        rows = pa.concat_tables([make(canonical) for canonical in canonicals])
        made = session.createDataFrame(rows, from_arrow_schema(rows.schema))
        pipelines.materialized_view(name=name)(partial(_same, made))


def _same(rows: DataFrame) -> DataFrame:
    return rows


def _setting(session: SparkSession, name: str, default: str | None = None) -> str:
    found = session.conf.get(_PREFIX + name, default)
    if found is None:
        raise LocalError(f"the pipeline's configuration lacks {_PREFIX}{name}: make specs with 'kraftcore spark spec'")
    return str(found)


def write_specs(
    paths: Sequence[str | Path],
    tables: str | Path,
    target: str | Path,
    *,
    errors: str = DROP,
    options: dict[str, str] | None = None,
    only: Sequence[str] = (),
) -> list[list[str]]:
    """Write the specs and definitions of both pipelines.

    Args:
        paths: the input, as for ``run``.
        tables: local folder of the tables; not one that ``run`` made.
        target: folder for the specs and for the state of Spark's streams.
        errors: what becomes of damaged rows: ``fail``, ``drop`` or ``keep``.
        options: more options of the data source.
        only: tables of bronze and silver to make; empty: all. Gold takes a missing table as empty.

    Returns:
        The two commands that run the pipelines, in order, each as a list of arguments.

    Raises:
        LocalError: nothing to read, an unknown option or table, or a folder of tables that is not local or that Spark
            would take for a pattern.
    """
    if not is_local(str(tables)):
        raise LocalError(f"{tables}: pipelines make their tables in a local folder here: name one")
    home = os.path.abspath(tables if os.path.lexists(tables) else os.path.expanduser(tables))
    if any(sign in home for sign in _SIGNS):
        raise LocalError(
            f"{home}: pipelines take a folder of tables with one of {_SIGNS} in its path for a pattern (seen with "
            "Spark 4.3.0): name another one"
        )
    unknown = sorted(set(only) - BRONZE.keys() - SILVER.keys())
    if unknown:
        raise LocalError(f"there is no table {unknown[0]} of bronze or silver")
    if LocalFolder(home).has(RUNS) or format_of(LocalFolder(home)) is not None:
        raise LocalError(f"{home}: 'kraftcore spark run' made these tables: name a folder of its own")
    whole = [from_anywhere(str(one)) for one in paths]
    check_input(whole, errors, options)
    configuration = {
        "options": json.dumps(input_options(whole, errors, options)),
        "tables": home,
        "tables_wanted": ",".join(only),
    }
    folder = Path(target).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for layer in LAYERS:
        text = _SPEC.format(
            layer=layer,
            storage=json.dumps(f"file://{folder / 'state' / layer}"),
            configuration="\n".join(f"  {_PREFIX}{name}: {json.dumps(value)}" for name, value in configuration.items()),
        )
        (folder / f"{layer}.yml").write_text(text, encoding="utf-8")
        (folder / f"{layer}.py").write_text(_DEFINITIONS.format(layer=layer), encoding="utf-8")
    # A file, because spark-pipelines (seen with 4.3.0) loses some of more than ten settings on its command line.
    settings = folder / "conf" / "spark-defaults.conf"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(
        _SETTINGS.format(tables=home, catalog=folder / "catalog", log=folder / "derby.log", flows=_FLOWS_AT_ONCE),
        encoding="utf-8",
    )
    program = ["env", f"SPARK_CONF_DIR={settings.parent}", "spark-pipelines", "run"]
    return [[*program, "--spec", str(folder / f"{layer}.yml"), "--remote", _WHERE] for layer in LAYERS]
