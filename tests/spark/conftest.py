"""One Spark session and one set of tables of the golden data for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import GOLDEN
from pyspark.sql import SparkSession

from kraftcore.plugins import spark as kraft


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    # Small data on a cold JVM: what would make large data fast only makes this slow.
    found = kraft.session(
        "local[2]",
        spark__sql__shuffle__partitions="1",
        spark__sql__codegen__wholeStage="false",
        spark__sql__codegen__factoryMode="NO_CODEGEN",
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def golden_tables(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = tmp_path_factory.mktemp("golden") / "tables"
    kraft.run(session, [GOLDEN], tables)
    return tables
