"""docs/spark-readers.md: its lines read the same rows as kraftcore, after every kind of run."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import duckdb
import duckdb_extension_delta
import duckdb_extension_httpfs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from object_store import BUCKET, KEY, REGION, SECRET, object_store
from readers import (
    DELTA_SPARK,
    ENGINES,
    KINDS,
    PAGE,
    QUICK,
    SOME,
    SPARK,
    Input,
    blocks,
    comparable,
    killed,
    late,
    lines,
    newest,
    read,
    read_by_delta_spark,
    run,
    wanted,
)

from kraftcore.errors import LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import pipeline

HEAVY = "more than a hundred steps"
ON_STORE = ("first run", "clean-up, and the run after")
"""Kinds of runs that are compared on an object store, too."""


@pytest.fixture(scope="module", autouse=True)
def duckdbs_extensions():
    for package in (duckdb_extension_httpfs, duckdb_extension_delta):
        (path,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        duckdb.execute(f"LOAD '{path}'")


@pytest.fixture
def the_session(session, monkeypatch):
    monkeypatch.setattr(kraft, "session", lambda: session)
    return session


def compare(tables, names, engines):
    for name in names:
        rows = wanted(tables, name, of_last=False)
        for engine in engines:
            assert comparable(read(engine, tables, name)) == rows, (engine, name)


def compare_in_spark(session, tables, names):
    for name in names:
        rows = wanted(tables, name, of_last=True)
        for engine in SPARK:
            assert comparable(read(engine, tables, name)) == rows, (engine, name)
        assert comparable(kraft.query(session, tables, f"SELECT * FROM {name}").toArrow()) == rows, name


IN_SPARK = "two writers at once"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != HEAVY])
def test_every_engine_reads_what_counts(kind, tmp_path):
    tables = str(tmp_path / "tables")
    for _ in KINDS[kind](tmp_path, tables):
        compare(tables, SOME, QUICK)
    assert late(tables) == []


def test_spark_reads_what_counts_with_kraftcores_reader(the_session, tmp_path):
    tables = str(tmp_path / "tables")
    for _ in KINDS[IN_SPARK](tmp_path, tables):
        compare_in_spark(the_session, tables, ("bronze_records", "gold_leadership"))
    first, last = DeltaTable(f"{tables}/kraftcore_runs").to_pyarrow_table().sort_by("step").to_pylist()[::3]
    begun = kraft.table(the_session, tables, "bronze_records", at=first["time"])
    assert begun.count() < kraft.table(the_session, tables, "bronze_records", at=last["time"]).count()
    with pytest.raises(LocalError, match="there is no table gold_nothing"):
        kraft.table(the_session, tables, "gold_nothing")
    with pytest.raises(LocalError, match="holds no tables"):
        kraft.table(the_session, tmp_path, "bronze_records")


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_reads_all_tables(kind, the_session, tmp_path):
    tables = str(tmp_path / "tables")
    make = partial(killed, every=7) if KINDS[kind] is killed else KINDS[kind]
    for _ in make(tmp_path, tables):
        compare(tables, newest(tables)["columns"], QUICK)
    assert late(tables) == []
    compare_in_spark(the_session, tables, newest(tables)["columns"])


@pytest.mark.deep
@pytest.mark.long
def test_every_engine_reads_tables_on_an_object_store(session, the_session, tmp_path, monkeypatch):
    settings = session.sparkContext._jsc.hadoopConfiguration()
    with object_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        for name, value in store.hadoop.items():
            settings.set(name, value)
        address = store.endpoint.removeprefix("http://")
        duckdb.execute(
            f"CREATE SECRET store (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', REGION '{REGION}', "
            f"ENDPOINT '{address}', URL_STYLE path, USE_SSL false)"
        )
        for number, kind in enumerate(ON_STORE):
            place = f"{BUCKET}/{number}"
            for _ in KINDS[kind](tmp_path / str(number), f"s3a://{place}"):
                pass
            compare(f"s3://{place}", SOME, QUICK)
            compare_in_spark(the_session, f"s3a://{place}", SOME)
        duckdb.execute("DROP SECRET store")
        for name in store.hadoop:
            settings.unset(name)


@pytest.mark.deep
@pytest.mark.long
def test_deltas_own_reader_in_spark_reads_what_counts(tmp_path):
    todo, expected = {}, {}
    for number, (kind, make) in enumerate(KINDS.items()):
        home = tmp_path / str(number)
        tables = str(home / "tables")
        for _ in make(home, tables):
            pass
        for name in SOME:
            rows = wanted(tables, name, of_last=False)
            for engine in DELTA_SPARK:
                place = str(home / f"{name}-{DELTA_SPARK.index(engine)}")
                todo[place], expected[place] = lines(engine, tables, name), (rows, kind, engine, name)
    read_by_delta_spark(todo, tmp_path)
    for place, (rows, *about) in expected.items():
        assert comparable(pq.read_table(place)) == rows, about


def test_a_reader_of_several_tables_sees_whether_they_are_of_one_state(tmp_path):
    tables = str(tmp_path / "tables")
    steps = killed(tmp_path, tables)
    next(steps)  # killed before its row
    assert late(tables) == []
    next(steps)
    next(steps)  # killed between two tables
    behind = late(tables)
    assert behind
    for name in SOME:
        rows = wanted(tables, name, of_last=True)
        assert (comparable(read("pyarrow", tables, name)) == rows) is (name not in behind), name
    next(steps)
    assert late(tables) == []


def test_stale_clusters_have_gold_of_an_older_bronze(tmp_path, monkeypatch):
    tables, source = str(tmp_path / "tables"), Input(tmp_path).cut(1)
    run(source, tables)
    assert newest(tables)["stale"] == []
    before = newest(tables)["files"]

    def no_gold(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "refresh_gold", no_gold)
    with pytest.raises(KeyboardInterrupt):
        run(source.cut(0), tables)
    after = newest(tables)
    assert after["stale"] == ["one"]
    assert after["files"]["gold_logs"] == before["gold_logs"]
    assert after["files"]["bronze_records"] != before["bronze_records"]
    monkeypatch.undo()
    run(source, tables)
    assert newest(tables)["stale"] == []
    assert newest(tables)["files"]["gold_logs"] != before["gold_logs"]
    assert newest(tables)["files"]["bronze_records"] == after["files"]["bronze_records"]


def test_a_reader_from_before_a_clean_up_opens_the_table_again(tmp_path):
    tables, source = str(tmp_path / "tables"), Input(tmp_path).cut(1)
    run(source, tables)
    opened = DeltaTable(f"{tables}/gold_logs")
    run(source.cut(0), tables)
    assert opened.to_pyarrow_table().num_rows == 1
    kraft.clean(tables, hours=0)
    with pytest.raises(FileNotFoundError):
        opened.to_pyarrow_table()
    assert DeltaTable(f"{tables}/gold_logs").to_pyarrow_table().num_rows == 1


def test_any_reader_of_delta_knows_the_format(tmp_path):
    tables = str(tmp_path / "tables")
    run(Input(tmp_path), tables)
    found = {log.parent.name for log in Path(tables).glob("*/_delta_log")}
    assert found == {"kraftcore_runs", *newest(tables)["columns"]}
    for name in found:
        table = DeltaTable(f"{tables}/{name}")
        assert table.protocol().min_reader_version == 1
        assert table.metadata().partition_columns == []
    frame = DeltaTable(f"{tables}/gold_leadership").to_pandas()
    assert (frame["epoch_end_offset"].dtype, frame["epoch"].dtype) == ("float64", "int32")
    exact = read("pandas", tables, "gold_leadership")
    assert str(exact.schema.field("epoch_end_offset").type) == "int64"


def proof(kind, engine):
    if engine in DELTA_SPARK:
        return "long"
    is_quick = kind == IN_SPARK if engine in SPARK else kind != HEAVY
    text = "quick, long" if is_quick else "long"
    return f"{text}, S3" if kind in ON_STORE else text


def test_the_page_says_what_is_compared_and_when(request):
    rows = [("kind of run", *ENGINES), ("---",) * (1 + len(ENGINES))]
    rows += [(kind, *(proof(kind, engine) for engine in ENGINES)) for kind in KINDS]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = PAGE.read_text()
    whole = re.sub(r"(?s)(<!-- readers -->\n).*?(<!-- /readers -->)", rf"\1{table}\n\2", text)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(whole)
    assert PAGE.read_text() == whole
    assert len(blocks()) == len(ENGINES) + 1
