"""Folders of tables that earlier versions made: taken over, or refused by name.

``tables-format-4.tar.gz`` holds a log and the tables that the last version before Delta made of it; ``@FOLDER@`` stands
for the folder where that was.
"""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest
from bad_day import CLUSTER_ID, Log, begin
from click.testing import CliRunner
from deltalake import DeltaTable
from spark_parts import counted_rows

from kraftcore.cli import spark as commands
from kraftcore.errors import CorruptDataError, LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import delta, gold_registry
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.protocol.records.config_record import ConfigRecord

RECORDED = Path(__file__).with_name("tables-format-4.tar.gz")
OF_A_PLACE = {"path", "log_id", "file_id", "reference_log_id"}
ABOUT = "kraftcore-tables.json"


def no_spark():
    pytest.fail("so little is done without Spark")


@pytest.fixture
def folder(tmp_path):
    """A folder with ``in`` and ``tables`` of format 4, readable by all."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(tmp_path, filter="data")
    for place in (tmp_path / "tables" / "_commits").iterdir():
        place.write_text(place.read_text().replace("@FOLDER@", str(tmp_path)))
    (tmp_path / "tables").chmod(0o755)
    return tmp_path


@pytest.fixture
def anew(folder):
    """The rows that this version makes of the same log."""
    kraft.run(no_spark, [folder / "in"], folder / "anew")
    return values(counted_rows(folder / "anew"))


def values(rows):
    """Rows that can be compared: marks of secrets and hashes of paths differ between folders."""

    def shown(row):
        return {key: value for key, value in row.items() if "hidden:" not in str(value) and key not in OF_A_PLACE}

    return {name: sorted(repr(shown(row)) for row in found) for name, found in rows.items()}


def run(folder):
    return kraft.run(no_spark, [folder / "in"], folder / "tables")


def say(folder, number):
    (folder / "tables" / ABOUT).write_text(json.dumps({"format": number}))


def left(folder):
    """What only an earlier version makes."""
    tables = folder / "tables"
    return [*tables.glob("_commits/*"), *tables.glob("gold_*/cluster_id=*/*"), *tables.glob(ABOUT)]


@pytest.mark.parametrize("number", [3, 4])
def test_a_run_takes_tables_over_and_reads_no_record_again(folder, anew, number):
    say(folder, number)
    key = (folder / "tables" / "_masking-key").read_bytes()
    killed = folder / "tables" / "gold_logs" / "cluster_id=x" / "9-0123456789ab-0-01234567.parquet"
    killed.parent.mkdir()
    killed.touch()
    result = run(folder)
    assert not any(result.rows.values())
    assert result.clusters == (CLUSTER_ID,)
    assert values(counted_rows(folder / "tables")) == anew
    assert not left(folder)
    assert (folder / "tables" / "_masking-key").read_bytes() == key
    assert stat.S_IMODE((folder / "tables").stat().st_mode) == 0o700
    assert run(folder).clusters == ()


def test_what_is_appended_is_read_on_from_where_the_earlier_version_stood(folder):
    (segment,) = (folder / "in").rglob("*.log")
    log = Log()
    begin(log)
    log.write("14:00:00.000", secret("Hush!"))
    assert segment.read_bytes() == bytes(log.data)
    end = log.end
    log.write("14:00:01.000", secret("Hush again!"))
    segment.write_bytes(bytes(log.data))
    result = run(folder)
    assert result.rows["bronze_records"] == log.end - end > 0
    assert (result.rows["errors"], result.clusters) == (0, (CLUSTER_ID,))


def secret(value):
    return ConfigRecord(resource_type=2, resource_name="orders", name="plugin.password", value=value)


@pytest.mark.parametrize("name", ["delete", "commit"])
@pytest.mark.parametrize("after", [0, 1, 7, 30])
def test_a_take_over_that_is_killed_is_made_once_more(folder, anew, monkeypatch, name, after):
    class Killed(BaseException):
        pass

    owner, method = (LocalFolder, "delete") if name == "delete" else (delta.TableLog, "commit")
    do, done = getattr(owner, method), []

    def kill(*arguments):
        done.append(arguments)
        if len(done) > after:
            raise Killed
        return do(*arguments)

    monkeypatch.setattr(owner, method, kill)
    try:
        run(folder)
    except Killed:
        monkeypatch.undo()
        run(folder)
    assert len(done) > after or after == 30
    monkeypatch.undo()
    assert values(counted_rows(folder / "tables")) == anew
    assert not left(folder)


def test_gold_of_an_earlier_version_goes_though_it_cannot_be_made_anew(folder, monkeypatch):
    def fails(*_):
        raise OverflowError("date value out of range")

    monkeypatch.setitem(gold_registry.GOLD, "gold_logs", fails)
    assert set(run(folder).failed) == {CLUSTER_ID}
    assert not left(folder)
    monkeypatch.undo()
    assert run(folder).clusters == (CLUSTER_ID,)


@pytest.mark.parametrize("use", ["query", "state", "report"])
def test_who_reads_is_told_to_run_first(folder, use):
    more = {"query": ["SELECT 1"], "state": [], "report": ["--to", str(folder / "r.html")]}[use]
    done = CliRunner().invoke(commands.spark, [use, "--tables", str(folder / "tables"), *more])
    assert done.exit_code != 0
    assert isinstance(done.exception, LocalError)
    assert "tables of an earlier version (format 4): 'kraftcore spark run' takes them over" in str(done.exception)


@pytest.mark.parametrize("number", [1, 2, 99])
def test_formats_that_are_not_taken_over_are_refused_and_stay_as_they_are(folder, number):
    say(folder, number)
    before = sorted((folder / "tables").rglob("*"))
    with pytest.raises(LocalError, match=f"tables of format {number}, which this version does not take over: begin"):
        run(folder)
    assert [one for one in sorted((folder / "tables").rglob("*")) if one.name != ".lock"] == before


def test_a_format_that_nobody_can_read_is_damage(folder):
    (folder / "tables" / ABOUT).write_text("[1")
    with pytest.raises(CorruptDataError, match="not what a run notes") as told:
        run(folder)
    assert ABOUT in str(told.value)


def test_what_is_taken_over_is_of_use_to_any_reader(folder):
    run(folder)
    for name in ("bronze_records", "silver_partition", "gold_leadership"):
        table = DeltaTable(folder / "tables" / name)
        assert len(table.to_pyarrow_table()) == table.count() > 0
