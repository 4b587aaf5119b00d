"""The same tables from ``spark-pipelines`` as from ``kraftcore spark run``."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner
from golden import GOLDEN
from pyspark.sql import DataFrame, SparkSession
from spark_parts import LIMIT_S, SMALL

import pyspark_kraft
from kraftcore.cli.spark import spark as commands
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.gold_registry import GOLD
from kraftcore.plugins.spark.tables import BRONZE, SILVER, Tables

pytestmark = pytest.mark.deep

INPUT = GOLDEN / "static"
QUICK = {name.replace("__", "."): value for name, value in SMALL.items() if "Java" not in name} | {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


def written(*arguments: object) -> list[list[str]]:
    """The commands that ``kraftcore spark spec`` prints."""
    done = CliRunner().invoke(commands, ["spec", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return [shlex.split(line) for line in done.output.splitlines()]


def run(command: list[str], folder: Path) -> None:
    scripts = str(Path(pyspark.__file__).parent / "bin")
    done = subprocess.run(
        command,
        env=os.environ
        | {
            "JAVA_TOOL_OPTIONS": SMALL["spark__driver__extraJavaOptions"],
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(folder),
            "PATH": f"{scripts}:{os.environ['PATH']}",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=4 * LIMIT_S,  # a session of its own for each command
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def lines(rows: DataFrame, names: list[str]) -> list[str]:
    return sorted(repr(row) for row in rows.select(*names).collect())


@pytest.mark.long
def test_pipelines_make_the_same_tables(session: SparkSession, tmp_path: Path):
    kraft.run(lambda: session, [INPUT], tmp_path / "run")
    wanted = {name: Tables(session, tmp_path / "run").read(name) for name in [*BRONZE, *SILVER, *GOLD]}
    silver = [name for name in SILVER if not wanted[name].isEmpty()]
    assert len(silver) > 10
    only = [part for name in [*BRONZE, *silver] for part in ("--only", name)]
    # An editable install hides top-level modules from the search that Spark makes: lay the module beside the pipelines.
    shutil.copy(pyspark_kraft.__file__, tmp_path)
    tables, home = tmp_path / "tables", tmp_path / "a[1]"  # a name that looks like a pattern
    home.mkdir()
    for command in written("--input", INPUT, "--tables", tables, "--to", home / "spec", *only):
        with (home / "spec/conf/spark-defaults.conf").open("a") as file:
            file.writelines(f"{name} {value}\n" for name, value in QUICK.items())
        run(command, tmp_path)
    for name in [*BRONZE, *silver, *GOLD]:
        made = session.read.schema(wanted[name].schema).parquet(str(tables / name))
        assert lines(made, wanted[name].columns) == lines(wanted[name], wanted[name].columns), name
    assert not (tmp_path / "metastore_db").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "absent"], "no such file"),
        (["--input", str(INPUT), "--only", "gold_logs"], "no table gold_logs"),
        (["--input", str(INPUT), "--tables", "s3a://bucket/tables"], "local folder"),
        (["--input", str(INPUT), "--tables", "b[1]"], "for a pattern"),
    ],
)
def test_what_specs_refuse(arguments, words, tmp_path):
    done = CliRunner().invoke(
        commands, ["spec", "--tables", str(tmp_path / "t"), "--to", str(tmp_path / "s"), *arguments]
    )
    assert done.exit_code != 0
    assert words in str(done.exception)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["kraftcore_runs/_delta_log/0.json", "kraftcore-tables.json"])
def test_tables_of_a_run_are_left_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text('{"format": 4}')
    done = CliRunner().invoke(
        commands, ["spec", "--input", str(INPUT), "--tables", str(tmp_path), "--to", str(tmp_path / "s")]
    )
    assert "a folder of its own" in str(done.exception)
