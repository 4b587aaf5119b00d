"""Other engines' view of a folder of tables: kinds of runs that make such folders, and the lines of the docs that read.

The wanted rows are those of the files that a row of ``kraftcore_runs`` names, read with pyarrow alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from golden import GOLDEN
from kafka_tools import CACHE, COPY_JARS, RESOLVE_TIMEOUT_S, digest_of, locked, make_folder
from project import ROOT
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from spark_parts import batches_of, copy_as

from kraftcore.errors import LockedError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import commits
from kraftcore.plugins.spark.delta import File, TableLog
from kraftcore.plugins.spark.tables import Tables

PAGE = ROOT / "docs" / "spark-readers.md"
SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
SOME = (
    "bronze_records",
    "errors",
    "gold_leadership",
    "gold_partition_history",
    "silver_kraft_voters",
    "silver_partition",
    "silver_user_scram_credential",
)
"""Tables for quick tests: with nested columns, bytes and times, and some without rows."""
_DELTA_SPARK = Path(__file__).parent / "delta_spark"
_PYSPARK = "4.2.0"
_DELTA_SPARK_S = 900
LACKED = {"bronze_records": "key", "silver_partition": "isr", "gold_leadership": "reason"}
"""The columns that tables of an older version lack."""


class Killed(BaseException):
    """In place of a signal, which would end the tests, too."""


class Input:
    """A node's log, below a folder; whole, or without its last batches."""

    def __init__(self, home: Path, cluster: str = "one") -> None:
        self.node = copy_as(GOLDEN / "dynamic" / "c3", home / "in" / cluster, cluster)
        self._whole = (self.node / SEGMENT).read_bytes()
        self._ends = [spot.position for spot in batches_of(self._whole)] + [len(self._whole)]

    def cut(self, lacking: int) -> Input:
        """Let the last batches be absent."""
        (self.node / SEGMENT).write_bytes(self._whole[: self._ends[-1 - lacking]])
        return self

    def replace(self) -> None:
        """Put another log in its place, under the same name."""
        other = GOLDEN / "static" / "c3" / SEGMENT
        (self.node / SEGMENT).write_bytes(other.read_bytes())


def run(source: Input, tables: str, **how: Any) -> None:
    """A run in this process."""
    kraft.run(_no_spark, [source.node], tables, **how)


def _no_spark() -> Any:
    raise AssertionError("so little is done without Spark")


def first(home: Path, tables: str) -> Iterator[None]:
    run(Input(home), tables)
    yield


def nothing_new(home: Path, tables: str) -> Iterator[None]:
    source = Input(home)
    run(source, tables)
    run(source, tables)
    yield


def grown(home: Path, tables: str) -> Iterator[None]:
    source = Input(home)
    for lacking in (2, 1, 0):
        run(source.cut(lacking), tables)
        yield


def replaced(home: Path, tables: str) -> Iterator[None]:
    source = Input(home)
    run(source, tables)
    source.replace()
    run(source, tables)
    yield


def merged(home: Path, tables: str) -> Iterator[None]:
    source = Input(home)
    for lacking in (2, 1, 0):
        run(source.cut(lacking), tables, merge_files=1)
    yield


def two_writers(home: Path, tables: str) -> Iterator[None]:
    source = Input(home)
    run(source.cut(1), tables)
    late = Tables(None, tables)
    late.commit  # noqa: B018  (read now)
    run(source.cut(0), tables)
    try:
        late.begin()
    except LockedError:
        yield
    else:
        raise AssertionError("the second writer was not refused")


def older_columns(home: Path, tables: str) -> Iterator[None]:
    source = Input(home).cut(1)
    run(source, tables)
    made = Tables(None, tables)
    files, columns = dict(made.commit.files), dict(made.commit.columns)
    for name, lacked in LACKED.items():
        files[name] = {}
        for file, about in made.commit.files[name].items():
            path = Path(tables, name, file)
            pq.write_table(pq.read_table(path, partitioning=None).drop_columns([lacked]), path)
            files[name][file] = File(path.stat().st_size, about.rows)
        fields = json.loads(columns[name])
        fields["fields"] = [field for field in fields["fields"] if field["name"] != lacked]
        columns[name] = json.dumps(fields)
        shutil.rmtree(Path(tables, name, "_delta_log"))
    made.end(made.begin(), replace(made.commit, files=files, columns=columns))
    yield
    run(source.cut(0), tables)
    for name, lacked in LACKED.items():
        assert lacked in [field.name for field in DeltaTable(f"{tables}/{name}").schema().fields]
    yield


