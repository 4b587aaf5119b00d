"""One Spark session, and one set of tables of the golden data, for all tests here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bad_day
import object_store
import pytest
from click.testing import CliRunner, Result
from golden import GOLDEN
from pyspark.sql import SparkSession
from spark_parts import SMALL, copy_as

from kraftcore.cli import spark as commands
from kraftcore.plugins import spark as kraft


@pytest.fixture(autouse=True)
def nothing_left_in_the_environment() -> Iterator[None]:
    """What a session sets for its JVM is not for other tests."""
    yield
    os.environ.pop("PYTHONSAFEPATH", None)


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = SMALL | {
        "spark__sql__warehouse__dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark__jars": ",".join(map(str, object_store.jars())),
    }
    found = kraft.session("local[2]", **settings)
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def golden_tables(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of all golden clusters, of each golden node as if it were a cluster of its own, and of a bad day."""
    home = tmp_path_factory.mktemp("golden")
    for node in sorted(GOLDEN.glob("*/c?")):
        name = f"{node.parent.name}-{node.name}"
        copy_as(node, home / "alone" / name, name)
    bad_day.write(home / "bad-day")
    kraft.run(session, [GOLDEN, home / "alone", home / "bad-day"], home / "tables")
    return home / "tables"


@pytest.fixture(scope="session")
def written_report(session: SparkSession, golden_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of those, with its pictures beside it."""
    home = tmp_path_factory.mktemp("report")
    kraft.write_report(session, golden_tables, home / "report.html", pictures=home / "pictures")
    return home / "report.html"


class _Kept:
    """The session of all tests, which a command cannot stop."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        pass


@pytest.fixture
def call(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """The commands in this process, on the session of all tests; those that ask print no progress."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # a command sets its own; this is for what comes after
    monkeypatch.setattr(kraft, "session", lambda *_, **__: _Kept(session))

    def called(name: str, *arguments: object) -> Result:
        more = [] if name == "run" else ["--quiet", "--cold"]
        return CliRunner().invoke(commands.spark, [name, *more, *map(str, arguments)])

    yield called
    monkeypatch.undo()
    time.tzset()
