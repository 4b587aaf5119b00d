"""One Spark session, and one set of tables of the golden data, for all tests here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import GOLDEN
from pyspark.sql import SparkSession
from spark_parts import SMALL, copy_as

from kraftcore.plugins import spark as kraft


@pytest.fixture(autouse=True)
def nothing_left_in_the_environment() -> Iterator[None]:
    """What a session sets for its JVM is not for other tests."""
    yield
    os.environ.pop("PYTHONSAFEPATH", None)


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    found = kraft.session("local[2]", **SMALL, spark__sql__warehouse__dir=str(tmp_path_factory.mktemp("warehouse")))
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def golden_tables(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of all golden clusters, and of each golden node as if it were a cluster of its own."""
    home = tmp_path_factory.mktemp("golden")
    for node in sorted(GOLDEN.glob("*/c?")):
        name = f"{node.parent.name}-{node.name}"
        copy_as(node, home / "alone" / name, name)
    kraft.run(session, [GOLDEN, home / "alone"], home / "tables")
    return home / "tables"