def cleaned(home: Path, tables: str) -> Iterator[None]:
    source = Input(home)
    for lacking in (2, 1, 0):
        run(source.cut(lacking), tables, merge_files=1)
    # On a store a clean-up of all is refused.
    hours = 1 if "://" in tables else 0
    with mock.patch.object(commits, "now", return_value=commits.now() + timedelta(hours=2 * hours)):
        assert kraft.clean(tables, hours=hours) > 0
    yield
    source.replace()
    run(source, tables)
    yield


def killed(home: Path, tables: str, every: int = 30) -> Iterator[None]:
    """Killed before the first commit of a log and each ``every``th one after, each time in a run with a new cluster."""
    run(Input(home, "before"), tables)
    for last in count(0, every):
        source, made = Input(home, f"killed-{last}"), 0

        def commit(log: TableLog, *arguments: Any, last: int = last) -> bool:
            nonlocal made
            if made == last:
                raise Killed
            made += 1
            return _COMMIT(log, *arguments)

        try:
            with mock.patch.object(TableLog, "commit", commit), mock.patch.object(commits, "at_once", _in_turn):
                run(source, tables)
        except Killed:
            yield
            run(source, tables)
            yield
        else:
            assert last > every
            return


_COMMIT = TableLog.commit


def _in_turn(action: Callable[[Any], Any], what: Any) -> None:
    for one in what:
        action(one)


def many_steps(home: Path, tables: str) -> Iterator[None]:
    """So many that deltalake makes a checkpoint of a log."""
    run(Input(home), tables)
    one = Tables(None, tables).commit.files["gold_leadership"]
    for number in range(105):
        made = Tables(None, tables)
        made.end(
            made.begin(),
            replace(made.commit, files={**made.commit.files, "gold_leadership": one if number % 2 else {}}),
        )
    assert Path(tables, "gold_leadership", "_delta_log", "_last_checkpoint").exists()
    yield
    run(Input(home, "two"), tables)
    yield


KINDS: dict[str, Callable[[Path, str], Iterator[None]]] = {
    "first run": first,
    "nothing new": nothing_new,
    "a segment that grew": grown,
    "a segment that was replaced": replaced,
    "small files merged": merged,
    "killed between two logs, and the run after": killed,
    "two writers at once": two_writers,
    "columns that older tables lack": older_columns,
    "clean-up, and the run after": cleaned,
    "more than a hundred steps": many_steps,
}
"""What makes tables, by name; yields wherever the tables are to be compared."""
QUICK = ("DuckDB", "DuckDB without extension", "Polars", "pyarrow", "pandas")
SPARK = ("PySpark, `kraft.table`", "PySpark, SQL")
DELTA_SPARK = ("PySpark 4.2, Delta's reader", "PySpark 4.2, Delta's reader, SQL")
ENGINES = (*QUICK, *SPARK, *DELTA_SPARK)
"""In the order of the page."""
CHECK = "which tables are late"


@cache
def blocks() -> dict[str, str]:
    """The page's lines by engine, and those that look for late tables."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return dict(zip((*ENGINES, CHECK), found, strict=True))


def lines(engine: str, tables: str, name: str) -> str:
    """The page's lines for an engine, with a table of a folder in place of the page's."""
    return blocks()[engine].replace("/data/tables", tables).replace("gold_leadership", name)


def read(engine: str, tables: str, name: str) -> pa.Table:
    """A table's rows by an engine, with the lines of the page."""
    names: dict[str, Any] = {}
    exec(lines(engine, tables, name), names)
    rows = names["rows"]
    if isinstance(rows, pa.Table):
        return rows
    for way in ("to_arrow_table", "to_arrow", "toArrow"):
        if hasattr(rows, way):
            return getattr(rows, way)()
    return pa.Table.from_pandas(rows, preserve_index=False)


