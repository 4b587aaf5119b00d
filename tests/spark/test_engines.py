"""DuckDB and Spark answer the same SQL with the same rows; which of them is asked."""

from __future__ import annotations

from datetime import UTC, datetime

import bad_day
import pytest
from golden import GOLDEN

from kraftcore.errors import CorruptDataError, LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import engines
from kraftcore.plugins.spark.answers import QUESTIONS, ask
from kraftcore.plugins.spark.engines import SparkEngine, engine_for
from kraftcore.plugins.spark.printing import json_lines
from kraftcore.plugins.spark.state import KINDS, STATE_TABLES, States
from kraftcore.plugins.spark.tables import Tables

REPORT_TABLES = " ".join(QUESTIONS.values())


@pytest.fixture(scope="module")
def both(session, golden_tables):
    """Both engines on the tables of the golden clusters and the bad day."""
    tables = Tables(session, golden_tables)
    tables.register()
    with engine_for(tables, f"{REPORT_TABLES} {STATE_TABLES}") as local:
        assert not isinstance(local, SparkEngine)
        yield tables, local, SparkEngine(session)


@pytest.mark.deep
@pytest.mark.parametrize("name", QUESTIONS)
def test_both_answer_each_question_alike(name, both):
    tables, local, spark = both
    found, wanted = (ask(engine, [name], tables.clusters())[name] for engine in (local, spark))
    assert found == wanted
    for rows in found.values():
        for row in rows:
            for column, value in row.items():
                if isinstance(value, datetime):
                    assert value.utcoffset() == datetime.now(UTC).utcoffset(), column


@pytest.mark.deep
def test_the_clusters_hold_rows_for_all_other_questions_than_these(both):
    tables, local, _ = both
    answers = ask(local, QUESTIONS, tables.clusters())
    assert {name for name, rows in answers.items() if not rows} == {"divergence", "errors"}


@pytest.mark.deep
@pytest.mark.parametrize(
    "at",
    [
        {},
        {"offset": 0},
        {"offset": 300},
        pytest.param({"time": bad_day.moment("14:02:08.000")}, marks=pytest.mark.long),
        pytest.param({"time": 0}, marks=pytest.mark.long),
    ],
    ids=["at the end", "offset 0", "offset 300", "a moment", "1970"],
)
@pytest.mark.parametrize("cluster_id", [None, bad_day.CLUSTER_ID])
def test_both_know_the_same_states(at, cluster_id, both):
    tables, local, spark = both
    if "time" in at:
        at = {"time": datetime.fromtimestamp(at["time"] / 1000, UTC)}
    found = []
    for engine in (local, spark):
        states = States(tables, engine, cluster_id)
        texts = states.texts(**at)
        assert list(texts) == list(KINDS)
        printed = {kind: sorted(json_lines(engine.rows(text))) for kind, text in texts.items()}
        found.append((printed, states.unknown_ends(), states.beyond_log(**at)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["it's", "back\\slash", "' OR true OR '", "at offset 'at'"])
def test_a_cluster_may_have_any_name(name, both):
    for engine in both[1:]:
        assert ask(engine, ["logs", "voter_changes"], [name]) == {"logs": {}, "voter_changes": {}}


@pytest.fixture
def own_tables(tmp_path):
    no_spark = pytest.fail
    kraft.run(lambda: no_spark("Spark was started"), [GOLDEN / "static" / "c3"], tmp_path / "t")
    return tmp_path / "t"


def test_a_report_of_small_tables_needs_no_spark_and_of_large_ones_does(own_tables, tmp_path, monkeypatch):
    def start():
        raise LocalError("Spark was started")

    kraft.write_report(start, own_tables, tmp_path / "r.html")
    assert "<h1>KRaft report</h1>" in (tmp_path / "r.html").read_text()
    monkeypatch.setattr(engines, "SMALL_BYTES", 1000)
    with pytest.raises(LocalError, match="Spark was started"):
        kraft.write_report(start, own_tables, tmp_path / "r.html")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"rubbish"),
        lambda file: file.write_bytes(file.read_bytes()[:300]),
        lambda file: file.unlink(),
    ],
    ids=["rubbish", "half a file", "no file"],
)
def test_a_file_that_cannot_be_read_is_named(spoil, own_tables, tmp_path):
    (file,) = (own_tables / "gold_logs").rglob("*.parquet")
    spoil(file)
    with pytest.raises(CorruptDataError) as found:
        kraft.write_report(lambda: pytest.fail("Spark was started"), own_tables, tmp_path / "r.html")
    assert str(file) in str(found.value)
    assert len(str(found.value).splitlines()) == 1