def late(tables: str) -> list[str]:
    """The tables whose logs are behind, with the lines of the page, for all tables."""
    last = newest(tables)
    names: dict[str, Any] = {}
    text = blocks()[CHECK].replace("/data/tables", tables)
    exec(text.replace('("gold_leadership", "bronze_records")', repr(tuple(last["columns"]))), names)
    return list(names["late"])


def states(tables: str) -> dict[int, dict[str, Any]]:
    """What the rows of ``kraftcore_runs`` say, by step."""
    rows = DeltaTable(f"{tables}/kraftcore_runs").to_pyarrow_table().sort_by("step").to_pylist()
    return {row["step"]: json.loads(row["state"]) for row in rows}


def newest(tables: str) -> dict[str, Any]:
    """What the last row says."""
    return list(states(tables).values())[-1]


def wanted(tables: str, name: str, *, of_last: bool) -> Counter[Any]:
    """The rows that a table has by the last row of ``kraftcore_runs``, or by that of the step of its own log."""
    known = states(tables)
    step = max(known) if of_last else DeltaTable(f"{tables}/{name}").transaction_version("kraftcore")
    # A table that no kept step changed says what the first one says.
    state = known[max((one for one in known if one <= step), default=min(known))]
    schema = to_arrow_schema(StructType.fromJson(json.loads(state["columns"][name])), timezone="UTC")
    parts = []
    for file in state["files"].get(name, ()):
        part = _read_file(tables, f"{name}/{file}")
        for field in schema:
            if field.name not in part.schema.names:
                part = part.append_column(field, pa.nulls(len(part), field.type))
        parts.append(part.select(schema.names))
    return comparable(pa.concat_tables(parts, promote_options="permissive") if parts else schema.empty_table())


def _read_file(tables: str, name: str) -> pa.Table:
    if "://" not in tables:
        return pq.read_table(f"{tables}/{name}", partitioning=None)
    data = Tables(None, tables).folder.read(name)
    assert data is not None
    return pq.read_table(pa.BufferReader(data))


def comparable(rows: pa.Table) -> Counter[Any]:
    """How often each row is there, whatever the order of rows and columns, with the names of the columns."""
    names = sorted(rows.schema.names)
    columns = [_plain(rows[name]).to_pylist() for name in names]
    return Counter({tuple(names): 1}) + Counter(tuple(map(_frozen, row)) for row in zip(*columns, strict=True))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((key, _frozen(one)) for key, one in value.items()))
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def read_by_delta_spark(places: dict[str, str], folder: Path) -> None:
    """Run lines in PySpark 4.2 with Delta's own reader, both from packages.

    Args:
        places: by folder that the rows are written to, as Parquet: the lines, which set ``rows``.
        folder: an empty folder to run in.
    """
    jars = CACHE / f"delta-spark-{digest_of([_DELTA_SPARK / 'pom.xml'])}"
    spark = CACHE / f"pyspark-{_PYSPARK}"
    with locked(CACHE / "lock"):
        if not jars.is_dir():
            command = ["mvn", "-q", "-B", "-f", str(_DELTA_SPARK / "pom.xml"), COPY_JARS, "-DoutputDirectory={}"]
            make_folder(jars, [*command, "-DincludeScope=runtime"], "{}", RESOLVE_TIMEOUT_S)
        if not spark.is_dir():
            install = [sys.executable, "-m", "pip", "install", "-q", "--target", "{}", f"pyspark=={_PYSPARK}"]
            make_folder(spark, install, "{}", RESOLVE_TIMEOUT_S)
    wanted = sorted(str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(("delta-", "unitycatalog-")))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    done = subprocess.run(
        [sys.executable, "-P", str(_DELTA_SPARK / "read.py"), *wanted],
        input=json.dumps(places),
        env={**environment, "PYTHONPATH": str(spark), "TZ": "UTC"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_DELTA_SPARK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
